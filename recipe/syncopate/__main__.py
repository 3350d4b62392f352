"""
``python -m syncopate``::

    run CONFIG       train the sweeps of a config here, one training after the other, without Sisyphus
    manage CONFIG    train them through `sis manager`, without questions, with a true exit code
    compare PATHS    the table of sweeps or trainings, finished or running
    doctor           what is installed, and what is lacking
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from syncopate.errors import SyncopateError
from syncopate.sweep.record import TABLE_DIRECTORY
from syncopate.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: arguments, default is the command line's
    :return: exit code: 0, 1 if a training failed, 2 if the input is wrong
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["compare"]:
        from syncopate.compare.cli import compare_main

        return compare_main(argv[1:])
    if argv[:1] == ["doctor"]:
        from syncopate.doctor import doctor_main

        return doctor_main(argv[1:])
    args = _parser().parse_args(argv)
    try:
        good = _run(args) if args.command == "run" else _manage(args)
        return 0 if good else 1
    except SyncopateError as exc:
        print(f"syncopate: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, ValueError) else 1
    except OSError as exc:
        print(f"syncopate: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("syncopate: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m syncopate", description="Compare synchronisation schemes.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="train the sweeps of a config here, without Sisyphus")
    run.add_argument("config", help="a Python file with py(), such as configs/quickstart.py")
    run.add_argument("--out", default="runs", type=Path, help="folder of the results (default: runs)")
    run.add_argument("--slots", type=int, help="ranks that may train at once (default: cores, at least 4)")
    manage = commands.add_parser("manage", help="train the sweeps of a config through `sis manager`")
    manage.add_argument("config", help="a Python file with py(), in a folder with a settings.py")
    commands.add_parser("compare", help="the table of sweeps or trainings", add_help=False)
    commands.add_parser("doctor", help="what is installed, and what is lacking", add_help=False)
    return parser


def _run(args: argparse.Namespace) -> bool:
    from syncopate.compare.tables import measure_all, write_tables
    from syncopate.local.load import load_sweeps
    from syncopate.local.runner import run_sweep
    from syncopate.sweep.record import SWEEP_FILE, SweepRecord

    good = True
    for sweep in load_sweeps(args.config):
        folder = run_sweep(sweep, out=args.out, environ=os.environ, slots=args.slots, say=_say)
        record = SweepRecord.read(folder / SWEEP_FILE)
        measured = measure_all(record, base=folder)
        write_tables(record, measured, base=folder, directory=folder / TABLE_DIRECTORY)
        _show(folder)
        good = good and all(one.state == "finished" for one in measured)
    return good


def _manage(args: argparse.Namespace) -> bool:
    from syncopate.jobs.manage import manage

    for folder in manage(args.config, say=_say):
        _show(folder)
    return True


def _say(line: str) -> None:
    print(line, flush=True)


def _show(folder: Path) -> None:
    """Prints the table of a sweep, and where its files are."""
    files = sorted((folder / TABLE_DIRECTORY).iterdir())
    text = next(file for file in files if file.suffix == ".txt")
    _say(f"\n{text.read_text(encoding='utf-8')}")
    for file in files:
        _say(str(file))


if __name__ == "__main__":
    sys.exit(main())
