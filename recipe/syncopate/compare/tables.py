"""
The table of one declared sweep, from the folders of its trainings, as text or as files in every format.

It may be asked for at any time, while trainings wait, run or have failed: what cannot be read of one training is said
in its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncopate.compare.measurement import Measurement, measure
from syncopate.compare.references import references_or_problem
from syncopate.compare.render import FORMATS, render
from syncopate.compare.table import Table, build_table
from syncopate.errors import ReadError
from syncopate.returnn_io.write import write_text
from syncopate.sweep.record import SweepRecord

FILES = {"text": "table.txt", "markdown": "table.md", "csv": "table.csv", "json": "table.json"}


def measure_all(sweep: SweepRecord, *, base: Path) -> list[Measurement]:
    """
    :param sweep: what was declared
    :param base: the folder that its directories are relative to
    :return: what is known of each training now
    """
    return [measure(run, base=base, score=sweep.score, lower_is_better=sweep.lower_is_better) for run in sweep.runs]


def table_of(sweep: SweepRecord, measured: Sequence[Measurement], *, base: Path) -> Table:
    """
    :param sweep: what was declared
    :param measured: of its trainings
    :param base: the folder that the path of its references is relative to
    :return: the table; references that cannot be read are named in its footer
    :raises ReadError: if the score or the baseline is nowhere to be found
    """
    references, problem = references_or_problem(sweep.references, base=base)
    return build_table(sweep, measured, references, references_problem=problem)


def live_text(sweep: SweepRecord, *, base: Path) -> str:
    """
    :param sweep: what was declared
    :param base: the folder that its directories are relative to
    :return: the table as it is now; if there can be none, because a name is wrong, the text says why, since an
        exception in a report would end the manager
    """
    try:
        return render(table_of(sweep, measure_all(sweep, base=base), base=base), "text")
    except ReadError as exc:
        return f"There is no table of {sweep.prefix}: {exc}\n"


def write_tables(
    sweep: SweepRecord, measured: Sequence[Measurement], *, base: Path, directory: Path
) -> dict[str, Path]:
    """
    :param sweep: what was declared
    :param measured: of its trainings
    :param base: the folder that the path of its references is relative to
    :param directory: where the files go
    :return: the files by format
    :raises ReadError: if the score or the baseline is nowhere to be found
    """
    table = table_of(sweep, measured, base=base)
    directory.mkdir(parents=True, exist_ok=True)
    files = {format: directory / FILES[format] for format in FORMATS}
    for format, path in files.items():
        write_text(path, render(table, format))
    return files
