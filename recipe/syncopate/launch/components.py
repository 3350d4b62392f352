"""
What is installed, and whether it will do: the python that trains, and Sisyphus and i6_core beside us.

The python that trains may be another one than ours, often a script that enters a container. It is asked once, without
importing torch, before anything is submitted; a rank asks itself the same before it imports anything heavy.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from syncopate.cluster import DEVICES
from syncopate.errors import ClusterError, ComponentError, did_you_mean
from syncopate.launch import probe
from syncopate.launch.answer import answer_of
from syncopate.launch.versions import (
    I6_CORE_URL,
    MIN_PYTHON,
    SISYPHUS_URL,
    TESTED_RETURNN,
    ReturnnFeatures,
    is_older,
    returnn_features,
)

__all__ = [
    "TESTED_RETURNN",
    "ComponentState",
    "TrainingPython",
    "check_training_python",
    "i6_core_state",
    "own_training_python",
    "probe_training_python",
    "require_i6_core",
    "require_sisyphus",
    "returnn_features",
    "sisyphus_state",
]

ComponentState = Literal["rwth", "absent", "foreign"]
"""RWTH's own, none, or another project of the same name."""

_SISYPHUS_FILES = ("manager.py", "job.py", "localengine.py")
_I6_CORE_FILES = ("returnn/training.py",)


@dataclass(frozen=True, kw_only=True)
class TrainingPython:
    """
    A python that is to train, and what it has.

    :param python: the interpreter, or a script that starts one
    :param returnn_root: a checkout of RETURNN (it has a ``rnn.py``), None for the installed wheel
    :param python_version: e.g. "3.11.7"
    :param returnn_version: e.g. "1.20261022.211313", with "+git.REVISION" for a git checkout
    :param torch_version: e.g. "2.13.0+cpu", None if it has none
    :param returnn_path: folder of the package, as that python sees it
    :param has_sync_levels: as in :class:`ReturnnFeatures`
    :param has_cpu_training: as in :class:`ReturnnFeatures`
    :param unfit_methods: as in :class:`ReturnnFeatures`
    :param missing_packages: packages that RETURNN needs for training and does not find
    """

    python: str
    returnn_root: str | None
    python_version: str
    returnn_version: str
    torch_version: str | None
    returnn_path: str
    has_sync_levels: bool
    has_cpu_training: bool
    unfit_methods: tuple[str, ...]
    missing_packages: tuple[str, ...]


def probe_training_python(
    python: str | os.PathLike[str], *, returnn_root: str | os.PathLike[str] | None = None, timeout_s: float = 60
) -> TrainingPython:
    """
    :param python: the interpreter, or a script that starts one
    :param returnn_root: a checkout of RETURNN, None for what that python has installed
    :param timeout_s: how long it may take to answer
    :raises ComponentError: if it is no python, does not answer in time, or has no RETURNN
    """
    python = os.fspath(python)
    root = None if returnn_root is None else os.fspath(returnn_root)
    script = Path(probe.__file__).read_text(encoding="utf-8")
    output = _output([python, "-c", script, *([] if root is None else [root])], timeout_s=timeout_s)
    answers = [line.removeprefix(probe.MARK) for line in output.splitlines() if line.startswith(probe.MARK)]
    if not answers:
        raise ComponentError(
            f"training python {python!r}: did not answer as a Python 3 does, its last words were"
            f" {output.strip()[-300:]!r}; give the interpreter that has RETURNN and torch, or a script that starts it"
            ' with "$@"'
        )
    return _training_python(json.loads(answers[-1]), python=python, returnn_root=root)


def own_training_python(*, python: str, returnn_root: str | None = None) -> TrainingPython:
    """
    Like :func:`probe_training_python`, for the python we run in: what a rank does in its first second.

    :param python: how it is called, for messages
    :param returnn_root: as above
    :raises ComponentError: if there is no RETURNN
    """
    return _training_python(probe.look(returnn_root), python=python, returnn_root=returnn_root)


def check_training_python(found: TrainingPython, *, device: str) -> None:
    """
    :param found: what a python has
    :param device: what is to be trained on, "gpu" or "cpu"
    :raises ComponentError: if that python cannot train what Syncopate declares
    """
    if device not in DEVICES:
        raise ClusterError(f"device must be one of {list(DEVICES)}, got {device!r}{did_you_mean(device, DEVICES)}")
    wanted = ".".join(map(str, MIN_PYTHON))
    if tuple(int(part) for part in found.python_version.split(".")[:2]) < MIN_PYTHON:
        raise ComponentError(
            f"training python {found.python!r}: is Python {found.python_version}, too old for Syncopate, which runs in"
            f" every rank and needs {wanted} or newer; make an environment or a container with Python {wanted}"
        )
    if found.torch_version is None:
        raise ComponentError(
            f"training python {found.python!r}: has no torch; install PyTorch into it (pytorch.org tells which build"
            " fits your GPUs), or give the python that has it"
        )
    if found.missing_packages:
        raise ComponentError(
            f"training python {found.python!r}: has no {', no '.join(found.missing_packages)}, which RETURNN needs to"
            f" train; run {found.python} -m pip install {' '.join(found.missing_packages)}"
        )
    features = ReturnnFeatures(
        has_sync_levels=found.has_sync_levels,
        has_cpu_training=found.has_cpu_training,
        unfit_methods=found.unfit_methods,
    )
    lacks = features.lacks(device=device)
    if lacks:
        is_old = is_older(found.returnn_version, than=TESTED_RETURNN)
        raise ComponentError(
            f"training python {found.python!r}: RETURNN {found.returnn_version} in {found.returnn_path}"
            f" {'is too old' if is_old else 'does not fit'} for a training on {device}: it lacks {'; '.join(lacks)}."
            f" Syncopate is tested with RETURNN {TESTED_RETURNN}: {_remedy(found)}"
        )


