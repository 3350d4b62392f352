"""A sweep in order on this machine, without Sisyphus, over the same functions as the jobs."""
