"""
RETURNN's learning-rate file: per epoch the learning rate, the scores, and what RETURNN noted beside them (*meta*)::

    {1: EpochData(learningRate=0.01, error={'dev_loss_ce': 0.5, ':meta:epoch_num_train_steps': 26}), ...}

It is written as Python, and RETURNN reads it with ``eval``. Here its syntax tree is walked instead: only what RETURNN
has ever written is understood, anything else is an error with file and line, and nothing in it is ever executed.

An epoch is *planned* (no score yet), *trained* (any score), *complete* (a score of every data set that the file knows)
or *diverged* (a score is not finite). A score with a ``:`` in its name is *derived*: ``dev_loss_ce:exp`` overflows to
inf long before a training is lost, and the gradient norm of mixed precision (``train_loss_grad_norm:p2``) now and then.
"""

from __future__ import annotations

import ast
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from syncopate.errors import ReadError, did_you_mean
from syncopate.returnn_io.literals import SourceLiterals

OLD_FORMAT_SCORE = "old_format_score"
"""RETURNN's name for the one score of an epoch, from the time when it wrote just a number."""

_META_PREFIX = ":meta:"
_SETTLED_S = 2.0
"""A file that changed more lately may change again within the same tick of its clock, and is read again."""
_DATA_SET_NAME = re.compile(r"(.+?)_(?:loss|score|error)(?:[_:/]|$)")
_CONTEXT_REPR = re.compile(r"<\w+ size=(\d+)\b")


def is_derived(score: str) -> bool:
    """
    :param score: name of a score
    :return: whether it is computed from another value (``dev_loss_ce:exp``), and so no sign of its own
    """
    return ":" in score


def data_set_of(score: str) -> str | None:
    """
    :param score: name of a score, e.g. "dev_loss_ce", "dev_error", "devtrain_score_output/output_prob"
    :return: the data set it was computed on, e.g. "dev"; None if the name tells none, as the old format does
    """
    match = _DATA_SET_NAME.match(score)
    return match[1] if match and score != OLD_FORMAT_SCORE else None


@dataclass(frozen=True, kw_only=True)
class EpochScores:
    """
    One epoch of the file.

    :param epoch: RETURNN's epoch, from 1
    :param learning_rate: as in the file
    :param scores: by name, in the order of the file
    :param meta: the other notes by name, without their prefix
    """

    epoch: int
    learning_rate: float | None
    scores: Mapping[str, float]
    meta: Mapping[str, object]

    @property
    def is_planned(self) -> bool:
        """Whether only the learning rate is known yet."""
        return not self.scores

    @property
    def is_diverged(self) -> bool:
        """Whether a score that is not derived is NaN or infinite."""
        return any(not math.isfinite(value) for name, value in self.scores.items() if not is_derived(name))

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The data sets that have a score, in the order of the file."""
        names = (data_set_of(score) for score in self.scores)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def num_train_steps(self) -> int | None:
        """Steps (micro-batches) of one rank in this epoch; None where RETURNN did not note it."""
        steps = self.meta.get("epoch_num_train_steps")
        return steps if isinstance(steps, int) and not isinstance(steps, bool) else None

    @property
    def train_time_s(self) -> float | None:
        """Duration of the training part in whole seconds, as RETURNN rounds it; None where it did not note it."""
        time_s = self.meta.get("epoch_train_time_secs")
        return float(time_s) if isinstance(time_s, int | float) and not isinstance(time_s, bool) else None

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of one rank; None where it is not available, also for an epoch rounded to 0 seconds."""
        if self.num_train_steps is None or self.train_time_s is None or not self.train_time_s > 0:
            return None
        return self.num_train_steps / self.train_time_s

    @property
    def world_size(self) -> int | None:
        """Number of ranks; 1 where RETURNN noted that it ran alone, None where it noted nothing."""
        if "distributed" not in self.meta:
            return None
        noted = self.meta["distributed"]
        if noted is None:
            return 1
        match = _CONTEXT_REPR.match(noted) if isinstance(noted, str) else None
        return int(match[1]) if match else None


