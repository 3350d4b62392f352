"""Progress of a sweep while it trains, from RETURNN's learning-rate files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from syncopate.errors import ReadError
from syncopate.returnn_io.learning_rates import EpochScores, read_learning_rates
from syncopate.returnn_io.run_folder import find_learning_rates
from syncopate.sweep.record import SweepRecord


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
        self.sweep = sweep
        self.base = base
        self.out = out
        self.clock = clock
        self.started = clock()
        self.done = [len(self._epochs_done(index)) for index in range(len(sweep.runs))]
        self.done_before = sum(self.done)

    def poll(self) -> None:
        """Prints what is new."""
        for index, run in enumerate(self.sweep.runs):
            done = self._epochs_done(index)
            if len(done) <= self.done[index]:
                continue
            self.done[index] = len(done)
            last = done[-1]
            name = run.row if run.seed is None else f"{run.row} seed {run.seed}"
            self.out(
                f"[{index + 1}/{len(self.sweep.runs)}] {name}: epoch {last.epoch}/{run.num_epochs},"
                f" {self.sweep.score} {last.scores[self.sweep.score]:.4f}, {self._time_left()} left"
            )

    def _epochs_done(self, index: int) -> list[EpochScores]:
        path = find_learning_rates(self.base / self.sweep.runs[index].directory)
        if path is None:
            return []
        try:
            rates = read_learning_rates(path)
        except ReadError as exc:
            self.out(str(exc))  # progress is no place to fail; the table names the training as unreadable
            return []
        return [epoch for epoch in rates.complete if self.sweep.score in epoch.scores]

    def _time_left(self) -> str:
        total = sum(run.num_epochs for run in self.sweep.runs)
        trained = sum(self.done) - self.done_before
        left_s = (self.clock() - self.started) / max(trained, 1) * max(total - sum(self.done), 0)
        minutes, seconds = divmod(round(left_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
