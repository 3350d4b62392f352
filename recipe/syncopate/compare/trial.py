"""The trial of a row that is shown: the best one by the score of the sweep, whatever other scores say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from syncopate.compare.measurement import Measurement
from syncopate.compare.state import WORTHLESS_STATES
from syncopate.sweep.record import NOT_RECORDED


@dataclass(frozen=True, kw_only=True)
class Shown:
    """
    The trial of a row that is shown.

    :param counted: its trainings that enter the means; empty if no training of the row has a score
    :param trial: all its trainings
    :param is_final: whether the counted ones are finished; else they show the score so far
    """

    counted: tuple[Measurement, ...]
    trial: tuple[Measurement, ...]
    is_final: bool


def choose_trial(trainings: Sequence[Measurement], *, lower_is_better: bool) -> Shown:
    """
    Finished trainings go before unfinished ones: a trial counts its finished seeds if it has any, and a trial with
    finished seeds is preferred to one without.

    :param trainings: of one row, at least one
    :param lower_is_better: which end of the score is best
    :return: the trial with the best mean over its seeds; the first one if none has a score
    """
    trials: dict[int, list[Measurement]] = {}
    for training in trainings:
        trials.setdefault(training.run.trial, []).append(training)
    candidates = []
    for trial in trials.values():
        counted = [training for training in trial if training.is_counted]
        finished = [training for training in counted if training.state == "finished"]
        candidates.append(Shown(counted=tuple(finished or counted), trial=tuple(trial), is_final=bool(finished)))
    ranked = [shown for shown in candidates if shown.counted]
    if not ranked:
        return candidates[0]
    sign = 1.0 if lower_is_better else -1.0
    return min(ranked, key=lambda shown: (not shown.is_final, sign * mean_score(shown.counted)))


def mean_score(trainings: Sequence[Measurement]) -> float:
    """
    :param trainings: that have a score
    :return: mean of their best scores
    """
    return fmean(training.best.value for training in trainings if training.best is not None)


def trial_text(training: Measurement) -> str:
    """
    :param training: of the trial
    :return: its number and what distinguishes it
    """
    options = ", ".join(f"{key}={value}" for key, value in training.run.options.items())
    return f"{training.run.trial} ({options})" if options else str(training.run.trial)


@dataclass(frozen=True, kw_only=True)
class UserScoreMean:
    """
    :param value: mean over the seeds that it is there for
    :param num_seeds: how many these are
    :param word: why there is none
    """

    value: float | None = None
    num_seeds: int = 0
    word: str | None = None


def user_score_mean(shown: Shown, name: str) -> UserScoreMean:
    """
    Over the trainings that the row's score is of. Where the row has none, because there is no dev set or the folder is
    gone, a score that the recipe names still counts, unless the training came to nothing.

    :param shown: the trial that is shown
    :param name: of a score that the recipe names
    :return: its mean
    """
    members = shown.counted
    if not members:
        sound = [training for training in shown.trial if training.state not in WORTHLESS_STATES]
        members = tuple([training for training in sound if training.state == "finished"] or sound)
    if not members:
        return UserScoreMean(word="/".join(dict.fromkeys(training.state for training in shown.trial)))
    scores = [training.user_scores[name] for training in members if name in training.user_scores]
    values = [score.value for score in scores if score.value is not None]
    if values:
        return UserScoreMean(value=fmean(values), num_seeds=len(values))
    if not scores:
        return UserScoreMean(word=NOT_RECORDED)
    return UserScoreMean(word="waiting" if any(score.problem is None for score in scores) else "no number")
