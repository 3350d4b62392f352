"""A table as text, Markdown, CSV or JSON. Nothing is computed here and no file is read."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

from syncopate.compare.columns import COST, SCORES, columns_for_readers, columns_of
from syncopate.compare.layout import grid, paragraph
from syncopate.compare.row import Row
from syncopate.compare.table import Table
from syncopate.errors import ReadError, did_you_mean


def render(table: Table, format: str = "text") -> str:
    """
    :param table: the numbers
    :param format: one of :data:`FORMATS`
    :return: the whole output, ending in a newline
    :raises ReadError: on an unknown format
    """
    if format not in FORMATS:
        raise ReadError(f"format must be one of {list(FORMATS)}, got {format!r}{did_you_mean(format, FORMATS)}")
    return FORMATS[format](table)


def _text(table: Table) -> str:
    parts = [paragraph(_title(table))]
    for block in (SCORES, COST):
        columns = columns_for_readers(table, block)
        parts.append(
            grid(
                [column.heading for column in columns],
                [[column.text(row) for column in columns] for row in table.rows],
                right=[column.is_number for column in columns],
            )
        )
    if table.notes:
        parts.append("\n".join(paragraph(text, label=f"({letter}) ") for letter, text in table.notes.items()))
    parts.append("\n".join(paragraph(sentence, label="- ") for sentence in table.footer))
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    columns = columns_for_readers(table)
    lines = [
        f"**{_escaped(_title(table))}**",
        "",
        _markdown_line([column.heading for column in columns]),
        _markdown_line(["--:" if column.is_number else ":--" for column in columns]),
        *(_markdown_line([_escaped(column.text(row)) for column in columns]) for row in table.rows),
        "",
    ]
    if table.notes:
        lines += [*(f"- ({letter}) {_escaped(text)}" for letter, text in table.notes.items()), ""]
    lines += [f"- {_escaped(sentence)}" for sentence in table.footer]
    return "\n".join(lines) + "\n"


def _csv(table: Table) -> str:
    """
    One line per row, so that it loads as a data frame: a number that is missing is an empty cell, and the column
    ``missing`` says why; notes are written out.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = columns_of(table)
    writer.writerow(["score_name", *(column.key for column in columns), "missing"])
    for row in table.rows:
        missing = "; ".join(f"{key}: {word}" for key, word in row.missing.items())
        writer.writerow([table.score, *(_csv_cell(table, row, column.value(row)) for column in columns), missing])
    return out.getvalue()


def _csv_cell(table: Table, row: Row, value: Any) -> Any:
    if value is row.notes:
        return "; ".join(table.notes[letter] for letter in row.notes)
    return ";".join(map(str, value)) if isinstance(value, tuple) else value


def _json(table: Table) -> str:
    return json.dumps(table.as_dict(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {"text": _text, "markdown": _markdown, "csv": _csv, "json": _json}


def _title(table: Table) -> str:
    score = f"{table.score} ({'lower' if table.lower_is_better else 'higher'} is better)"
    return f"{table.title}: {score}" if table.title else score


def _markdown_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*|<\[\]])", r"\\\1", " ".join(text.split()))
