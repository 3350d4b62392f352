"""
The columns of the table, defined once for all formats: CSV and JSON use the key, with its unit, and the full value;
text and Markdown use the heading and the rounded value. Scores that the recipe names add columns of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncopate.compare.row import Row
from syncopate.compare.table import Table
from syncopate.compare.user_scores import UserScoreHead

SCORES = "scores"
COST = "cost"


def _always(table: Table) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Column:
    """
    :param key: in CSV and JSON; also where the row says why the value is missing
    :param get: how to find the value in a row; None for the field that is called like the key
    :param heading: for readers
    :param block: "scores" or "cost": in which part of a text table it stands
    :param show: the rounded value of a row that has one; None leaves the column to CSV and JSON
    :param is_number: whether it is aligned to the right
    :param applies: whether readers see it in this table; CSV and JSON always have it
    """

    key: str
    heading: str
    block: str = SCORES
    get: Callable[[Row], Any] | None = None
    show: Callable[[Row], str] | None = None
    is_number: bool = True
    applies: Callable[[Table], bool] = _always

    def value(self, row: Row) -> Any:
        """:return: the full value, None if it is missing"""
        return getattr(row, self.key) if self.get is None else self.get(row)

    def text(self, row: Row) -> str:
        """:return: for readers: the rounded value, or the word that says why there is none"""
        if self.value(row) is None:
            return row.missing[self.key]
        return str(self.value(row)) if self.show is None else self.show(row)


def score_text(value: float | None) -> str:
    """
    :param value: a score
    :return: rounded
    """
    return "" if value is None else f"{value:.4f}"


def _count(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _seeds(row: Row) -> str:
    return f"{row.score_seeds} of {row.seeds}" if 0 < row.score_seeds < row.seeds else str(row.seeds)


def _epochs(row: Row) -> str:
    return str(row.epochs_done) if row.epochs_asked is None else f"{row.epochs_done}/{row.epochs_asked}"


def _syncs(row: Row) -> str:
    pairs = zip(row.syncs_observed or (), row.syncs_planned or (), strict=True)
    return ", ".join(f"{observed:,}/{planned:,}" for observed, planned in pairs)


def _has_baseline(table: Table) -> bool:
    return table.baseline is not None


def _has_target(table: Table) -> bool:
    return table.target is not None


def _has_trials(table: Table) -> bool:
    return any(row.trials > 1 for row in table.rows)


def _never(table: Table) -> bool:
    return False


COLUMNS = (
    Column(key="name", heading="row", is_number=False),
    Column(key="existing", heading="was there before", is_number=False, applies=_never),
    Column(key="ranks", heading="ranks", is_number=False),
    Column(key="trials", heading="trials"),
    Column(key="best_trial", heading="best trial", is_number=False, applies=_has_trials),
    Column(key="seeds", heading="seeds", show=_seeds),
    Column(key="score", heading="score", show=lambda row: score_text(row.score)),
    Column(key="score_sd", heading="sd", show=lambda row: score_text(row.score_sd)),
    Column(key="score_seeds", heading="seeds that count", applies=_never),
    Column(key="last_score", heading="last", show=lambda row: score_text(row.last_score)),
    Column(
        key="difference",
        heading="difference",
        show=lambda row: f"{row.difference:+.4f}",
        applies=_has_baseline,
    ),
    Column(key="state", heading="state", is_number=False),
    Column(key="notes", heading="notes", show=lambda row: ", ".join(row.notes), is_number=False),
    Column(key="syncs", heading="synchronises", block=COST, is_number=False),
    Column(key="epochs_done", heading="epochs", block=COST, show=_epochs),
    Column(key="epochs_asked", heading="epochs asked for", block=COST, applies=_never),
    Column(key="data_passes", heading="data passes", block=COST, show=lambda row: f"{row.data_passes:g}"),
    Column(key="updates", heading="updates", block=COST, show=lambda row: _count(row.updates)),
    Column(
        key="samples_upper_bound", heading="max. samples", block=COST, show=lambda row: _count(row.samples_upper_bound)
    ),
    Column(key="syncs_observed", heading="syncs of planned", block=COST, show=_syncs),
    Column(key="syncs_planned", heading="syncs planned", block=COST, applies=_never),
    Column(key="train_time_s", heading="train s", block=COST, show=lambda row: _seconds(row.train_time_s)),
    Column(
        key="target_epoch",
        heading="target at epoch",
        block=COST,
        show=lambda row: _count(row.target_epoch),
        applies=_has_target,
    ),
    Column(
        key="target_train_time_s",
        heading="target after s",
        block=COST,
        show=lambda row: _seconds(row.target_train_time_s),
        applies=_has_target,
    ),
)


def columns_of(table: Table) -> list[Column]:
    """
    :param table: that is shown
    :return: all its columns; those of the scores that the recipe names stand before the state
    """
    before = [column.key for column in COLUMNS].index("state")
    named = [column for head in table.user_scores for column in _user_score_columns(head)]
    return [*COLUMNS[:before], *named, *COLUMNS[before:]]


def columns_for_readers(table: Table, block: str | None = None) -> list[Column]:
    """
    :param table: that is shown
    :param block: only those of this part, headed by the row's name
    :return: the columns
    """
    seen = [column for column in columns_of(table) if column.applies(table)]
    return seen if block is None else [column for column in seen if column.block == block or column.key == "name"]


def _user_score_columns(head: UserScoreHead) -> tuple[Column, Column]:
    name = head.name

    def show(row: Row) -> str:
        value, count = row.user_scores[name], row.user_score_seeds[name]
        text = "" if value is None else f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4f}"
        return text if count == row.seeds else f"{text} ({count} of {row.seeds})"

    return (
        Column(key=head.key, heading=name, get=lambda row: row.user_scores[name], show=show),
        Column(
            key=head.seeds_key,
            heading=f"seeds with {name}",
            get=lambda row: row.user_score_seeds[name],
            applies=_never,
        ),
    )
