"""What a reader has to know about single rows: trainings that do not count, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from syncopate.compare.measurement import Measurement
from syncopate.compare.row import Shown, trial_text


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


def row_notes(trainings: Sequence[Measurement], shown: Shown, common_passes: float) -> list[str]:
    """
    :param trainings: of one row
    :param shown: the trial that is shown
    :param common_passes: data passes of the row to compare with
    :return: its notes
    """
    run = shown.trial[0].run
    notes = []
    if run.data_passes != common_passes:
        notes.append(f"trained on {run.data_passes:g} data passes instead of {common_passes:g}: not the same budget")
    if shown.counted and not shown.is_final:
        notes.append("not finished: the score is that of the epochs so far")
    if 0 < len(shown.counted) < len(shown.trial):
        notes.append(f"{run.row!r}: the mean is over {len(shown.counted)} of {len(shown.trial)} seeds")
    if shown.counted and run.num_ranks > 1 and shown.counted[0].score.startswith("train_"):
        notes.append("the score is that of rank 0 alone, on its own part of the training data")
    notes += [
        f"{_name(training, trainings)}: {training.state}: {training.reason or 'no reason is known'}"
        for training in trainings
        if training.state not in ("finished", "running", "waiting")
    ]
    warnings = dict.fromkeys(warning for training in trainings for warning in training.warnings)
    return notes + [f"{run.row!r}: {warning}" for warning in warnings]


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
