"""Which environment variables a training needs, where a workflow manager empties the environment before it runs."""

from __future__ import annotations

from collections.abc import Mapping

ENGINE = "SYNCOPATE_ENGINE"
"""Says what starts the nodes of a training; "local" emulates all of them on this host."""

HOST_SUFFIX = "SYNCOPATE_HOST_SUFFIX"
"""Added to SLURM's name of a node, it gives the name by which the other nodes reach it over the fast network."""

INTERFACE = "SYNCOPATE_INTERFACE"
"""Network interface over which the ranks talk, where they would choose a wrong one."""

MEETING_HOST = "SYNCOPATE_MEETING_HOST"
"""Name or address under which the first node is reached, where SLURM's name of it is of no use."""

SLURM_NAMES = (
    "SLURMD_NODENAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOBID",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_START_TIME",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_GPUS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SRUN_CPUS_PER_TASK",
)
"""``SLURM_CONF`` and ``SRUN_CPUS_PER_TASK`` are for SLURM commands that a task calls, the others say where it is."""

KEPT_PREFIXES = ("NCCL_", "GLOO_", "SYNCOPATE_", "TORCH_NCCL_")


def kept_names(environ: Mapping[str, str]) -> set[str]:
    """
    :param environ: the manager's environment
    :return: names to keep: SLURM's, and what the user set for the collectives and for Syncopate. Sisyphus knows exact
        names only, so those with a prefix are the ones that are set now.
    """
    with_prefix = {name for name in environ if name.startswith(KEPT_PREFIXES)}
    return {ENGINE, HOST_SUFFIX, INTERFACE, MEETING_HOST, *SLURM_NAMES, *with_prefix}
