"""One row of the table: the numbers of its trainings together, and why a number is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from syncopate.compare.measurement import Measurement
from syncopate.compare.trial import Shown, trial_text, user_score_mean
from syncopate.compare.user_scores import UserScoreHead
from syncopate.sweep.record import NOT_RECORDED


@dataclass(frozen=True, kw_only=True)
class Row:
    """
    The score of a training is that of its best epoch; the score of a trial is the mean over its seeds; the row shows
    its best trial. A number that is None has a word in ``missing``.

    :param name: of the row
    :param syncs: what is synchronised and when
    :param existing: whether it was there before, so that the sweep only reads it
    :param ranks: nodes x ranks per node, and the device, as far as they are recorded
    :param trials: number of trials
    :param seeds: number of seeds of the trial shown
    :param best_trial: number of the trial shown, and what distinguishes it
    :param score: mean over the seeds that count
    :param score_sd: sample standard deviation over these seeds
    :param score_seeds: how many count
    :param last_score: mean over these seeds of the score of the last complete epoch
    :param difference: score minus that of the baseline
    :param epochs_done: complete epochs, of the seed that has the fewest
    :param epochs_asked: epochs to train
    :param data_passes: passes through the whole corpus in all epochs asked for, over all ranks
    :param updates: optimizer updates of a rank so far, computed, mean over the seeds
    :param samples_upper_bound: sequences that all ranks trained on so far, at most, computed, mean over the seeds
    :param syncs_observed: synchronisations so far, per level, inner to outer, computed, of the first seed
    :param syncs_planned: the same, if periods did not start anew in each epoch
    :param train_time_s: seconds of training so far, mean over the seeds
    :param target_epoch: first epoch that reaches the target, mean over the seeds
    :param target_train_time_s: seconds of training until the end of that epoch, mean over the seeds
    :param user_scores: by name, the mean over the seeds of the trial shown; the word for one that is missing stands
        under its key, see :class:`~syncopate.compare.user_scores.UserScoreHead`
    :param user_score_seeds: by name, how many seeds have it
    :param state: of its trainings together
    :param notes: letters of the notes about it
    :param missing: for each number that is None, by field, a word that says why
    """

    name: str
    existing: bool
    syncs: str
    ranks: str | None
    trials: int
    seeds: int
    best_trial: str | None
    score: float | None
    score_sd: float | None
    score_seeds: int
    last_score: float | None
    difference: float | None
    epochs_done: int
    epochs_asked: int | None
    data_passes: float | None
    updates: float | None
    samples_upper_bound: float | None
    syncs_observed: tuple[int, ...] | None
    syncs_planned: tuple[int, ...] | None
    train_time_s: float | None
    target_epoch: float | None
    target_train_time_s: float | None
    user_scores: Mapping[str, float | None]
    user_score_seeds: Mapping[str, int]
    state: str
    notes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


def summarise(
    trainings: Sequence[Measurement],
    shown: Shown,
    *,
    baseline_score: float | None,
    is_baseline: bool,
    has_baseline: bool,
    target: float | None,
    user_scores: Sequence[UserScoreHead],
    notes: tuple[str, ...],
) -> Row:
    """
    :param trainings: all of the row
    :param shown: see :func:`choose_trial`
    :param baseline_score: of the baseline; None if it has none
    :param is_baseline: whether this is the baseline
    :param has_baseline: whether there is a baseline
    :param target: score to reach
    :param user_scores: the scores that the recipe names, of any row
    :param notes: letters
    :return: the row
    """
    missing: dict[str, str] = {}
    counted = shown.counted
    run = shown.trial[0].run
    no_score = no_score_word(trainings)

    def mean_of(name: str, get: Callable[[Measurement], float | None], *, word: str = NOT_RECORDED) -> float | None:
        values = [get(training) for training in counted]
        known = [value for value in values if value is not None]
        if values and len(known) == len(values):
            return _plain_mean(known)
        missing[name] = word if values else no_score
        return None

    scores = [training.best.value for training in counted if training.best is not None]
    score = mean_of("score", lambda training: training.best.value if training.best else None)
    if len(scores) < 2:
        missing["score_sd"] = "one seed" if scores else no_score
    last_score = mean_of(
        "last_score", lambda training: training.last.value if training.last else None, word="not finite"
    )
    difference = None
    if not has_baseline:
        missing["difference"] = "no baseline"
    elif is_baseline:
        missing["difference"] = "baseline"
    elif score is None:
        missing["difference"] = no_score
    elif baseline_score is None:
        missing["difference"] = "no score of the baseline"
    else:
        difference = score - baseline_score
    observed, planned = _syncs(shown, missing, no_score=no_score)
    target_epoch, target_train_time_s = _target(counted, target, missing, no_score=no_score)
    if not counted:
        missing["best_trial"] = no_score
    ranks = ranks_text(shown.trial[0])
    unknown = {"ranks": ranks, "epochs_asked": run.num_epochs, "data_passes": run.data_passes}
    missing.update({name: NOT_RECORDED for name, value in unknown.items() if value is None})
    means = {head.name: user_score_mean(shown, head.name) for head in user_scores}
    missing.update({head.key: word for head in user_scores if (word := means[head.name].word) is not None})
    return Row(
        name=run.row,
        existing=any(training.run.existing for training in trainings),
        syncs=run.scheme_text,
        ranks=ranks,
        trials=len({training.run.trial for training in trainings}),
        seeds=len({training.run.seed for training in shown.trial}),
        best_trial=trial_text(shown.trial[0]) if counted else None,
        score=score,
        score_sd=stdev(scores) if len(scores) > 1 else None,
        score_seeds=len(scores),
        last_score=last_score,
        difference=difference,
        epochs_done=min(training.epochs_done for training in counted or shown.trial),
        epochs_asked=run.num_epochs,
        data_passes=run.data_passes,
        updates=mean_of("updates", lambda training: training.updates),
        samples_upper_bound=mean_of("samples_upper_bound", lambda training: training.samples_upper_bound),
        syncs_observed=observed,
        syncs_planned=planned,
        train_time_s=mean_of("train_time_s", lambda training: training.train_time_s),
        target_epoch=target_epoch,
        target_train_time_s=target_train_time_s,
        user_scores={name: mean.value for name, mean in means.items()},
        user_score_seeds={name: mean.num_seeds for name, mean in means.items()},
        state=state_summary(trainings),
        notes=notes,
        missing=missing,
    )


def ranks_text(training: Measurement) -> str | None:
    """
    :param training: of the row
    :return: such as "2x4 gpu", or "8 ranks gpu" where the nodes are not recorded; None if the ranks are not
    """
    nodes, ranks, device = training.run.num_nodes, training.num_ranks, training.run.device
    if ranks is None:
        return None
    count = f"{ranks} ranks" if nodes is None or ranks % nodes else f"{nodes}x{ranks // nodes}"
    return count if device is None else f"{count} {device}"


def state_summary(trainings: Sequence[Measurement]) -> str:
    """
    :param trainings: of one row
    :return: such as "finished", "running 3/8 epochs", "1 of 3 failed, 1 of 3 running"
    """
    if len(trainings) == 1:
        (training,) = trainings
        done, asked = training.epochs_done, training.run.num_epochs
        progress = f"{done}/{asked} epochs" if asked is not None else f"{done} epoch{'' if done == 1 else 's'}"
        return f"{training.state} {progress}" if training.state in ("running", "partial") else training.state
    states = [training.state for training in trainings]
    if len(set(states)) == 1:
        return states[0]
    kinds = [state for state in dict.fromkeys(states) if state != "finished"]
    return ", ".join(f"{states.count(state)} of {len(states)} {state}" for state in kinds)


def no_score_word(trainings: Sequence[Measurement]) -> str:
    """
    :param trainings: of one row
    :return: why none of them has a score
    """
    could = [training for training in trainings if training.state in ("finished", "partial") and training.epochs]
    if could:
        names = {name for training in could for name in training.score_names}
        return f"no {could[0].score}" if any(not name.startswith("train_") for name in names) else "no dev set"
    if any(training.state in ("running", "waiting", "partial") for training in trainings):
        return "no epoch yet"
    return "/".join(dict.fromkeys(training.state for training in trainings))


def _syncs(
    shown: Shown, missing: dict[str, str], *, no_score: str
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    first = (shown.counted or shown.trial)[0]
    observed = [sync.observed for sync in first.syncs]
    planned = [sync.planned for sync in first.syncs]
    known_observed = tuple(count for count in observed if count is not None)
    known_planned = tuple(count for count in planned if count is not None)
    if observed and len(known_observed) == len(observed) and len(known_planned) == len(planned):
        return known_observed, known_planned
    if first.num_ranks == 1:
        word = "one rank"
    elif not first.run.levels:
        word = NOT_RECORDED if first.run.existing else "not counted"
    else:
        word = NOT_RECORDED if shown.counted else no_score
    missing["syncs_observed"] = missing["syncs_planned"] = word
    return None, None


def _target(
    counted: Sequence[Measurement], target: float | None, missing: dict[str, str], *, no_score: str
) -> tuple[float | None, float | None]:
    """:return: epoch that reaches the target and seconds until then, means over the seeds if all reach it"""
    names = ("target_epoch", "target_train_time_s")
    if target is None or not counted:
        missing.update(dict.fromkeys(names, "no target" if target is None else no_score))
        return None, None
    reached = [hit for training in counted if (hit := _first_to_reach(training, target)) is not None]
    if len(reached) < len(counted):
        pending = any(training.state == "running" for training in counted)
        word = f"{len(reached)} of {len(counted)} reached" if reached else "not yet" if pending else "not reached"
        best = [training.best.value for training in counted if training.best is not None]
        nearest = (min if counted[0].lower_is_better else max)(best)
        missing["target_epoch"] = word if reached else f"{word} (best {nearest:.4f})"
        missing["target_train_time_s"] = word
        return None, None
    times = [time_s for _, time_s in reached if time_s is not None]
    if len(times) < len(reached):
        missing["target_train_time_s"] = NOT_RECORDED
    epoch = _plain_mean([epoch for epoch, _ in reached])
    return epoch, _plain_mean(times) if len(times) == len(reached) else None


def _first_to_reach(training: Measurement, target: float) -> tuple[int, float | None] | None:
    elapsed_s: float | None = 0.0
    for epoch in training.epochs:
        if elapsed_s is not None:
            elapsed_s = None if epoch.train_time_s is None else elapsed_s + epoch.train_time_s
        value = epoch.scores.get(training.score, math.nan)
        if math.isfinite(value) and (value <= target if training.lower_is_better else value >= target):
            return epoch.epoch, elapsed_s
    return None


def _plain_mean(values: Sequence[float]) -> float:
    """:return: the mean; an int if it is one, so that equal counts stay counts"""
    mean = fmean(values)
    return int(mean) if mean.is_integer() and all(isinstance(value, int) for value in values) else mean
