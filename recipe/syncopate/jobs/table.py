"""The final table of a sweep, as a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sisyphus import Job, Task, tk

from syncopate.compare.measurement import Measurement, measure
from syncopate.compare.tables import write_tables
from syncopate.jobs.collect import with_paths
from syncopate.sweep.record import RunRecord, SweepRecord


class TableJob(Job):
    """
    Compares the trainings of a sweep. Renderings of the same numbers lie beside each other.

    :param results: ``results.json`` of each training of the sweep
    :param existing: records of trainings that were there before, ``dataclasses.asdict`` of each
    :param user_scores: variables of their scores by row, which the records name; the job waits for them
    :param sweep: what was declared, ``dataclasses.asdict`` of a :class:`SweepRecord` without runs
    :param rows: names of all rows, in order
    :param references: JSON of scores to compare with
    """

    def __init__(
        self,
        *,
        results: Sequence[tk.Path],
        existing: Sequence[dict[str, Any]],
        user_scores: dict[str, dict[str, Any]],
        sweep: dict[str, Any],
        rows: Sequence[str],
        references: tk.Path | None,
    ):
        self.results = list(results)
        self.existing = list(existing)
        self.user_scores = user_scores
        self.sweep = sweep
        self.rows = list(rows)
        self.references = references
        self.out_directory = self.output_path("table", directory=True)

    def tasks(self) -> Iterator[Task]:
        """One short task."""
        yield Task("run", mini_task=True)

    def run(self) -> None:
        """Reads the results and writes the table in every format."""
        measured = [_read(path.get_path()) for path in self.results]
        for plain in self.existing:
            record = RunRecord.from_dict(with_paths(plain, self.user_scores.get(plain["row"], {})), source="job")
            measured.append(
                measure(
                    record,
                    base=Path.cwd(),
                    score=self.sweep["score"],
                    lower_is_better=self.sweep["lower_is_better"],
                )
            )
        measured.sort(key=lambda one: self.rows.index(one.run.row))
        references = self.references.get_path() if self.references else None
        sweep = SweepRecord(**{**self.sweep, "references": references, "runs": tuple(one.run for one in measured)})
        write_tables(sweep, measured, base=Path.cwd(), directory=Path(self.out_directory.get_path()))


def _read(path: str) -> Measurement:
    return Measurement.from_dict(json.loads(Path(path).read_text(encoding="utf-8")), source=path)
