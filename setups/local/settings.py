"""
One host without a queue: the nodes of a training are emulated by several launcher agents.

``SYNCOPATE_LOCAL_CPUS`` says how many ranks may train at once; they may share cores.
"""

import os

from sisyphus import global_settings as _defaults

IMPORT_PATHS = ["configs", "config", "recipe", "recipe/"]

_CPUS = int(os.environ.get("SYNCOPATE_LOCAL_CPUS", max(4, os.cpu_count() or 1)))
_GPUS = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]

# What the engine for trainings has. A sweep that asks for more is refused when it is registered: the engine itself
# would let the training wait for ever.
SYNCOPATE_LOCAL_ENGINE = {"cpu": _CPUS, "gpu": len(_GPUS)}


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


def check_engine_limits(current_rqmt, task):
    """The local engine knows no nodes: all of them are on this host, which has to give what they ask for together."""
    num_nodes = current_rqmt.pop("multi_node_slots", None) or 1
    for key in ("cpu", "gpu", "mem"):
        if key in current_rqmt:
            current_rqmt[key] *= num_nodes
    return current_rqmt


DEFAULT_ENVIRONMENT_KEEP = {*_defaults.DEFAULT_ENVIRONMENT_KEEP, "SYNCOPATE_ENGINE"}
DEFAULT_ENVIRONMENT_SET = {
    **_defaults.DEFAULT_ENVIRONMENT_SET,
    "PATH": os.environ.get("PATH", os.defpath),
    "SYNCOPATE_ENGINE": "local",
}

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
