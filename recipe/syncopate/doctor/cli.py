"""The command."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from syncopate.cluster import DEVICES
from syncopate.doctor import manager, training
from syncopate.doctor.finding import Note, look
from syncopate.doctor.settings import Settings
from syncopate.doctor.signature import require_sisyphus_signature
from syncopate.launch.components import TrainingPython, require_i6_core, require_sisyphus, sisyphus_state

Check = Callable[[], str | Note]


def doctor_main(argv: Sequence[str]) -> int:
    """
    :param argv: arguments after the name of the command
    :return: exit code: 0, 1 if something is lacking
    """
    args = _parser().parse_args(argv)
    good = True
    for name, check in _components() if args.sisyphus else _all_checks(args):
        finding = look(name, check)
        print(finding.line, flush=True)
        good = good and finding.state != "lacking"
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m syncopate doctor",
        description="Say what is lacking for trainings from this folder, in one line per check. Takes some seconds.",
    )
    parser.add_argument(
        "--python", help="the python of the ranks (default: RETURNN_PYTHON_EXE of settings.py, or this)"
    )
    parser.add_argument(
        "--returnn-root",
        help="a checkout of RETURNN (default: RETURNN_ROOT of settings.py, or the one installed there)",
    )
    parser.add_argument("--device", default="cpu", choices=DEVICES, help="what is trained on (default: cpu)")
    parser.add_argument("--no-torch", action="store_true", help="do not import torch, which takes seconds")
    parser.add_argument("--sisyphus", action="store_true", help="look for Sisyphus and i6_core alone")
    return parser


def _components() -> Iterator[tuple[str, Check]]:
    for name, require in (("Sisyphus", require_sisyphus), ("i6_core", require_i6_core)):
        yield name, functools.partial(_found, require)


def _all_checks(args: argparse.Namespace) -> Iterator[tuple[str, Check]]:
    """In order; what depends on an earlier one is left out where that one failed."""
    folder = Path.cwd()
    yield "python", manager.own_versions
    yield "Sisyphus", lambda: f"{require_sisyphus_signature()}, with all that is used of it"
    settings = Settings.of_folder(folder, has_sisyphus=sisyphus_state() == "rwth")
    with _on_path(settings.recipe_folders):
        yield "i6_core", lambda: manager.check_i6_core(settings.recipe_folders)
    yield "packages", manager.check_i6_core_packages
    yield "black", lambda: manager.check_black(os.environ.get("PATH", os.defpath))
    yield "settings.py", settings.check_loads
    if settings.is_loaded:
        yield "environment", settings.check_environment
        yield "import paths", settings.check_import_paths
        yield "engine", settings.check_engine
    yield from _training_checks(args, settings)


def _training_checks(args: argparse.Namespace, settings: Settings) -> Iterator[tuple[str, Check]]:
    python, python_from = _first(
        (args.python, "--python"), (settings.python, "RETURNN_PYTHON_EXE"), default=(sys.executable, "this command")
    )
    root, root_from = _first(
        (args.returnn_root, "--returnn-root"), (settings.returnn_root, "RETURNN_ROOT"), default=(None, "")
    )
    assert python is not None
    fit: list[TrainingPython] = []

    def training_python() -> str:
        found = training.find(python, returnn_root=root)
        text = training.describe(found, device=args.device, python_from=python_from, root_from=root_from)
        fit.append(found)
        return text

    yield "training python", training_python
    if training.exists(python):
        yield "syncopate there", lambda: training.check_sees_syncopate(python, folder=settings.folder)
    if fit and not args.no_torch:
        yield "torch there", lambda: training.check_torch(python, device=args.device)


def _found(require: Callable[[], None]) -> str:
    require()
    return "found"


def _first(*given: tuple[str | None, str], default: tuple[str | None, str]) -> tuple[str | None, str]:
    return next(((value, origin) for value, origin in given if value), default)


@contextmanager
def _on_path(folders: Sequence[Path]) -> Iterator[None]:
    """Finds recipes as Sisyphus does: after all else."""
    before = list(sys.path)
    sys.path += map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before
