"""One table of whatever is there, sweeps or single trainings, and what may be demanded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from syncopate.compare.columns import score_text
from syncopate.compare.read import load
from syncopate.compare.table import Table, build_table
from syncopate.errors import NotBetterError, ReadError, did_you_mean


def live_table(
    paths: str | Path | Sequence[str | Path],
    *,
    score: str | None = None,
    lower_is_better: bool | None = None,
    baseline: str | None = None,
    target: float | None = None,
) -> Table:
    """
    :param paths: a ``sweep.json``, or whatever :func:`~syncopate.compare.read.load` takes
    :param score: another score to compare by
    :param lower_is_better: which end of it is best
    :param baseline: another row to compare with
    :param target: another score to reach
    :return: the table
    :raises ReadError: if there is nothing to compare, or a name is wrong
    """
    loaded = load([paths] if isinstance(paths, str | Path) else paths, score=score, lower_is_better=lower_is_better)
    sweep = replace(
        loaded.sweep,
        baseline=loaded.sweep.baseline if baseline is None else baseline,
        target=loaded.sweep.target if target is None else target,
    )
    return build_table(
        sweep,
        loaded.measurements,
        loaded.references,
        references_problem=loaded.references_problem,
        remarks=loaded.remarks,
    )


def require_better_than(table: Table, reference_name: str) -> None:
    """
    :param table: of trainings that should have ended
    :param reference_name: a reference of the table
    :raises NotBetterError: unless every row has a score and it is better than the reference
    :raises ReadError: if there is no such reference
    """
    if reference_name not in table.references:
        known = list(table.references)
        problem = " ".join(sentence for sentence in table.footer if sentence.startswith("References: "))
        raise ReadError(
            f"there is no reference {reference_name!r}{did_you_mean(reference_name, known)}; references are {known}"
            + (f". {problem}" if problem and not known else "")
        )
    limit = table.references[reference_name].value
    wrong = [
        f"{row.name!r} ({row.state if row.score is None else score_text(row.score)})"
        for row in table.rows
        if row.score is None or not (row.score < limit if table.lower_is_better else row.score > limit)
    ]
    if wrong or not table.rows:
        raise NotBetterError(
            f"not better than {reference_name!r} ({score_text(limit)} {table.references[reference_name].unit}) in"
            f" {table.score}: {', '.join(wrong) or 'there is no row'}"
        )
