"""The final table of a sweep, as a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sisyphus import Job, Task, tk

from syncopate.compare.measurement import Measurement
from syncopate.compare.tables import write_tables
from syncopate.sweep.record import SweepRecord


class TableJob(Job):
    """
    Compares the trainings of a sweep. Renderings of the same numbers lie beside each other.

    :param results: ``results.json`` of each training
    :param sweep: what was declared, ``dataclasses.asdict`` of a :class:`SweepRecord` without runs
    :param references: JSON of scores to compare with
    """

    def __init__(self, *, results: Sequence[tk.Path], sweep: dict[str, Any], references: tk.Path | None):
        self.results = list(results)
        self.sweep = sweep
        self.references = references
        self.out_directory = self.output_path("table", directory=True)

    def tasks(self) -> Iterator[Task]:
        """One short task."""
        yield Task("run", mini_task=True)

    def run(self) -> None:
        """Reads the results and writes the table in every format."""
        paths = [path.get_path() for path in self.results]
        measured = [
            Measurement.from_dict(json.loads(Path(path).read_text(encoding="utf-8")), source=path) for path in paths
        ]
        references = self.references.get_path() if self.references else None
        sweep = SweepRecord(**{**self.sweep, "references": references, "runs": tuple(one.run for one in measured)})
        write_tables(sweep, measured, base=Path.cwd(), directory=Path(self.out_directory.get_path()))
