"""What a reader has to know about single rows: trainings that do not count, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from syncopate.compare.measurement import Measurement
from syncopate.compare.trial import Shown, trial_text
from syncopate.sweep.record import NOT_RECORDED


class NoteBook:
    """Gives every different note a letter, in the order they come."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def letter(self, text: str) -> str:
        """
        :param text: of a note
        :return: its letter
        """
        for letter, known in self.texts.items():
            if known == text:
                return letter
        letter = _letter(len(self.texts))
        self.texts[letter] = text
        return letter


def row_notes(
    trainings: Sequence[Measurement], shown: Shown, *, common_passes: float | None, baseline: Shown | None
) -> list[str]:
    """
    :param trainings: of one row
    :param shown: the trial that is shown
    :param common_passes: data passes of the row to compare with; None if no row records them
    :param baseline: what its difference is to; None if it has none
    :return: its notes
    """
    run = shown.trial[0].run
    notes = _not_recorded_notes(shown, baseline)
    if None not in (run.data_passes, common_passes) and run.data_passes != common_passes:
        notes.append(f"trained on {run.data_passes:g} data passes instead of {common_passes:g}: not the same budget")
    if shown.counted and not shown.is_final:
        known = "not known to be finished" if run.existing and run.num_epochs is None else "not finished"
        notes.append(f"{known}: the score is that of the epochs so far")
    if 0 < len(shown.counted) < len(shown.trial):
        notes.append(f"{run.row!r}: the mean is over {len(shown.counted)} of {len(shown.trial)} seeds")
    if shown.counted and (shown.counted[0].num_ranks or 0) > 1 and shown.counted[0].score.startswith("train_"):
        notes.append("the score is that of rank 0 alone, on its own part of the training data")
    notes += [
        f"{_name(training, trainings)}: {training.state}: {training.reason or 'no reason is known'}"
        for training in trainings
        if training.state not in ("finished", "running", "waiting")
    ]
    notes += [
        f"{_name(training, trainings)}: {name}: {score.problem}"
        for training in trainings
        for name, score in training.user_scores.items()
        if score.problem is not None
    ]
    warnings = dict.fromkeys(warning for training in trainings for warning in training.warnings)
    return notes + [f"{run.row!r}: {warning}" for warning in warnings]


def _not_recorded_notes(shown: Shown, baseline: Shown | None) -> list[str]:
    """:return: what cannot be compared, because nobody wrote it down when the training was made"""
    notes = []
    if unknown := _not_recorded(shown.trial[0]):
        notes.append(
            f"it was there before, and these are not recorded of it: {', '.join(unknown)}; whether they are the same as"
            " in other rows is not known"
        )
    if baseline is not None and shown.counted and baseline.counted:
        for other in (shown.trial[0], baseline.trial[0]):
            if _not_recorded(other):
                notes.append(f"the difference may also come from what is not recorded of {other.run.row!r}")
    return notes


def _not_recorded(training: Measurement) -> list[str]:
    run = training.run
    if not run.existing:
        return []
    facts = {
        "what it synchronises": None if run.scheme_text == NOT_RECORDED else run.scheme_text,
        "nodes": run.num_nodes,
        "ranks": training.num_ranks,
        "device": run.device,
        "epochs asked for": run.num_epochs,
        "data passes": run.data_passes,
        "sequences per update": None if run.accum_grad is None or run.max_seqs is None else run.max_seqs,
    }
    return [name for name, value in facts.items() if value is None]


def _name(training: Measurement, trainings: Sequence[Measurement]) -> str:
    """:return: which training of the row it is, as exactly as needed"""
    name = repr(training.run.row)
    if len({other.run.trial for other in trainings}) > 1:
        name += f" trial {trial_text(training)}"
    if len({other.run.seed for other in trainings}) > 1:
        name += f" seed {'of the config' if training.run.seed is None else training.run.seed}"
    return name


def _letter(index: int) -> str:
    """:return: a, b, ..., z, aa, ab, ..."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, len(ascii_lowercase))
        letters = ascii_lowercase[rest] + letters
    return letters
