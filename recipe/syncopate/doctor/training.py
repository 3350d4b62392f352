"""The python that trains: may be another one than the manager's, and is often a script that enters a container."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import syncopate
from syncopate.doctor.ask import ask
from syncopate.doctor.finding import Note
from syncopate.errors import ComponentError
from syncopate.launch.command import RANK_MODULE
from syncopate.launch.components import TrainingPython, check_training_python, probe_training_python
from syncopate.launch.environment import expose_package
from syncopate.launch.probe import MARK
from syncopate.version import __version__

LOOK_LIMIT_S = 60
TORCH_LIMIT_S = 120
"""Importing torch from a busy file server can take a minute."""

_HEAD = """
import importlib.util, json, os, sys
if sys.path and sys.path[0] == "":
    del sys.path[0]
"""

_LOOK_FOR_SYNCOPATE = f"""{_HEAD}
folder = sys.argv[1]
found = {{
    "passed_on": folder in os.environ.get("PYTHONPATH", "").split(os.pathsep),
    "sees_folder": os.path.isdir(folder),
    "sees_package": os.path.isfile(os.path.join(folder, "syncopate", "__init__.py")),
    "place": None, "version": None, "error": None,
}}
try:
    if importlib.util.find_spec("syncopate") is not None and importlib.util.find_spec({RANK_MODULE!r}) is not None:
        import syncopate, syncopate.version
        found["place"] = os.path.realpath(os.path.dirname(syncopate.__file__))
        found["version"] = syncopate.version.__version__
except Exception as exc:
    found["error"] = type(exc).__name__ + ": " + str(exc)
print("\\n{MARK}" + json.dumps(found))
"""

_LOOK_INTO_TORCH = f"""{_HEAD}
import torch
import torch.distributed as dist
backends = [name for name in ("gloo", "nccl") if dist.is_available() and getattr(dist, "is_%s_available" % name)()]
print("\\n{MARK}" + json.dumps({{"backends": backends, "num_gpus": torch.cuda.device_count()}}))
"""


def exists(python: str) -> bool:
    """
    :param python: a path, or a name that is looked for on the PATH
    """
    return shutil.which(python) is not None


def describe(found: TrainingPython, *, device: str, python_from: str, root_from: str) -> str:
    """
    :param found: what the python has
    :param device: "gpu" or "cpu"
    :param python_from: who named the python
    :param root_from: who named the checkout of RETURNN, if any
    :raises ComponentError: if it cannot train
    """
    check_training_python(found, device=device)
    place = f"checkout {found.returnn_root} from {root_from}" if found.returnn_root else "installed there"
    return (
        f"Python {found.python_version}, RETURNN {found.returnn_version} ({place}), torch {found.torch_version};"
        f" {found.python} from {python_from}"
    )


def find(python: str, *, returnn_root: str | None) -> TrainingPython:
    """
    :param python: that trains
    :param returnn_root: a checkout of RETURNN
    :raises ComponentError: if it does not answer, or has no RETURNN
    """
    return probe_training_python(python, returnn_root=returnn_root, timeout_s=LOOK_LIMIT_S)


def check_sees_syncopate(python: str, *, folder: Path) -> str:
    """
    Shows syncopate to the python as a training does: by PYTHONPATH, in a folder where jobs run.

    :param python: that trains
    :param folder: of the setup, where the file system of the jobs is
    :raises ComponentError: if it does not find syncopate, or finds another one
    """
    package = Path(syncopate.__file__).resolve().parent
    work = folder / "work"
    parent = next((place for place in (work, folder) if place.is_dir() and os.access(place, os.W_OK)), None)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".syncopate-doctor.") as temporary:
        exposed = expose_package(Path(temporary).resolve())
        found = ask(
            [python, "-c", _LOOK_FOR_SYNCOPATE, str(exposed)],
            cwd=temporary,
            timeout_s=LOOK_LIMIT_S,
            environ={**os.environ, "PYTHONPATH": str(exposed)},
        )
    reason = why_not_seen(found, python=python, package=package, folder=parent or exposed)
    if reason is not None:
        raise ComponentError(reason)
    return f"found in {found['place']}"


def why_not_seen(found: Mapping[str, Any], *, python: str, package: Path, folder: Path) -> str | None:
    """
    :param found: by the python: ``place`` and ``version`` of its syncopate, ``error`` on loading it, and whether
        PYTHONPATH was ``passed_on``, it ``sees_folder`` named there, and ``sees_package`` linked from there
    :param python: that was asked
    :param package: folder of our syncopate
    :param folder: where jobs run
    :return: why its ranks would not run our syncopate, None if they would
    """
    if found["error"] is not None:
        return f"{python} fails to load syncopate ({found['error']}); it needs Python 3.11 or newer"
    if found["place"] is not None and (found["place"] == str(package) or found["version"] == __version__):
        return None
    other = f", and finds syncopate {found['version']} in {found['place']}" if found["place"] else ""
    if not found["passed_on"]:
        return (
            f"{python} does not get PYTHONPATH as it was set{other}; if it is a script, let it pass the variable on"
            " (apptainer and singularity do so without --cleanenv, docker with -e PYTHONPATH)"
        )
    if not found["sees_folder"]:
        return f"{python} does not see {folder}, where jobs run{other}; if it enters a container, mount that folder"
    return (
        f"{python} does not see the package {package}{other}; if it enters a container, mount {package.parent} there"
        " under the same path"
    )


def check_torch(python: str, *, device: str) -> str | Note:
    """
    Imports torch there, which takes seconds.

    :param python: that trains
    :param device: "gpu" or "cpu"
    :raises ComponentError: if torch cannot be imported, or has no backend for the device
    """
    found = ask([python, "-c", _LOOK_INTO_TORCH], cwd=tempfile.gettempdir(), timeout_s=TORCH_LIMIT_S)
    text = f"backends {', '.join(found['backends']) or 'none'}; {found['num_gpus']} GPUs visible here"
    needed = "nccl" if device == "gpu" else "gloo"
    if needed not in found["backends"]:
        raise ComponentError(
            f"torch of {python} lacks the backend {needed}, which ranks on the {device} need ({text}); install a build"
            " with it, see pytorch.org"
        )
    if device == "gpu" and found["num_gpus"] == 0:
        return Note(text=f"{text}, which is right only if trainings run on other hosts")
    return text
