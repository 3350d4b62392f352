"""``python -m syncopate compare``: print the table of trainings that are there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from syncopate.compare.render import FORMATS, render
from syncopate.compare.report import live_table, require_better_than
from syncopate.errors import NotBetterError, SyncopateError
from syncopate.returnn_io.write import write_text


def compare_main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: arguments after the name of the command
    :return: exit code: 0; 1 if a row is not better than the reference asked for; 2 if there is no table to show
    """
    arguments = _parser().parse_args(argv)
    try:
        table = live_table(
            arguments.paths,
            score=arguments.score,
            lower_is_better=False if arguments.higher_is_better else None,
            baseline=arguments.baseline,
            target=arguments.target,
        )
        text = render(table, arguments.format)
        if arguments.output is None:
            sys.stdout.write(text)
        else:
            _write(Path(arguments.output), text)
        if arguments.require_better_than is not None:
            require_better_than(table, arguments.require_better_than)
    except SyncopateError as exc:
        print(f"compare: {exc}", file=sys.stderr)
        return 1 if isinstance(exc, NotBetterError) else 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m syncopate compare", description="Print one table of trainings, finished or not."
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a sweep.json or results.json, a folder with one of them, or the folder of any RETURNN training",
    )
    parser.add_argument("--format", choices=list(FORMATS), default="text", help="default: text")
    parser.add_argument("--baseline", metavar="NAME", help="the row to compare with, instead of that of the sweep")
    parser.add_argument("--target", metavar="X", type=float, help="the score to reach, instead of that of the sweep")
    parser.add_argument(
        "--score",
        metavar="NAME",
        help="the score to compare by, instead of that of the sweep; without a sweep the first dev loss",
    )
    parser.add_argument("--higher-is-better", action="store_true", help="the highest score is best")
    parser.add_argument("--output", metavar="FILE", help="write the table there instead of printing it")
    parser.add_argument(
        "--require-better-than",
        metavar="NAME",
        help="end with exit code 1 unless every row is better than this reference of the sweep",
    )
    return parser


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as exc:
        raise SyncopateError(f"{path}: the table cannot be written: {exc.strerror or exc}") from exc
