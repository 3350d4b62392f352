"""
What Sisyphus makes of the ``settings.py`` of the folder it runs in, as one line of JSON.

The doctor runs this file in a process of its own, since settings load once per process, and may end it. They are
loaded as ``sis`` loads them: syncopate is no earlier on the path than the settings themselves put it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

_OUR_FOLDER = os.path.dirname(os.path.realpath(__file__))
_MARK = "SYNCOPATE-PROBE "  # as in syncopate.launch.probe, which cannot be imported yet


def look() -> dict[str, Any]:
    """
    :return: ``error`` where the settings cannot be loaded, else what they say: ``cleanup``, ``environment_keep``,
        ``import_paths``, ``python`` and ``returnn_root`` of the trainings, ``engine`` in words, ``engine_error``
        where it cannot run a training on two nodes, and ``slurm`` if it is SLURM
    """
    try:
        import sisyphus.global_settings as gs
    except (Exception, SystemExit) as exc:
        return {"error": _where(exc)}
    sys.path.append(str(Path(_OUR_FOLDER).parents[1]))
    return {
        "error": None,
        "cleanup": bool(gs.CLEANUP_ENVIRONMENT),
        "environment_keep": sorted(gs.DEFAULT_ENVIRONMENT_KEEP),
        "import_paths": list(gs.IMPORT_PATHS),
        "python": _text(getattr(gs, "RETURNN_PYTHON_EXE", None)),
        "returnn_root": _text(getattr(gs, "RETURNN_ROOT", None)),
        **_engine(),
    }


def _engine() -> dict[str, Any]:
    from sisyphus import Job, Task
    from sisyphus.localengine import LocalEngine

    from syncopate.errors import SyncopateError
    from syncopate.jobs.engine import check_engine, engine_of

    class Training(Job):
        """On two nodes, with as little as possible of everything else."""

        def tasks(self) -> Any:
            yield Task("run", rqmt={"cpu": 1, "mem": 1, "time": 1, "multi_node_slots": 2})

        def run(self) -> None:
            """Is never called."""

    name = "a training on 2 nodes"
    job = Training()
    try:
        (task,) = job.tasks()
        engine = engine_of(task, task.rqmt(), name=name)
        words = type(engine).__name__
        if isinstance(engine, LocalEngine):
            words += f" with {', '.join(f'{value:g} {key}' for key, value in engine.max_resources.items())}"
        check_engine([job], names=[name])
    except SyncopateError as exc:
        return {"engine": None, "engine_error": str(exc), "slurm": None}
    except Exception as exc:
        return {"engine": None, "engine_error": f"engine() fails: {_where(exc)}", "slurm": None}
    return {"engine": words, "engine_error": None, "slurm": _slurm(engine)}


def _slurm(engine: Any) -> dict[str, Any] | None:
    """
    :return: None if it is another engine; whether the settings are ``configured`` for it, the ``partitions`` of their
        site if there is one, programs that are ``lacking`` here, and whether tasks lack ``squeue``
    """
    import sisyphus.global_settings as gs
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine,
    )

    from syncopate.settings.limits import SlurmLimits

    if not isinstance(engine, SimpleLinuxUtilityForResourceManagementEngine):
        return None
    limits = gs.check_engine_limits
    site = getattr(limits, "site", None)
    path = gs.DEFAULT_ENVIRONMENT_SET.get("PATH") if gs.CLEANUP_ENVIRONMENT else None
    return {
        "configured": isinstance(limits, SlurmLimits),
        "partitions": None if site is None else [partition.name for partition in site.partitions],
        "lacking": [] if engine.gateway else [name for name in ("sbatch", "squeue") if shutil.which(name) is None],
        "tasks_lack_squeue": shutil.which("squeue", path=path) is None,
    }


def _where(exc: BaseException) -> str:
    """:return: the error, and the line of the settings that led to it: Sisyphus executes them by their relative path"""
    lines = [
        f" ({frame.filename}, line {frame.lineno})"
        for frame in traceback.extract_tb(exc.__traceback__)
        if not frame.filename.startswith(("<", os.sep))
    ]
    return f"{type(exc).__name__}: {exc}{lines[-1] if lines else ''}"


def _text(path: Any) -> str | None:
    return str(path) if path else None


if __name__ == "__main__":
    if sys.path and os.path.realpath(sys.path[0]) == _OUR_FOLDER:
        del sys.path[0]
    print(f"\n{_MARK}{json.dumps(look())}")
