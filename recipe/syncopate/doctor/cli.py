"""The command."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from syncopate.cluster import DEVICES, Cluster
from syncopate.doctor import manager, training
from syncopate.doctor.finding import Note, look
from syncopate.doctor.settings import Settings
from syncopate.doctor.signature import require_sisyphus_signature
from syncopate.doctor.slurm import DEFAULT_LIMIT_S, SlurmChecks, no_settings
from syncopate.errors import ClusterError
from syncopate.launch.components import TrainingPython, require_i6_core, require_sisyphus, sisyphus_state

Check = Callable[[], str | Note]


def doctor_main(argv: Sequence[str]) -> int:
    """
    :param argv: arguments after the name of the command
    :return: exit code: 0, 1 if something is lacking, 2 if the arguments are wrong, 130 if it was interrupted
    """
    args = _parser().parse_args(argv)
    try:
        cluster = Cluster(num_nodes=args.nodes, num_gpus_per_node=args.gpus_per_node, device=args.device)
    except ClusterError as exc:
        print(f"syncopate: {exc}", file=sys.stderr)
        return 2
    good = True
    try:
        for name, check in _components() if args.sisyphus else _all_checks(args, cluster):
            finding = look(name, check)
            print(finding.line, flush=True)
            good = good and finding.state != "lacking"
    except KeyboardInterrupt:
        print("syncopate: interrupted", file=sys.stderr)
        return 130
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
    slurm = parser.add_argument_group(
        "SLURM", "Ask SLURM too, by a test job that takes a minute and the time in the queue."
    )
    slurm.add_argument("--slurm", action="store_true", help="submit a test job to SLURM, as a training is submitted")
    slurm.add_argument("--nodes", type=int, default=2, help="of the test job (default: 2)")
    slurm.add_argument("--gpus-per-node", type=int, default=1, help="ranks on each node, one per GPU (default: 1)")
    slurm.add_argument(
        "--limit-s",
        type=_limit_s,
        default=DEFAULT_LIMIT_S,
        help=f"seconds until the test job is cancelled, in the queue or not (default: {DEFAULT_LIMIT_S})",
    )
    return parser


def _limit_s(text: str) -> float:
    limit_s = float(text)
    if not 0 < limit_s < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return limit_s


def _components() -> Iterator[tuple[str, Check]]:
    for name, require in (("Sisyphus", require_sisyphus), ("i6_core", require_i6_core)):
        yield name, functools.partial(_found, require)


def _all_checks(args: argparse.Namespace, cluster: Cluster) -> Iterator[tuple[str, Check]]:
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
    if args.slurm and not settings.is_loaded:
        yield "SLURM engine", lambda: no_settings(folder)
    elif args.slurm:
        (python, _), (root, _) = _training_python(args, settings)
        yield from SlurmChecks(
            setup=folder, cluster=cluster, python=python, returnn_root=root, limit_s=args.limit_s
        ).all()


def _training_python(args: argparse.Namespace, settings: Settings) -> tuple[tuple[str, str], tuple[str | None, str]]:
    """:return: the python of the ranks, and their checkout of RETURNN if any, each with who named it"""
    python, python_from = _first(
        (args.python, "--python"), (settings.python, "RETURNN_PYTHON_EXE"), default=(sys.executable, "this command")
    )
    assert python is not None
    root = _first((args.returnn_root, "--returnn-root"), (settings.returnn_root, "RETURNN_ROOT"), default=(None, ""))
    return (python, python_from), root


def _training_checks(args: argparse.Namespace, settings: Settings) -> Iterator[tuple[str, Check]]:
    (python, python_from), (root, root_from) = _training_python(args, settings)
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
