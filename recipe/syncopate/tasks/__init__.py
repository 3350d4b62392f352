"""
Small real experiments: complete trainings that run anywhere, for the configs, the tests and the benchmarks.

A task is a package with a ``config`` (what RETURNN is told), files made before the training, and a ``model`` that only
the training process imports. Nothing is imported here, so that naming one task loads no other.
"""
