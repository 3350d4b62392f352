"""A real SLURM of four nodes on this host, to rehearse a sweep: ``make cluster-up`` and ``make cluster-down``."""

import os

from sisyphus import global_settings as _defaults

from syncopate.settings import configure
from syncopate.site import NodeShape, Partition, Site

# Sisyphus executes this text inside its own module, in the folder it was started in, where setups/ may be a link.
_REPOSITORY = os.path.dirname(os.path.dirname(os.path.realpath("setups/loopback_slurm")))
_CLUSTER = os.environ.get("SYNCOPATE_CLUSTER_DIR") or os.path.join(_REPOSITORY, ".cluster")
_CONF = os.path.abspath(os.path.join(_CLUSTER, "slurm.conf"))
if not os.path.exists(_CONF):
    raise SystemExit(f"there is no cluster in {_CLUSTER}: run make cluster-up")
# For sbatch, squeue and sacct, of the manager and of tasks.
os.environ["SLURM_CONF"] = _CONF
_NODE = NodeShape(gpus=2, cpus=4, mem_gb=16)


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    from syncopate.jobs.slurm_engine import SlurmEngine

    return EngineSelector(
        engines={
            "short": LocalEngine(cpu=2, gpu=0),
            "long": SlurmEngine(default_rqmt={"cpu": 1, "mem": 1, "gpu": 0, "time": 1}, retry_s=10),
        },
        default_engine="long",
    )


# Tasks find the programs that the user's shell finds.
DEFAULT_ENVIRONMENT_SET = {
    **_defaults.DEFAULT_ENVIRONMENT_SET,
    "PATH": os.environ.get("PATH", os.defpath),
    # node1 to node4 are no host names; all of them are here.
    "SYNCOPATE_MEETING_HOST": "127.0.0.1",
}

# One host has one file system that is always in sync.
WAIT_PERIOD_JOB_FS_SYNC = 0
WAIT_PERIOD_BETWEEN_CHECKS = 1
WAIT_PERIOD_CACHE = 1
WAIT_PERIOD_JOB_CLEANUP = 0
WAIT_PERIOD_MTIME_OF_INPUTS = 0
FILESYSTEM_CACHE_TIME = 1
# A task that is gone from the queue counts as running for so long after its last sign of life.
PLOGGING_INTERVAL = 2
PLOGGING_UPDATE_FILE_PERIOD = 5
PLOGGING_QUIET = True

USE_VERBOSE_TRACEBACK = False
WARNING_ABSPATH = False
PRINT_ERROR_LINES = 20
SHOW_JOB_TARGETS = False

configure(
    globals(),
    engine="slurm",
    site=Site(
        partitions=[
            Partition(name="main", shape=_NODE, max_time_h=24, max_nodes=4),
            Partition(name="short", shape=_NODE, max_time_h=5 / 60, max_nodes=4),
        ]
    ),
)
