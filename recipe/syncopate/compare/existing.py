"""Folders of trainings that no sweep has made: Sisyphus jobs, or RETURNN started by hand. Only files are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from syncopate.compare.measurement import Measurement, measure
from syncopate.errors import ReadError
from syncopate.returnn_io.learning_rates import is_derived
from syncopate.returnn_io.run_folder import find_learning_rates
from syncopate.sweep.record import NOT_RECORDED, RunRecord

CONFIG_FILE = "output/returnn.config"
"""What tells the folder of a training job before its first epoch has ended."""

_DEV_SCORES = ("dev_loss", "dev_score")
"""How the names of scores begin that trainings may be compared by, unasked; the latter is from older RETURNN."""


def is_training(folder: Path) -> bool:
    """
    :param folder: any
    :return: whether it looks like that of a training
    """
    return find_learning_rates(folder) is not None or (folder / CONFIG_FILE).is_file()


def measure_existing(folders: Sequence[Path], *, taken: Collection[str]) -> list[Measurement]:
    """
    :param folders: of one training each
    :param taken: names of other rows
    :return: one row each, not yet seen by any score; called like its folder, with as many folders above it as tell all
        apart
    """
    directories = [os.path.abspath(folder) for folder in folders]
    return [
        measure(_record(name, directory), base=Path("/"), score="", lower_is_better=True)
        for name, directory in zip(_names(directories, taken), directories, strict=True)
    ]


def guess_score(trainings: Sequence[Measurement]) -> tuple[str, str]:
    """
    :param trainings: that were there before
    :return: a score to compare them by, of which lower is better, and the sentence that says how it was found
    :raises ReadError: if there is none
    """
    known = [training for training in trainings if training.epochs]
    if not known:
        raise ReadError("no training has a complete epoch yet to guess a score from; name one with --score")
    for training in known:
        names = dict.fromkeys(name for epoch in training.epochs for name in epoch.scores)
        for begin in _DEV_SCORES:
            for name in names:
                if name.startswith(begin) and not is_derived(name):
                    file = f"{training.run.directory}/{training.source}"
                    return (
                        name,
                        f"No score was named: {name} is the first of a dev set in {file}; --score names another.",
                    )
    raise ReadError(
        f"no score was named, and there is none that starts with {' or '.join(_DEV_SCORES)}; name one with --score:"
        f" {sorted({name for training in known for name in training.score_names})}"
    )


def _names(directories: Sequence[str], taken: Collection[str]) -> list[str]:
    parts = [Path(directory).parts for directory in directories]
    names: list[str] = []
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = [str(Path(*part[-depth:])) for part in parts]
        if len({*names, *taken}) == len(names) + len(set(taken)):
            break
    return names


def _record(name: str, directory: str) -> RunRecord:
    return RunRecord(
        row=name,
        trial=0,
        seed=None,
        options={},
        scheme=None,
        scheme_text=NOT_RECORDED,
        levels=(),
        epoch_end=None,
        num_nodes=None,
        num_ranks=None,
        device=None,
        num_epochs=None,
        data_passes=None,
        dataset_distribution=None,
        accum_grad=None,
        max_seqs=None,
        directory=directory,
        existing=True,
    )
