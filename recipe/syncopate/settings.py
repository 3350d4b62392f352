"""
Syncopate in a Sisyphus setup that is there already: the last lines of its ``settings.py``::

    import sys; sys.path.insert(0, "recipe")  # only where syncopate is linked into recipe/ and not installed
    from syncopate.settings import configure

    configure(globals())                  # a cluster gives the nodes of a training
    configure(globals(), engine="local")  # LocalEngine runs every training: its nodes are emulated on this host

Sisyphus executes ``settings.py`` in the namespace of its own settings, while it is being imported itself. So nothing of
it is imported here, and what is needed comes in as that namespace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from typing import Any

from syncopate.errors import DeclarationError, did_you_mean
from syncopate.launch.kept import ENGINE, kept_names
from syncopate.launch.place import ENGINES

_CONFIGS = "configs"
_NEEDED = ("CLEANUP_ENVIRONMENT", "DEFAULT_ENVIRONMENT_KEEP", "DEFAULT_ENVIRONMENT_SET", "IMPORT_PATHS")
_PER_NODE = ("cpu", "gpu", "mem")


def configure(settings: MutableMapping[str, Any], *, engine: str | None = None) -> None:
    """
    Adds to the settings what trainings on several nodes need. Nothing that was set is changed in place, the user's own
    function keeps the last word on requirements, and a second call changes nothing.

    - ``DEFAULT_ENVIRONMENT_KEEP`` gets SLURM's names, and those of NCCL, Gloo and Syncopate that are set now.
    - ``IMPORT_PATHS`` gets ``"configs"`` at its end, where there is such a folder.
    - With an engine, ``DEFAULT_ENVIRONMENT_SET`` tells it to the tasks. Where ``CLEANUP_ENVIRONMENT`` is off, Sisyphus
      ignores that and hands on the manager's own environment, so there the variable is set as well.
    - With ``engine="local"``, ``check_engine_limits`` first drops ``multi_node_slots``, which LocalEngine refuses, and
      asks for the CPUs, GPUs and memory of all nodes together. Then the user's own function runs, on the result.

    :param settings: ``globals()`` of ``settings.py``
    :param engine: "local" if LocalEngine runs the trainings. "slurm" if SLURM does: then no variable in the shell that
        starts the manager can say otherwise. None leaves it to what is found in a task's environment
    :raises DeclarationError: if the engine is unknown or contradicts an earlier one, or these are no settings
    """
    if engine is not None and engine not in ENGINES:
        raise DeclarationError(
            f"configure: engine must be one of {list(ENGINES)} or None, got {engine!r}{did_you_mean(engine, ENGINES)}"
        )
    missing = [name for name in _NEEDED if name not in settings]
    if missing:
        raise DeclarationError(
            f"configure: the namespace given to it has no {', no '.join(missing)}, so it is not that of Sisyphus'"
            " settings; call configure(globals()) in settings.py itself, not in a module that it imports, and let"
            " Sisyphus load the file"
        )
    settings["DEFAULT_ENVIRONMENT_KEEP"] = {*settings["DEFAULT_ENVIRONMENT_KEEP"], *kept_names(os.environ)}
    paths = list(settings["IMPORT_PATHS"])
    if os.path.isdir(_CONFIGS) and not {_CONFIGS, f"{_CONFIGS}/"} & set(paths):
        settings["IMPORT_PATHS"] = [*paths, _CONFIGS]
    if engine is not None:
        _set_engine(settings, engine)


def _set_engine(settings: MutableMapping[str, Any], engine: str) -> None:
    before = settings["DEFAULT_ENVIRONMENT_SET"].get(ENGINE, engine)
    if before != engine:
        raise DeclarationError(
            f"configure: engine={engine!r}, but DEFAULT_ENVIRONMENT_SET[{ENGINE!r}] is {before!r} already; one engine"
            " runs all trainings of a setup"
        )
    settings["DEFAULT_ENVIRONMENT_SET"] = {**settings["DEFAULT_ENVIRONMENT_SET"], ENGINE: engine}
    if not settings["CLEANUP_ENVIRONMENT"]:
        os.environ[ENGINE] = engine
    limits = settings.get("check_engine_limits")
    if engine == "local" and not isinstance(limits, _AllNodesHere):
        settings["check_engine_limits"] = _AllNodesHere(limits)


class _AllNodesHere:
    """
    ``check_engine_limits`` for an engine that knows no nodes: this host has to give what all of them need together.

    :param limits: the user's own, None if there is none
    """

    def __init__(self, limits: Callable[[dict[str, Any], Any], dict[str, Any]] | None) -> None:
        self.limits = limits

    def __call__(self, current_rqmt: dict[str, Any], task: Any) -> dict[str, Any]:
        rqmt = dict(current_rqmt)
        num_nodes = rqmt.pop("multi_node_slots", None) or 1
        rqmt.update({key: rqmt[key] * num_nodes for key in _PER_NODE if key in rqmt})
        return rqmt if self.limits is None else self.limits(rqmt, task)
