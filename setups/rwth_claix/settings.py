"""
CLAIX-2023, the cluster of RWTH Aachen University, as an example of a real one. Nobody has run it there: what is marked
``not tested`` is read, not tried. Before the first sweep, compare it with ``sinfo -o "%P %c %m %G %l %D"``.

Sources:

- [1] IT Center, https://www.hpc.itc.rwth-aachen.de/cms/hpc/Systeme-Services/~bcepsh/Systeme/lidx/1: nodes with two
  processors of 48 cores each and 256 to 1024 GB, and 51 nodes of the same kind with four H100 each; InfiniBand.
- [2] IT Center, https://help.itc.rwth-aachen.de/en/service/rhr4fjjutttf/article/fed436424d464e01ac7add680162a852/: an
  hour of a GPU is billed as 24 hours of a core; who names no project uses up a monthly quota.
- [3] job scripts and settings of users in public repositories: names of partitions, memory per core, hosts.

``SYNCOPATE_ACCOUNT`` names the project that pays, ``SYNCOPATE_LOCAL_CPUS`` says how many CPUs of the login node short
tasks may use.
"""

import os

from sisyphus import global_settings as _defaults

from syncopate.settings import configure
from syncopate.site import NodeShape, Partition, Site

_SITE = Site(
    partitions=[
        Partition(
            name="c23g",  # [3], not tested
            shape=NodeShape(
                gpus=4,  # [1]
                gpu_mem_gb=96,  # [3], where some say 80; not tested
                cpus=96,  # [1]
                mem_gb=488,  # [3]: 122 for each GPU; not tested
            ),
            max_time_h=24,  # [3], not tested
            whole_node=False,  # [2]: billed by GPUs, of which each stands for 24 cores
        ),
        Partition(
            name="c23ms",  # [3], not tested
            shape=NodeShape(cpus=96, mem_gb=238),  # 2540 MB for each core [3], not tested
            max_time_h=24,  # not tested
        ),
        Partition(
            name="c23mm",  # [3], not tested
            shape=NodeShape(cpus=96, mem_gb=488),  # 5210 MB for each core [3], not tested
            max_time_h=24,  # not tested
        ),
        Partition(
            name="c23ml",  # [3], not tested
            shape=NodeShape(cpus=96, mem_gb=990),  # 10560 MB for each core [3], not tested
            max_time_h=24,  # not tested
        ),
    ],
    account=os.environ.get("SYNCOPATE_ACCOUNT") or None,  # [2], not tested
    bad_nodes=[],
    host_suffix="",  # not tested
    interface=None,  # not tested
)


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    from syncopate.jobs.slurm_engine import SlurmEngine

    return EngineSelector(
        engines={
            # Login nodes are shared by all users.
            "short": LocalEngine(cpu=int(os.environ.get("SYNCOPATE_LOCAL_CPUS", 2))),
            "long": SlurmEngine(default_rqmt={"cpu": 1, "mem": 2, "gpu": 0, "time": 1}),
        },
        default_engine="long",
    )


# Folders of the user on the file systems for scratch data.
DEFAULT_ENVIRONMENT_KEEP = {*_defaults.DEFAULT_ENVIRONMENT_KEEP, "WORK", "HPCWORK"}  # [3], not tested

# Each look at the tasks is one call of squeue for all of them: at most two a minute.
WAIT_PERIOD_BETWEEN_CHECKS = 30
WAIT_PERIOD_JOB_FS_SYNC = 30

USE_VERBOSE_TRACEBACK = False
PRINT_ERROR_LINES = 20
SHOW_JOB_TARGETS = False

configure(globals(), engine="slurm", site=_SITE)
