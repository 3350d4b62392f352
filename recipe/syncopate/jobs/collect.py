"""The numbers of one training, as a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from sisyphus import Job, Task, tk

from syncopate.compare.measurement import measure
from syncopate.returnn_io.write import write_text
from syncopate.sweep.record import RunRecord


def without_paths(record: dict[str, Any]) -> dict[str, Any]:
    """:return: a record of a training for a job's id, in which it must not matter where files of scores are"""
    if "user_scores" not in record:
        return record
    return {**record, "user_scores": [{**score, "path": None} for score in record["user_scores"]]}


def with_paths(record: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    """:return: the record with the places of its scores, which the job waited for"""
    if "user_scores" not in record:
        return record
    scores = [
        {**score, "path": os.path.abspath(variables[score["name"]].get_path())} if score["name"] in variables else score
        for score in record["user_scores"]
    ]
    return {**record, "user_scores": scores}


class CollectJob(Job):
    """
    Reads a finished training's files into ``results.json``.

    :param learning_rates: RETURNN's learning-rate file, the training's ``out_learning_rates``
    :param record: what was declared, ``dataclasses.asdict`` of a :class:`RunRecord`; its directory is not used
    :param score: what checkpoints are compared by
    :param lower_is_better: whether a lower score is better
    :param user_scores: variables of the user's own scores, which the record names; the job waits for them
    """

    __sis_hash_exclude__: ClassVar[dict[str, Any]] = {"user_scores": {}}

    def __init__(
        self,
        *,
        learning_rates: tk.Path,
        record: dict[str, Any],
        score: str,
        lower_is_better: bool,
        user_scores: dict[str, Any],
    ):
        self.user_scores = user_scores
        self.learning_rates = learning_rates
        self.record = record
        self.score = score
        self.lower_is_better = lower_is_better
        self.out_results = self.output_path("results.json")

    def tasks(self) -> Iterator[Task]:
        """One short task."""
        yield Task("run", mini_task=True)

    def run(self) -> None:
        """Reads and writes."""
        directory = Path(self.learning_rates.get_path()).parent.parent
        plain = with_paths({**self.record, "directory": str(directory)}, self.user_scores)
        record = RunRecord.from_dict(plain, source="job")
        measured = measure(record, base=directory, score=self.score, lower_is_better=self.lower_is_better)
        write_text(self.out_results.get_path(), measured.to_json())
