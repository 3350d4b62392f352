"""Progress of a sweep while it trains, from RETURNN's learning-rate files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from syncopate.errors import ReadError
from syncopate.returnn_io.learning_rates import EpochScores, read_learning_rates
from syncopate.returnn_io.run_folder import find_learning_rates
from syncopate.sweep.record import RunRecord, SweepRecord
from syncopate.sweep.run import run_name


class Progress:
    """
    Prints a line whenever a training has done another epoch.

    :param sweep: what is trained
    :param base: what the directories in it are relative to
    :param out: takes each line
    :param clock: seconds, monotonic
    """

    def __init__(
        self,
        sweep: SweepRecord,
        *,
        base: Path,
        out: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.runs = tuple(run for run in sweep.runs if not run.existing)
        self.score = sweep.score
        self.base = base
        self.out = out
        self.clock = clock
        self.started = clock()
        self.unreadable: set[str] = set()
        self.done = [len(self._epochs_done(run)) for run in self.runs]
        self.done_before = sum(self.done)

    def poll(self) -> None:
        """Prints what is new."""
        for index, run in enumerate(self.runs):
            done = self._epochs_done(run)
            if len(done) <= self.done[index]:
                continue
            self.done[index] = len(done)
            last = done[-1]
            name = run_name(run.row, run.options, trial=run.trial, seed=run.seed)
            self.out(
                f"[{index + 1}/{len(self.runs)}] {name}: epoch {last.epoch}/{run.num_epochs},"
                f" {self.score} {last.scores[self.score]:.4f}, {self._time_left()} left"
            )

    def _epochs_done(self, run: RunRecord) -> list[EpochScores]:
        path = find_learning_rates(self.base / run.directory)
        if path is None:
            return []
        try:
            rates = read_learning_rates(path)
        except ReadError as exc:
            # Progress is no place to fail; the table names the training as unreadable.
            if str(exc) not in self.unreadable:
                self.unreadable.add(str(exc))
                self.out(str(exc))
            return []
        return [epoch for epoch in rates.complete if self.score in epoch.scores]

    def _time_left(self) -> str:
        total = sum(run.num_epochs or 0 for run in self.runs)
        trained = sum(self.done) - self.done_before
        left_s = (self.clock() - self.started) / max(trained, 1) * max(total - sum(self.done), 0)
        minutes, seconds = divmod(round(left_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
