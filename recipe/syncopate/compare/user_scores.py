"""
Scores that the recipe names, such as a word error rate, read from the files that Sisyphus keeps of its variables.

Such a file holds a number as Python writes it. Its syntax tree is walked and nothing in it is executed; a file that is
pickled is never opened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncopate.errors import ReadError
from syncopate.returnn_io.literals import SourceLiterals
from syncopate.sweep.record import RunRecord, UserScore

MAX_BYTES = 1000
"""Of a file that holds one number."""
MAX_QUOTE = 60

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class UserScoreValue:
    """
    :param value: None if there is none; then the score is still to come, unless there is a problem
    :param problem: why its file holds no number
    """

    value: float | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class UserScoreHead:
    """
    :param name: of the score
    :param lower_is_better: which end of it is best
    """

    name: str
    lower_is_better: bool

    @property
    def key(self) -> str:
        """Its column in CSV and JSON, and in what is missing of a row."""
        return f"score:{self.name}"

    @property
    def seeds_key(self) -> str:
        """The column with the number of seeds it is there for."""
        return f"score_seeds:{self.name}"


def user_score_heads(runs: Sequence[RunRecord]) -> tuple[UserScoreHead, ...]:
    """
    :param runs: of a sweep
    :return: each score that any of them has, in the order they first appear
    """
    heads = [
        UserScoreHead(name=score.name, lower_is_better=score.lower_is_better)
        for run in runs
        for score in run.user_scores
    ]
    return tuple(dict.fromkeys(heads))


def read_user_scores(run: RunRecord, *, base: Path) -> Mapping[str, UserScoreValue]:
    """
    Never raises: what is wrong with one score is said of that score.

    :param run: what was declared
    :param base: the folder that the paths are relative to
    :return: the scores by name
    """
    return {score.name: _read(score, base) for score in run.user_scores}


def _read(score: UserScore, base: Path) -> UserScoreValue:
    if score.path is None:
        return UserScoreValue(value=score.value)
    path = base / score.path
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if content.startswith(_GZIP):
            return UserScoreValue(
                problem=f"{path}: is pickled, and pickles are not opened; use a variable without pickle"
            )
        text = content.decode("utf-8")
    except FileNotFoundError:
        return UserScoreValue()
    except OSError as exc:
        return UserScoreValue(problem=f"{path}: cannot be read: {exc.strerror or exc}")
    except ValueError as exc:
        return UserScoreValue(problem=f"{path}: is no text: {exc}")
    if not text.strip():
        return UserScoreValue()  # it is being written just now
    if len(content) > MAX_BYTES:
        return UserScoreValue(problem=f"{path}: must hold a number, but has more than {MAX_BYTES} bytes")
    value = _number(text, source=str(path))
    if value is None:
        quoted = text.strip()
        quoted = repr(quoted if len(quoted) <= MAX_QUOTE else quoted[:MAX_QUOTE] + " ...")
        return UserScoreValue(problem=f"{path}: must hold a number, found {quoted}")
    if not math.isfinite(value):
        return UserScoreValue(problem=f"{path}: is {value}")
    return UserScoreValue(value=value)


def _number(text: str, *, source: str) -> float | None:
    """:return: None if it is something else"""
    literals = SourceLiterals(text, source=source)
    try:
        return literals.number(literals.syntax_tree(), "a score")
    except ReadError:
        return None  # what it is instead is quoted by the caller
