"""Why a training failed: the few lines of its logs that say so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

MAX_REASON_CHARS = 300
MAX_LINES = 3
TAIL_BYTES = 1 << 20

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RETRY = "RETRY OR CONTINUE TASK"
_NONFINITE = re.compile(r"Inf/nan score in step (\d+)")
_RANK_PREFIX = r"(?:\[[\w-]+\]:\s*)?"
_LAUNCH_ERROR = re.compile(rf"^{_RANK_PREFIX}(?:[\w.]+\.)?LaunchError: ")
_WRAPPER = r"(?:[\w.]+\.)?(?:CalledProcessError|ChildFailedError)\b"  # says only that something else failed
_EXCEPTION = re.compile(rf"^{_RANK_PREFIX}(?!{_WRAPPER})(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit)(?:: |$)")
_WRAPPED = re.compile(rf"^{_RANK_PREFIX}{_WRAPPER}")
# What Sisyphus and torchrun add around the message itself.
_CHATTER = re.compile(r"^\[[-\d :,]+\] (?:INFO|WARNING|DEBUG)|^[-=#*]+$|Job failed, traceback:|Max resources: Run time")


def reason_from_logs(logs: Iterable[Path]) -> str | None:
    """
    :param logs: log files of the attempts that failed
    :return: what the last attempt says about its end: the line of a ``LaunchError``, else of the last other exception,
        else the last lines; without colours and of bounded length. None if the logs say nothing.
    """
    tails = [lines for lines in map(_last_attempt, logs) if lines]
    for pattern in (_LAUNCH_ERROR, _EXCEPTION, _WRAPPED):
        for lines in tails:
            found = [index for index, line in enumerate(lines) if pattern.match(line)]
            if found:
                return bounded(_with_continuation(lines, found[-1]))
    for lines in tails:
        said = [line for line in lines if not _CHATTER.search(line)]
        if said:
            return bounded(" / ".join(line.strip() for line in said[-MAX_LINES:]))
    return None


def nonfinite_from_logs(logs: Iterable[Path]) -> str | None:
    """
    RETURNN ends a training at the first loss that is not finite, before the epoch gets a score.

    :param logs: log files of the attempts that failed
    :return: the line that says so, of the earliest step; it names the rank where the launcher's error does, or its
        prefix of the rank's lines
    """
    found: list[tuple[int, bool, str]] = []
    for lines in map(_last_attempt, logs):
        for line in lines:
            if match := _NONFINITE.search(line):
                found.append((int(match[1]), _LAUNCH_ERROR.match(line) is None, line))
    return bounded(min(found, key=lambda item: item[:2])[2]) if found else None


def is_nonfinite(reason: str) -> bool:
    """
    :param reason: why a training failed
    :return: whether it is RETURNN's stop at a loss that is not finite
    """
    return _NONFINITE.search(reason) is not None


def bounded(reason: str) -> str:
    """
    :param reason: any text
    :return: the text in one line without colours, cut where it is too long
    """
    line = " ".join(_ANSI.sub("", reason).split())
    return line if len(line) <= MAX_REASON_CHARS else line[: MAX_REASON_CHARS - 4].rstrip() + " ..."


def _last_attempt(log: Path) -> list[str]:
    """:return: the lines at the end of the log that are not empty, without those of earlier attempts"""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return []  # a log that cannot be read gives no reason; that the training failed is known without it
    lines = [_ANSI.sub("", line).rstrip() for line in text.rpartition(_RETRY)[2].splitlines()]
    return [line for line in lines if line.strip()]


def _with_continuation(lines: list[str], start: int) -> str:
    """:return: the line and the indented ones that continue it"""
    end = start + 1
    while end < len(lines) and end - start < MAX_LINES and lines[end].startswith((" ", "\t")):
        end += 1
    return " ".join(lines[start:end])
