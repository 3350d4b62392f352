"""
How many updates and synchronisations a training made, computed from its micro-batches: nothing here is measured.

RETURNN counts periods per epoch: a level of period ``every`` fires after every ``every``-th update of an epoch, and
what is left at the end of the epoch fires nothing. Micro-batches that are left over when an epoch ends make no update.
Each level is counted on its own: where an outer level that averages parameters fires, its average takes the place of
the inner ones at that update, and both levels count it. What happens at an epoch end comes on top and is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncopate.sweep.record import LevelRecord, RunRecord

_AT_EPOCH_END: dict[str | None, str] = {
    "average": "they are still averaged at each epoch end",
    "as_is": "whether they are averaged at an epoch end depends on RETURNN's behavior_version",
    None: "nothing combines them at an epoch end either",
}


@dataclass(frozen=True, kw_only=True)
class SyncCount:
    """
    Synchronisations of one level in the complete epochs, computed.

    :param group: as in :class:`~syncopate.sweep.record.LevelRecord`
    :param kind: as there
    :param every: as there
    :param planned: as often as the period fits into all updates together; None where the updates are not known
    :param observed: as often as it fits into the updates of each epoch; None where the updates are not known
    """

    group: str
    kind: str
    every: int
    planned: int | None
    observed: int | None


def updates_per_epoch(micro_batches: Sequence[int | None], *, accum_grad: int | None) -> list[int] | None:
    """
    :param micro_batches: of rank 0, per complete epoch
    :param accum_grad: micro-batches per update
    :return: updates per epoch; None if there is no epoch, or a number is not known
    """
    if not micro_batches or accum_grad is None:
        return None
    known = [count for count in micro_batches if count is not None]
    return [count // accum_grad for count in known] if len(known) == len(micro_batches) else None


def count_syncs(levels: Sequence[LevelRecord], updates: Sequence[int] | None) -> tuple[SyncCount, ...]:
    """
    :param levels: inner to outer
    :param updates: per complete epoch, see :func:`updates_per_epoch`
    :return: the counts of each level
    """
    return tuple(
        SyncCount(
            group=level.group,
            kind=level.kind,
            every=level.every,
            planned=None if updates is None else sum(updates) // level.every,
            observed=None if updates is None else sum(count // level.every for count in updates),
        )
        for level in levels
    )


def sync_warnings(run: RunRecord, updates: Sequence[int] | None) -> list[str]:
    """
    :param run: what was declared
    :param updates: per complete epoch, see :func:`updates_per_epoch`
    :return: a sentence for everything that does not happen as a reader of the scheme would expect
    """
    if updates is None:
        return []
    if 0 in updates:
        return [
            f"{updates.count(0)} of {len(updates)} epochs make no update at all: they have fewer micro-batches than the"
            f" {run.accum_grad} of one update"
        ]
    sentences = []
    for level in run.levels:
        short = [count for count in updates if count < level.every]
        if not short:
            continue
        at_end = _AT_EPOCH_END.get(run.epoch_end, f"what an epoch end does is epoch_end={run.epoch_end!r}")
        sentences.append(
            f"the level that combines {level.kind} of {level.group} every {level.every} updates never fires in"
            f" {len(short)} of {len(updates)} epochs, which have {_range(short)} updates each, since RETURNN counts"
            f' periods per epoch; {at_end}. epoch_end="view" is the mode in which the phase counts across epochs;'
            " a later version trains it"
        )
    return sentences


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
