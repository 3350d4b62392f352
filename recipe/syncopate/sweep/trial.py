"""What ``Sweep.add`` gives: the trainings of one trial, for what a recipe builds on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from syncopate.errors import SweepError

if TYPE_CHECKING:
    from syncopate.sweep.existing import Existing
    from syncopate.sweep.run import Run
    from syncopate.sweep.sweep import Sweep


class Trial:
    """
    One trial of a row, trained once per seed; or a training that was there before.

    :param sweep: it belongs to
    :param runs: one per seed
    """

    def __init__(self, sweep: Sweep, runs: tuple[Run | Existing, ...]):
        self.sweep = sweep
        self.runs = runs

    def __iter__(self) -> Iterator[Run | Existing]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def jobs(self) -> list[Any]:
        """Its training jobs, one per seed. Needs Sisyphus."""
        return [self.sweep.job_of(run) for run in self.runs]

    @property
    def job(self) -> Any:
        """
        Its training job.

        :raises SweepError: if there are several, one per seed
        """
        if len(self.runs) > 1:
            raise SweepError(
                f"row {self.runs[0].row!r} has {len(self.runs)} trainings, one per seed; use .jobs, in the order of the"
                f" seeds {[run.seed for run in self.runs]}"
            )
        return self.jobs[0]

    @property
    def checkpoints(self) -> dict[int, Any]:
        """The checkpoints of its job by epoch, as i6_core's ``out_checkpoints``."""
        checkpoints: dict[int, Any] = self.job.out_checkpoints
        return checkpoints

    def add_score(self, name: str, value: Any, *, lower_is_better: bool = True, seed: int | None = None) -> None:
        """
        A score of the user's own, such as a word error rate, for a column of the table.

        :param name: heading of the column, such as ``"dev-other WER"``
        :param value: a ``tk.Variable``, or a number
        :param lower_is_better: whether a lower value is better
        :param seed: of which training it is, where the trial has several
        :raises SweepError: if it is unclear which training it belongs to, or it has a score of that name already
        """
        runs = [run for run in self.runs if run.seed == seed] if len(self.runs) > 1 else list(self.runs)
        if len(runs) != 1:
            raise SweepError(
                f"row {self.runs[0].row!r}, score {name!r}: say of which training, seed=... is one of"
                f" {[run.seed for run in self.runs]}, got {seed!r}"
            )
        self.sweep.add_score(runs[0], name, value, lower_is_better=lower_is_better)

    def __repr__(self) -> str:
        return f"<Trial {', '.join(run.name for run in self.runs)} of {self.sweep.prefix}>"
