"""
The starts of one training, and when there were too many.

Sisyphus counts submissions, and allows three more that bring no progress. What SLURM requeues is no submission, and a
task that dies before its first line of log was never started in Sisyphus' eyes. So each start is noted in the
training's own folder, with how far it was, and one that would be too many says what became of those before.

The last line of the file names the start that counts. An older one, which may still run on a host that lost its
connection to SLURM, sees that and ends: two of them must not write one checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from syncopate.errors import LaunchError

ATTEMPTS_FILE = "attempts.jsonl"


def begin_attempt(run_dir: Path, attempt: str, *, progress: float | None, max_starts: int | None) -> None:
    """
    Notes a start; from now on all older ones are superseded.

    :param run_dir: of the training
    :param attempt: id of the start
    :param progress: what was done before it, as a number that grows; None for nothing
    :param max_starts: starts without progress in a row that are allowed, None for any number
    :raises LaunchError: if this would be one more, with how the last ones ended. The next start after that error is the
        first of a new count.
    """
    lines = _read(run_dir)
    done = progress or 0.0
    in_vain = 0
    for line in reversed([line for line in lines if "attempt" in line]):
        if line.get("refused") or line["progress"] < done:
            break
        in_vain += 1
    refused = max_starts is not None and in_vain >= max_starts
    _append(run_dir, {"attempt": attempt, "time_s": time.time(), "progress": done, "refused": refused})
    if refused:
        ends = {line["end_of"]: line["reason"] for line in lines if "end_of" in line}
        last = [line["attempt"] for line in lines if "attempt" in line][-in_vain:]
        listed = "\n".join(f"  {name}: {ends.get(name, _NO_WORD)}" for name in last)
        raise LaunchError(
            f"this training was started {in_vain} times in a row without finishing another epoch, so it is not started"
            f" again. How the starts ended:\n{listed}\nTheir logs are in {run_dir / 'logs'}. Remove the cause, then"
            f" remove error.run.1 from {run_dir} to go on from the last checkpoint."
        )


_NO_WORD = "gone without a word: killed with SIGKILL, its node was lost, or the host ran out of memory"


def note_end(run_dir: Path, attempt: str, reason: str) -> None:
    """
    :param run_dir: of the training
    :param attempt: id of the start
    :param reason: why it ended early
    """
    first_line = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    _append(run_dir, {"end_of": attempt, "time_s": time.time(), "reason": first_line})


def superseded_by(run_dir: Path, attempt: str) -> str | None:
    """
    :param run_dir: of the training
    :param attempt: id of a start
    :return: the newer start that took over, None as long as this one counts
    """
    starts = [line["attempt"] for line in _read(run_dir) if "attempt" in line]
    # One that is not there is read too early, on a file system that shows changes late.
    later = starts[starts.index(attempt) + 1 :] if attempt in starts else []
    return str(later[-1]) if later else None


def _append(run_dir: Path, fields: dict[str, Any]) -> None:
    """In one write and to the disk. A line that a kill has torn is skipped by readers, so each begins on a new line."""
    run_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(run_dir / ATTEMPTS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, f"\n{json.dumps(fields)}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(run_dir: Path) -> list[dict[str, Any]]:
    try:
        text = (run_dir / ATTEMPTS_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # empty, or torn by a kill while it was written
    return lines