def sisyphus_state() -> ComponentState:
    """:return: which ``sisyphus`` this interpreter would import"""
    return _find("sisyphus", _SISYPHUS_FILES)[0]


def require_sisyphus() -> None:
    """
    :raises ComponentError: if this interpreter has no Sisyphus, or PyPI's project of that name
    """
    state, place = _find("sisyphus", _SISYPHUS_FILES)
    if state == "foreign":
        raise ComponentError(
            f"the package 'sisyphus' in {place} is PyPI's project of that name, which is unrelated to RWTH's workflow"
            f" manager; run pip uninstall sisyphus, then pip install '{SISYPHUS_URL}'"
        )
    if state == "absent":
        raise ComponentError(
            f"Sisyphus is not installed; run pip install '{SISYPHUS_URL}' (PyPI's 'sisyphus' is an unrelated project)"
        )


def i6_core_state() -> ComponentState:
    """:return: which ``i6_core`` this interpreter would import; the empty folder of a submodule is none"""
    return _find("i6_core", _I6_CORE_FILES)[0]


def require_i6_core() -> None:
    """
    :raises ComponentError: if this interpreter finds no i6_core
    """
    state, place = _find("i6_core", _I6_CORE_FILES)
    if state == "foreign":
        raise ComponentError(
            f"the package 'i6_core' in {place} is another one: it has no {_I6_CORE_FILES[0]};"
            f" put a checkout of {I6_CORE_URL} before it on the path"
        )
    if state == "absent":
        raise ComponentError(
            "i6_core is not found; in a clone of Syncopate run git submodule update --init recipe/i6_core, in your own"
            f" setup clone {I6_CORE_URL} into recipe/, and start from the folder that holds recipe/"
        )


def _output(command: list[str], *, timeout_s: float) -> str:
    """:return: what the command prints, to whichever stream; its process group is ended when the time is up"""
    python = command[0]
    try:
        return answer_of(command, timeout_s=timeout_s)[0]
    except OSError as exc:
        raise ComponentError(f"training python {python!r}: {_why_not_started(python, exc)}") from exc
    except subprocess.TimeoutExpired as exc:
        raise ComponentError(
            f"training python {python!r}: did not answer within {timeout_s:g} s; try by hand whether it runs"
            " -c 'print(1)', and allow more time if its container or file system is that slow"
        ) from exc


def _why_not_started(python: str, exc: OSError) -> str:
    if shutil.which(python) is None and not os.path.exists(python):
        return "does not exist; give the interpreter that has RETURNN and torch, or a script that starts it"
    if isinstance(exc, PermissionError):
        return f"is no program that may be executed; run chmod +x {python}, or give the file and not its folder"
    return (
        f"cannot be started ({exc.strerror}); the first line of a script must name an interpreter that exists,"
        " such as #!/bin/bash"
    )


def _training_python(found: Mapping[str, Any], *, python: str, returnn_root: str | None) -> TrainingPython:
    if found["returnn_path"] is None:
        if returnn_root is not None:
            raise ComponentError(
                f"training python {python!r}: sees no checkout of RETURNN in {returnn_root!r}, that is a folder with"
                " rnn.py and returnn/; give the folder of a checkout (mounted, if the python is in a container), or"
                " none for the installed wheel"
            )
        raise ComponentError(
            f"training python {python!r}: has no RETURNN; run {python} -m pip install 'returnn=={TESTED_RETURNN}',"
            " or give the folder of a checkout"
        )
    try:
        features = returnn_features(found["distributed_source"])
    except SyntaxError as exc:
        raise ComponentError(
            f"training python {python!r}: {found['returnn_path']}/torch/distributed.py is no Python (line {exc.lineno}:"
            f" {exc.msg}); install RETURNN {TESTED_RETURNN} anew"
        ) from exc
    return TrainingPython(
        python=python,
        returnn_root=returnn_root,
        python_version=found["python_version"],
        returnn_version=found["returnn_version"],
        torch_version=found["torch_version"],
        returnn_path=found["returnn_path"],
        has_sync_levels=features.has_sync_levels,
        has_cpu_training=features.has_cpu_training,
        unfit_methods=features.unfit_methods,
        missing_packages=tuple(found["missing"]),
    )


def _remedy(found: TrainingPython) -> str:
    if found.returnn_root is not None:
        return f"update the checkout (git -C {found.returnn_root} pull), or use the wheel of that version"
    return f"run {found.python} -m pip install 'returnn=={TESTED_RETURNN}'"


def _find(package: str, files: tuple[str, ...]) -> tuple[ComponentState, str]:
    """:return: which package of this name would be imported, judged by the files it must have, and where it is"""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return "absent", ""
    folders = spec.submodule_search_locations or ()
    if any(all((Path(folder) / file).is_file() for file in files) for folder in folders):
        return "rwth", str(spec.origin)
    # A folder without __init__.py is found as well, with no origin: a submodule not checked out, or a clone's parent.
    return ("absent", "") if spec.origin is None else ("foreign", spec.origin)
