"""
Syncopate in a Sisyphus setup that is there already: the last lines of its ``settings.py``::

    import sys; sys.path.insert(0, "recipe")  # only where syncopate is linked into recipe/ and not installed
    from syncopate.settings import configure

    configure(globals(), engine="slurm")  # SLURM gives the nodes of a training
    configure(globals(), engine="local")  # LocalEngine runs every training: its nodes are emulated on this host

With SLURM, ``site=Site(...)`` says which partitions there are, see :mod:`syncopate.site`.

Sisyphus executes ``settings.py`` in the namespace of its own settings, while it is being imported itself. So nothing of
it is imported here, and what is needed comes in as that namespace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import MutableMapping
from typing import Any

from syncopate.errors import DeclarationError, did_you_mean
from syncopate.launch.kept import ENGINE, HOST_SUFFIX, INTERFACE, kept_names
from syncopate.launch.place import ENGINES
from syncopate.settings.limits import AllNodesHere, SlurmLimits
from syncopate.site import Site

_CONFIGS = "configs"
_NEEDED = ("CLEANUP_ENVIRONMENT", "DEFAULT_ENVIRONMENT_KEEP", "DEFAULT_ENVIRONMENT_SET", "IMPORT_PATHS")


def configure(settings: MutableMapping[str, Any], *, engine: str | None = None, site: Site | None = None) -> None:
    """
    Adds to the settings what trainings on several nodes need. Nothing that was set is changed in place, the user's own
    function keeps the last word on requirements, and a second call changes nothing.

    - ``DEFAULT_ENVIRONMENT_KEEP`` gets SLURM's names, and those of NCCL, Gloo and Syncopate that are set now.
    - ``IMPORT_PATHS`` gets ``"configs"`` at its end, where there is such a folder.
    - With an engine, ``DEFAULT_ENVIRONMENT_SET`` tells it to the tasks, and what the site says about its network. Where
      ``CLEANUP_ENVIRONMENT`` is off, Sisyphus ignores that and hands on the manager's own environment, so there the
      variables are set as well.
    - With ``engine="local"``, ``check_engine_limits`` first drops ``multi_node_slots``, which LocalEngine refuses, and
      asks for the CPUs, GPUs and memory of all nodes together. Then the user's own function runs, on the result.
    - With ``engine="slurm"``, ``check_engine_limits`` first sends a task to a partition of the site, then the user's
      own function runs, and then time and ``sbatch_args`` get what every task for SLURM needs, see
      :func:`syncopate.site.submission.as_submitted`. Tasks for other engines are left to the user's own function. And
      ``PATH`` of the tasks gets the folder of ``squeue``, which RETURNN asks how much time is left.

    :param settings: ``globals()`` of ``settings.py``
    :param engine: "local" if LocalEngine runs the trainings. "slurm" if SLURM does: then no variable in the shell that
        starts the manager can say otherwise. None leaves it to what is found in a task's environment
    :param site: with SLURM, what its cluster can give
    :raises DeclarationError: if the engine is unknown or contradicts an earlier one, the site does, or these are no
        settings
    """
    if engine is not None and engine not in ENGINES:
        raise DeclarationError(
            f"configure: engine must be one of {list(ENGINES)} or None, got {engine!r}{did_you_mean(engine, ENGINES)}"
        )
    if site is not None and (engine != "slurm" or not isinstance(site, Site)):
        raise DeclarationError(
            f'configure: site must be a Site(...), together with engine="slurm", got {site!r} with engine={engine!r}'
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
    if engine == "local":
        _emulate_nodes(settings)
    if engine == "slurm":
        _use_slurm(settings, site)


def _set_engine(settings: MutableMapping[str, Any], engine: str) -> None:
    before = settings["DEFAULT_ENVIRONMENT_SET"].get(ENGINE, engine)
    if before != engine:
        raise DeclarationError(
            f"configure: engine={engine!r}, but DEFAULT_ENVIRONMENT_SET[{ENGINE!r}] is {before!r} already; one engine"
            " runs all trainings of a setup"
        )
    _set_variables(settings, {ENGINE: engine})


def _emulate_nodes(settings: MutableMapping[str, Any]) -> None:
    limits = settings.get("check_engine_limits")
    if not isinstance(limits, AllNodesHere):
        settings["check_engine_limits"] = AllNodesHere(limits)


def _use_slurm(settings: MutableMapping[str, Any], site: Site | None) -> None:
    limits = settings.get("check_engine_limits")
    if isinstance(limits, SlurmLimits):
        if site is not None and limits.site not in (None, site):
            raise DeclarationError(
                f"configure: site={site!r}, but an earlier call was given {limits.site!r}; a setup has one site, with"
                " all of its partitions"
            )
        if site is not None:
            limits.site = site
    else:
        settings["check_engine_limits"] = SlurmLimits(settings=settings, site=site, limits=limits)
    if site is not None:
        network = {HOST_SUFFIX: site.host_suffix, INTERFACE: site.interface}
        _set_variables(settings, {name: value for name, value in network.items() if value})
    path = settings["DEFAULT_ENVIRONMENT_SET"].get("PATH")
    squeue = shutil.which("squeue")
    if path is not None and squeue is not None and shutil.which("squeue", path=path) is None:
        folder = os.path.dirname(os.path.abspath(squeue))
        settings["DEFAULT_ENVIRONMENT_SET"] = {
            **settings["DEFAULT_ENVIRONMENT_SET"],
            "PATH": os.pathsep.join([*([path] if path else []), folder]),
        }


def _set_variables(settings: MutableMapping[str, Any], variables: dict[str, str]) -> None:
    settings["DEFAULT_ENVIRONMENT_SET"] = {**settings["DEFAULT_ENVIRONMENT_SET"], **variables}
    if not settings["CLEANUP_ENVIRONMENT"]:
        os.environ.update(variables)
