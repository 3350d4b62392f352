"""Where things are in the folder of one training, which looks the same for a Sisyphus job and a local run."""

from __future__ import annotations

from pathlib import Path

LEARNING_RATE_FILES = ("output/learning_rates", "work/learning_rates", "learning_rates")
"""Where RETURNN's learning-rate file is looked for, first match wins: a finished training has it in both folders, a
running one only in ``work``, a cleaned job only in ``output``, and a training that was started by hand in its own."""


def find_learning_rates(directory: Path) -> Path | None:
    """
    :param directory: of one training
    :return: its learning-rate file, None if there is none yet
    """
    return next((path for name in LEARNING_RATE_FILES if (path := directory / name).is_file()), None)
