"""Which environment variables a training needs, where a workflow manager empties the environment before it runs."""

from __future__ import annotations

from collections.abc import Mapping

ENGINE = "SYNCOPATE_ENGINE"
"""Says what starts the nodes of a training; "local" emulates all of them on this host."""

SLURM_NAMES = (
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOBID",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_LOCALID",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
)

KEPT_PREFIXES = ("NCCL_", "GLOO_", "SYNCOPATE_", "TORCH_NCCL_")


def kept_names(environ: Mapping[str, str]) -> set[str]:
    """
    :param environ: the manager's environment
    :return: names to keep: SLURM's, and what the user set for the collectives and for Syncopate. Sisyphus knows exact
        names only, so those with a prefix are the ones that are set now.
    """
    return {ENGINE, *SLURM_NAMES, *(name for name in environ if name.startswith(KEPT_PREFIXES))}
