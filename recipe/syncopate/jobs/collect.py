"""The numbers of one training, as a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sisyphus import Job, Task, tk

from syncopate.compare.measurement import measure
from syncopate.returnn_io.write import write_text
from syncopate.sweep.record import RunRecord


class CollectJob(Job):
    """
    Reads a finished training's files into ``results.json``.

    :param learning_rates: RETURNN's learning-rate file, the training's ``out_learning_rates``
    :param record: what was declared, ``dataclasses.asdict`` of a :class:`RunRecord`; its directory is not used
    :param score: what checkpoints are compared by
    :param lower_is_better: whether a lower score is better
    """

    def __init__(self, *, learning_rates: tk.Path, record: dict[str, Any], score: str, lower_is_better: bool):
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
        record = RunRecord.from_dict({**self.record, "directory": str(directory)}, source="job")
        measured = measure(record, base=directory, score=self.score, lower_is_better=self.lower_is_better)
        write_text(self.out_results.get_path(), measured.to_json())
