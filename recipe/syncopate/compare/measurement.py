"""
What one training did, read from its folder: the content of a ``results.json``. Its states are listed in
:mod:`~syncopate.compare.state`.

Only epochs that are complete, and not after the last one asked for, are counted. ``updates``, ``samples_upper_bound``
and ``syncs`` are computed from what RETURNN notes (the micro-batches of rank 0), not measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from syncopate.compare.folder import look_at
from syncopate.compare.state import COUNTED_STATES, is_asked_for, state_of
from syncopate.compare.syncs import SyncCount, count_syncs, sync_warnings, updates_per_epoch
from syncopate.compare.user_scores import UserScoreValue, read_user_scores
from syncopate.errors import ReadError
from syncopate.returnn_io.learning_rates import LearningRates, read_learning_rates
from syncopate.returnn_io.run_folder import find_learning_rates
from syncopate.sweep.record import RunRecord
from syncopate.version import __version__

FORMAT = 1
RESULTS_FILE = "results.json"


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """
    One complete epoch.

    :param epoch: RETURNN's epoch, from 1
    :param learning_rate: as in the file
    :param scores: all scores by name; those that start with ``train_`` are of rank 0 alone
    :param train_steps: micro-batches of rank 0
    :param train_time_s: duration of the training part, rounded to whole seconds by RETURNN
    """

    epoch: int
    learning_rate: float | None
    scores: Mapping[str, float]
    train_steps: int | None
    train_time_s: float | None


@dataclass(frozen=True, kw_only=True)
class EpochValue:
    """
    :param epoch: RETURNN's epoch
    :param value: its score
    """

    epoch: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """
    :param run: what was declared
    :param score: the score that ``best`` and ``last`` are about
    :param lower_is_better: which end of it is best
    :param state: see :mod:`~syncopate.compare.state`
    :param reason: why it is in this state, where that needs a reason
    :param source: the learning-rate file, relative to the training's folder; None if there is none
    :param epochs_done: number of complete epochs
    :param epochs: the complete epochs
    :param best: the epoch with the best finite score; None if none has one
    :param last: the last epoch that has this score, if it is finite
    :param updates: optimizer updates of a rank, computed
    :param samples_upper_bound: sequences that all ranks trained on, at most, computed
    :param train_time_s: seconds of training; None if one epoch does not tell
    :param world_size_seen: ranks that took part; None where RETURNN did not note it
    :param syncs: per level, computed
    :param user_scores: the scores that the recipe names
    :param warnings: sentences a reader of the table has to know
    :param version: of Syncopate, that measured
    :param format: of this record
    """

    run: RunRecord
    score: str
    lower_is_better: bool
    state: str
    reason: str | None = None
    source: str | None = None
    epochs_done: int = 0
    epochs: tuple[EpochResult, ...] = ()
    best: EpochValue | None = None
    last: EpochValue | None = None
    updates: int | None = None
    samples_upper_bound: int | None = None
    train_time_s: float | None = None
    world_size_seen: int | None = None
    syncs: tuple[SyncCount, ...] = ()
    user_scores: Mapping[str, UserScoreValue] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    version: str = __version__
    format: int = FORMAT

    @property
    def score_names(self) -> list[str]:
        """Names of all scores of any complete epoch, sorted."""
        return sorted({name for epoch in self.epochs for name in epoch.scores})

    @property
    def num_ranks(self) -> int | None:
        """Ranks on all nodes together, as declared, or else as RETURNN noted; None if neither tells."""
        return self.run.num_ranks if self.run.num_ranks is not None else self.world_size_seen

    @property
    def is_counted(self) -> bool:
        """Whether its score may enter a table."""
        return self.state in COUNTED_STATES and self.best is not None

    def rescored(self, score: str, *, lower_is_better: bool) -> Self:
        """
        :param score: another score
        :param lower_is_better: which end of it is best
        :return: the same training, seen by that score
        """
        best, last = best_and_last(self.epochs, score, lower_is_better=lower_is_better)
        return replace(self, score=score, lower_is_better=lower_is_better, best=best, last=last)

    def as_dict(self) -> dict[str, Any]:
        """:return: plain data; numbers that JSON has no word for are the strings "nan", "inf" and "-inf" """
        return {key: _to_plain(value) for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """:return: the text of a ``results.json``"""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, source: str) -> Self:
        """
        :param plain: what :meth:`as_dict` gave, through JSON
        :param source: names the file in an error
        :raises ReadError: if it is something else
        """
        if plain.get("format") != FORMAT:
            raise ReadError(f"{source}: expected the result of a training in format {FORMAT}: {plain.get('format')!r}")
        values = _checked(cls, {"user_scores": {}, **plain}, source=source)  # results written before there were any
        try:
            values["run"] = RunRecord.from_dict(values["run"], source=source)
            values["epochs"] = tuple(_epoch_from_plain(epoch, source=source) for epoch in values["epochs"])
            values["syncs"] = tuple(SyncCount(**_checked(SyncCount, sync, source=source)) for sync in values["syncs"])
            values["user_scores"] = {
                name: UserScoreValue(**_checked(UserScoreValue, score, source=source))
                for name, score in values["user_scores"].items()
            }
            values["warnings"] = tuple(values["warnings"])
            for name in ("best", "last"):
                if values[name] is not None:
                    values[name] = EpochValue(**_checked(EpochValue, values[name], source=source))
        except (TypeError, ValueError, AttributeError) as exc:
            raise ReadError(f"{source}: is not the result of a training: {exc}") from exc
        return cls(**values)


def measure(run: RunRecord, *, base: Path, score: str, lower_is_better: bool) -> Measurement:
    """
    Reads the folder of one training. A file that is not what it should be makes it "unreadable"; nothing is raised, so
    that the other trainings can still be shown.

    :param run: what was declared
    :param base: the folder that ``run.directory`` and the paths of its scores are relative to
    :param score: the score to compare by
    :param lower_is_better: which end of it is best
    :return: what was found
    """
    directory = base / run.directory
    found = Measurement(
        run=run,
        score=score,
        lower_is_better=lower_is_better,
        state="waiting",
        user_scores=read_user_scores(run, base=base),
    )
    try:
        folder = look_at(directory)
        path = find_learning_rates(directory)
        rates = read_learning_rates(path) if path else None
    except (ReadError, OSError) as exc:
        return replace(found, state="unreadable", reason=str(exc))
    if rates is not None and path is not None:
        found = replace(_counted(found, rates), source=path.relative_to(directory).as_posix())
    state, reason = state_of(run, rates, folder, epochs_done=found.epochs_done)
    warnings = found.warnings + ((folder.remark,) if folder.remark else ())
    return replace(found, state=state, reason=reason, warnings=warnings)


def best_and_last(
    epochs: Sequence[EpochResult], score: str, *, lower_is_better: bool
) -> tuple[EpochValue | None, EpochValue | None]:
    """
    :param epochs: ascending
    :param score: name of a score
    :param lower_is_better: which end of it is best
    :return: the epoch with the best finite value, the earliest of equals; and the last one, None if it is not finite
    """
    values = [EpochValue(epoch=epoch.epoch, value=epoch.scores[score]) for epoch in epochs if score in epoch.scores]
    finite = [value for value in values if math.isfinite(value.value)]
    if not finite:
        return None, None
    best = (min if lower_is_better else max)(finite, key=lambda value: value.value)
    return best, values[-1] if math.isfinite(values[-1].value) else None


def _counted(found: Measurement, rates: LearningRates) -> Measurement:
    run = found.run
    complete = [epoch for epoch in rates.complete if is_asked_for(epoch, run)]
    epochs = tuple(
        EpochResult(
            epoch=epoch.epoch,
            learning_rate=epoch.learning_rate,
            scores=dict(epoch.scores),
            train_steps=epoch.num_train_steps,
            train_time_s=epoch.train_time_s,
        )
        for epoch in complete
    )
    best, last = best_and_last(epochs, found.score, lower_is_better=found.lower_is_better)
    steps = [epoch.train_steps for epoch in epochs]
    known_steps = [count for count in steps if count is not None]
    times = [epoch.train_time_s for epoch in epochs if epoch.train_time_s is not None]
    updates = updates_per_epoch(steps, accum_grad=run.accum_grad)
    seen, warnings = _world_size_seen(run, rates)
    num_ranks = run.num_ranks if run.num_ranks is not None else seen
    samples = None
    if epochs and num_ranks is not None and run.max_seqs is not None and len(known_steps) == len(epochs):
        samples = sum(known_steps) * num_ranks * run.max_seqs
    warnings = sync_warnings(run, updates) + warnings
    if later := [epoch for epoch in rates.complete if not is_asked_for(epoch, run)]:
        warnings.append(f"{len(later)} epochs after epoch {run.num_epochs}, the last one asked for, are not counted")
    if (run.num_ranks or 0) > 1 and rates.trained and rates.world_size is None:
        warnings.append(f"RETURNN did not note how many ranks took part, so {run.num_ranks} is not confirmed")
    return replace(
        found,
        epochs_done=len(epochs),
        epochs=epochs,
        best=best,
        last=last,
        updates=None if updates is None else sum(updates),
        samples_upper_bound=samples,
        train_time_s=sum(times) if epochs and len(times) == len(epochs) else None,
        world_size_seen=seen,
        syncs=count_syncs(run.levels, updates),
        warnings=tuple(warnings),
    )


def _world_size_seen(run: RunRecord, rates: LearningRates) -> tuple[int | None, list[str]]:
    """:return: how many ranks took part, and warnings; where no number was declared, all epochs must agree on one"""
    if run.num_ranks is not None:
        return rates.world_size, []
    noted = sorted({epoch.world_size for epoch in rates.trained if epoch.world_size is not None})
    if len(noted) < 2:
        return rates.world_size, []
    return None, [f"its epochs were trained by different numbers of ranks: {', '.join(map(str, noted))}"]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _epoch_from_plain(plain: Mapping[str, Any], *, source: str) -> EpochResult:
    values = _checked(EpochResult, plain, source=source)
    values["scores"] = {name: float(value) for name, value in values["scores"].items()}
    if values["learning_rate"] is not None:
        values["learning_rate"] = float(values["learning_rate"])
    return EpochResult(**values)


def _checked(cls: type, plain: Any, *, source: str) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise ReadError(f"{source}: {cls.__name__}: expected a mapping, got {plain!r}")
    known = {entry.name for entry in fields(cls)}
    missing, unknown = sorted(known - set(plain)), sorted(set(plain) - known)
    if missing or unknown:
        raise ReadError(f"{source}: {cls.__name__}: missing {missing}, unknown {unknown}; written by another version?")
    return dict(plain)
