"""
The state of one training, from its marks and its epochs:

============ =========================================================================================
"finished"   all epochs that were asked for are complete
"running"    something works on it
"waiting"    nothing is there yet
"partial"    some epochs may be there, but nothing works on it
"failed"     it ended with an error
"diverged"   a score or loss was not finite, whatever the others say
"rejected"   it was trained by another number of ranks than asked for
"unreadable" a file of it is not what it should be
"absent"     it should have been there before, but nothing of it is there
============ =========================================================================================

A training that was there before is scheduled by nobody here, so it never waits; and it runs only if its marks say so.
Where it is not recorded how many epochs it was to train, only a mark makes it finished: a folder that holds nothing but
RETURNN's files is partial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from syncopate.compare.folder import FolderState
from syncopate.returnn_io.learning_rates import EpochScores, LearningRates, is_derived
from syncopate.sweep.record import RunRecord

COUNTED_STATES = ("finished", "running", "partial")
"""States in which a score may be shown; those of other trainings never are."""
WORTHLESS_STATES = ("failed", "diverged", "rejected", "unreadable")
"""States in which nothing that was made of the training may enter a mean, not even a score of the recipe's own."""


def is_asked_for(epoch: EpochScores, run: RunRecord) -> bool:
    """
    :param epoch: of the learning-rate file
    :param run: what was declared
    :return: whether it is not after the last epoch that was asked for
    """
    return run.num_epochs is None or epoch.epoch <= run.num_epochs


def state_of(
    run: RunRecord, rates: LearningRates | None, folder: FolderState, *, epochs_done: int
) -> tuple[str, str | None]:
    """
    :param run: what was declared
    :param rates: its learning-rate file, None if there is none
    :param folder: its marks
    :param epochs_done: number of complete epochs
    :return: state and reason; what makes the scores worthless goes before what merely ended the training
    """
    trained = [epoch for epoch in rates.trained if is_asked_for(epoch, run)] if rates else []
    if worthless := _worthless(run, trained):
        return worthless
    if folder.mark == "failed":
        return ("diverged" if folder.is_nonfinite else "failed"), folder.reason
    if run.num_epochs is not None and epochs_done >= run.num_epochs:
        return "finished", None
    if folder.mark == "running":
        return "running", None
    if folder.mark == "finished":
        if run.num_epochs is not None:
            return "partial", f"it ended, but only {epochs_done} of {run.num_epochs} epochs are complete"
        return ("finished", None) if epochs_done else ("partial", "it ended, but no epoch of it is complete")
    if folder.mark == "stopped":
        return "partial", folder.reason
    if run.existing:
        return _existing_without_mark(trained, folder)
    if trained:
        return "partial", "nothing in its folder says that it is being trained"
    return "waiting", folder.reason


def _worthless(run: RunRecord, trained: Sequence[EpochScores]) -> tuple[str, str] | None:
    for epoch in trained:
        if None not in (epoch.world_size, run.num_ranks) and epoch.world_size != run.num_ranks:
            return "rejected", f"epoch {epoch.epoch} was trained by {epoch.world_size} ranks, not by {run.num_ranks}"
    for epoch in trained:
        if epoch.is_diverged:
            name, value = next(
                (name, value)
                for name, value in epoch.scores.items()
                if not math.isfinite(value) and not is_derived(name)
            )
            return "diverged", f"epoch {epoch.epoch}: {name} is {value}"
    return None


def _existing_without_mark(trained: Sequence[EpochScores], folder: FolderState) -> tuple[str, str | None]:
    if not folder.is_there:
        return "absent", folder.reason
    if not trained:
        return "absent", "its folder has no epoch of it, and no mark that it was started"
    return "partial", "nothing in its folder says whether it has ended"
