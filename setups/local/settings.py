"""
One host without a queue: the nodes of a training are emulated by several launcher agents. Taken where no other setup is
for the host.

``SYNCOPATE_LOCAL_CPUS`` says how many ranks may train at once; they may share cores.
"""

import os

from sisyphus import global_settings as _defaults

from syncopate.settings import configure

_CPUS = int(os.environ.get("SYNCOPATE_LOCAL_CPUS", max(4, os.cpu_count() or 1)))
_GPUS = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    # Short tasks have an engine of their own, so that they need not wait for a training to end.
    return EngineSelector(
        engines={
            "short": LocalEngine(cpu=2, gpu=0),
            "long": LocalEngine(cpu=_CPUS, gpus=len(_GPUS), available_gpus=",".join(_GPUS)),
        },
        default_engine="long",
    )


# Tasks find the programs that the user's shell finds.
DEFAULT_ENVIRONMENT_SET = {**_defaults.DEFAULT_ENVIRONMENT_SET, "PATH": os.environ.get("PATH", os.defpath)}

# One host has one file system that is always in sync.
WAIT_PERIOD_JOB_FS_SYNC = 0
WAIT_PERIOD_BETWEEN_CHECKS = 1
WAIT_PERIOD_CACHE = 1
WAIT_PERIOD_JOB_CLEANUP = 0
WAIT_PERIOD_MTIME_OF_INPUTS = 0
FILESYSTEM_CACHE_TIME = 1

USE_VERBOSE_TRACEBACK = False
WARNING_ABSPATH = False
PRINT_ERROR_LINES = 20
SHOW_JOB_TARGETS = False

configure(globals(), engine="local")