@dataclass(frozen=True, kw_only=True)
class LearningRates:
    """
    All epochs of one file.

    :param source: the file, for messages
    :param epochs: by number, ascending
    """

    source: str
    epochs: dict[int, EpochScores]

    @property
    def trained(self) -> list[EpochScores]:
        """Epochs with any score."""
        return [epoch for epoch in self.epochs.values() if not epoch.is_planned]

    @property
    def planned(self) -> list[EpochScores]:
        """Epochs with a learning rate only."""
        return [epoch for epoch in self.epochs.values() if epoch.is_planned]

    @property
    def complete(self) -> list[EpochScores]:
        """Trained epochs with a score of every data set that any epoch has a score of."""
        wanted = {name for epoch in self.trained for name in epoch.data_sets}
        return [epoch for epoch in self.trained if wanted.issubset(epoch.data_sets)]

    @property
    def last_complete(self) -> EpochScores | None:
        """The last complete epoch, None if there is none."""
        return self.complete[-1] if self.complete else None

    @property
    def diverged(self) -> list[EpochScores]:
        """Epochs of which a score that is not derived is NaN or infinite."""
        return [epoch for epoch in self.epochs.values() if epoch.is_diverged]

    @property
    def score_names(self) -> list[str]:
        """Names of all scores of any epoch, sorted."""
        return sorted({name for epoch in self.epochs.values() for name in epoch.scores})

    @property
    def main_score_names(self) -> list[str]:
        """Like :attr:`score_names`, without the derived ones."""
        return [name for name in self.score_names if not is_derived(name)]

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the last trained epoch that notes it, None if none does."""
        noted = [epoch.world_size for epoch in self.trained if epoch.world_size is not None]
        return noted[-1] if noted else None

    def best(self, score: str, *, lower_is_better: bool = True) -> EpochScores | None:
        """
        :param score: name of a score
        :param lower_is_better: which end is best
        :return: the epoch with the best finite value, the earliest of equals; None if no value is finite
        :raises ReadError: if epochs were trained and none has this score
        """
        if self.trained and score not in self.score_names:
            raise ReadError(
                f"{self.source}: no epoch has the score {score!r}{did_you_mean(score, self.score_names)};"
                f" the file has {self.score_names}"
            )
        finite = [epoch for epoch in self.trained if math.isfinite(epoch.scores.get(score, math.nan))]
        if not finite:
            return None
        return (min if lower_is_better else max)(finite, key=lambda epoch: epoch.scores[score])


_known: dict[str, tuple[tuple[int, ...], LearningRates]] = {}
"""What was read last from each file, and of which version of it."""


def read_learning_rates(path: str | os.PathLike[str]) -> LearningRates:
    """
    A file that did not change is not read again: tables are made every few seconds, of hundreds of trainings with
    hundreds of epochs, of which few are new.

    :param path: RETURNN's learning-rate file
    :return: what it holds
    :raises ReadError: if it cannot be read, or is not what RETURNN writes
    """
    source = os.fspath(path)
    try:
        if source in _known and _known[source][0] == _version(os.stat(source)):
            return _known[source][1]
        with open(source, encoding="utf-8") as stream:
            status = os.fstat(stream.fileno())
            text = stream.read()
    except OSError as exc:
        raise ReadError(f"{os.fspath(path)}: cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise ReadError(
            f"{os.fspath(path)}:{line}: is no UTF-8 text: {exc.object[exc.start : exc.start + 10]!r}"
        ) from exc
    rates = parse_learning_rates(text, source=source)
    if time.time() - status.st_mtime > _SETTLED_S:
        _known[source] = (_version(status), rates)
    return rates


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def parse_learning_rates(text: str, *, source: str) -> LearningRates:
    """
    :param text: content of a learning-rate file
    :param source: its path, for messages
    :return: what it holds
    :raises ReadError: if it is not what RETURNN writes
    """
    if not text.strip():
        raise ReadError(f"{source}: is empty; RETURNN writes this file at the end of its first epoch")
    return LearningRates(source=source, epochs=_epochs(SourceLiterals(text, source=source)))


def _epochs(literals: SourceLiterals) -> dict[int, EpochScores]:
    epochs: dict[int, EpochScores] = {}
    node = literals.syntax_tree()
    if not isinstance(node, ast.Dict):
        raise literals.error(node, "expected a dict {epoch: EpochData(...), ...}, got")
    for key, value in zip(node.keys, node.values, strict=True):
        epoch = literals.key(key, value)
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            raise literals.error(key or value, "an epoch must be an int of at least 1, got")
        if epoch in epochs:
            raise literals.error(key or value, "this epoch is there twice")
        epochs[epoch] = _epoch(literals, epoch, value)
    return dict(sorted(epochs.items()))


def _epoch(literals: SourceLiterals, epoch: int, node: ast.expr) -> EpochScores:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "EpochData"):
        raise literals.error(node, f"epoch {epoch} must be EpochData(...), got")
    parameters = ("learning_rate", "error")
    if len(node.args) > len(parameters):
        raise literals.error(node, f"epoch {epoch} has too many arguments")
    given = dict(zip(parameters, node.args, strict=False))
    for keyword in node.keywords:
        name = "learning_rate" if keyword.arg == "learningRate" else keyword.arg
        if name not in parameters or name in given:
            raise literals.error(keyword, f"epoch {epoch} has an argument that is unknown or given twice")
        given[name] = keyword.value
    if "learning_rate" not in given:
        raise literals.error(node, f"epoch {epoch} has no learning rate")
    scores, meta = _scores_and_meta(literals, epoch, given["error"]) if "error" in given else ({}, {})
    learning_rate = given["learning_rate"]
    return EpochScores(
        epoch=epoch,
        learning_rate=(
            None if _is_none(learning_rate) else literals.number(learning_rate, f"the learning rate of epoch {epoch}")
        ),
        scores=scores,
        meta=meta,
    )


def _scores_and_meta(
    literals: SourceLiterals, epoch: int, node: ast.expr
) -> tuple[dict[str, float], dict[str, object]]:
    scores: dict[str, float] = {}
    meta: dict[str, object] = {}
    if _is_none(node):
        return scores, meta
    if not isinstance(node, ast.Dict):
        return {OLD_FORMAT_SCORE: literals.number(node, f"the score of epoch {epoch}")}, meta
    names: set[str] = set()
    for key, value in zip(node.keys, node.values, strict=True):
        name = literals.key(key, value)
        if not isinstance(name, str):
            raise literals.error(key or value, f"a score of epoch {epoch} must be named by a string, got")
        if name in names:
            raise literals.error(key or value, f"epoch {epoch} has this score twice")
        names.add(name)
        if name.startswith(_META_PREFIX):
            meta[name.removeprefix(_META_PREFIX)] = literals.value(value)
        else:
            scores[name] = literals.number(value, f"score {name!r} of epoch {epoch}")
    return scores, meta


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
