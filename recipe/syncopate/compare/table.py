"""The table as numbers and where they come from; how it looks is decided by :mod:`~syncopate.compare.render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syncopate.compare.footer import footer_sentences
from syncopate.compare.measurement import Measurement
from syncopate.compare.notes import NoteBook, row_notes
from syncopate.compare.references import Reference
from syncopate.compare.row import Row, summarise
from syncopate.compare.trial import Shown, choose_trial, mean_score
from syncopate.compare.user_scores import UserScoreHead, user_score_heads
from syncopate.errors import ReadError, did_you_mean
from syncopate.sweep.record import SweepRecord
from syncopate.version import __version__

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Table:
    """
    :param title: of the sweep
    :param score: the score rows are compared by
    :param lower_is_better: which end of it is best
    :param baseline: the row all others are compared with
    :param target: score to reach
    :param rows: in the order of the sweep; every row of the sweep is there
    :param notes: by the letter that rows refer to
    :param footer: sentences
    :param references: scores to compare with
    :param user_scores: the scores that the recipe names, in the order of their columns
    :param version: of Syncopate, that made it
    :param format: of this record
    """

    title: str
    score: str
    lower_is_better: bool
    baseline: str | None
    target: float | None
    rows: tuple[Row, ...]
    notes: Mapping[str, str]
    footer: tuple[str, ...]
    references: Mapping[str, Reference] = field(default_factory=dict)
    user_scores: tuple[UserScoreHead, ...] = ()
    version: str = __version__
    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        """:return: plain data; scores that the recipe names stand in each row under the keys of their columns"""
        plain = asdict(self)
        for row in plain["rows"]:
            values, seeds = row.pop("user_scores"), row.pop("user_score_seeds")
            for head in self.user_scores:
                row[head.key], row[head.seeds_key] = values[head.name], seeds[head.name]
        return plain


def build_table(
    sweep: SweepRecord,
    measurements: Sequence[Measurement],
    references: Mapping[str, Reference] | None = None,
    *,
    references_problem: str | None = None,
    remarks: Sequence[str] = (),
) -> Table:
    """
    :param sweep: what was declared; its rows are the rows of the table, in that order
    :param measurements: of its trainings
    :param references: scores to compare with
    :param references_problem: why they could not be read, for the footer
    :param remarks: further sentences for the footer
    :return: the table
    :raises ReadError: if the baseline is no row, or if the score is in no training while others are
    """
    names = list(dict.fromkeys(run.row for run in sweep.runs))
    if sweep.baseline is not None and sweep.baseline not in names:
        raise ReadError(
            f"the baseline {sweep.baseline!r} is no row{did_you_mean(sweep.baseline, names)}; rows are {names}"
        )
    check_score(sweep.score, measurements)
    by_row = {name: [found for found in measurements if found.run.row == name] for name in names}
    if missing := [name for name, found in by_row.items() if not found]:
        raise ReadError(f"no training of the rows {missing} was measured, not even as waiting")
    shown = {name: choose_trial(found, lower_is_better=sweep.lower_is_better) for name, found in by_row.items()}
    baseline = shown[sweep.baseline] if sweep.baseline is not None else None
    heads = user_score_heads(sweep.runs)
    book = NoteBook()
    rows = tuple(
        summarise(
            by_row[name],
            shown[name],
            baseline_score=mean_score(baseline.counted) if baseline and baseline.counted else None,
            is_baseline=name == sweep.baseline,
            has_baseline=sweep.baseline is not None,
            target=sweep.target,
            user_scores=heads,
            notes=tuple(
                book.letter(text)
                for text in row_notes(
                    by_row[name],
                    shown[name],
                    common_passes=_common_passes(sweep, shown),
                    baseline=None if name == sweep.baseline else baseline,
                )
            ),
        )
        for name in names
    )
    return Table(
        title=sweep.prefix,
        score=sweep.score,
        lower_is_better=sweep.lower_is_better,
        baseline=sweep.baseline,
        target=sweep.target,
        rows=rows,
        notes=book.texts,
        footer=(*footer_sentences(sweep, rows, shown, references, references_problem=references_problem), *remarks),
        references=references or {},
        user_scores=heads,
    )


def _common_passes(sweep: SweepRecord, shown: Mapping[str, Shown]) -> float | None:
    """:return: data passes to compare with: of the baseline, else of the first row where they are recorded"""
    rows = [shown[sweep.baseline]] if sweep.baseline is not None else []
    passes = (row.trial[0].run.data_passes for row in [*rows, *shown.values()])
    return next((count for count in passes if count is not None), None)


def check_score(score: str, measurements: Sequence[Measurement]) -> None:
    """
    A training that still runs, one that ended before its dev set was evaluated, or one without a dev set, need not have
    the score; but if others have scores of a dev set and none has this one, the name is wrong.

    :param score: the score rows are compared by
    :param measurements: all trainings
    :raises ReadError: if no training reports it, naming what they report
    """
    names = sorted({name for found in measurements for name in found.score_names})
    if not names or score in names:
        return
    may_come = any(found.state != "finished" for found in measurements)
    if may_come and all(name.startswith("train_") for name in names):
        return
    raise ReadError(f"no training reports the score {score!r}{did_you_mean(score, names)}; they report {names}")
