"""Asks another python, in a process that is ended with all its children when the time is up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncopate.errors import ComponentError
from syncopate.launch.answer import answer_of
from syncopate.launch.probe import MARK


def ask(
    command: Sequence[str], *, cwd: str | Path, timeout_s: float, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """
    :param command: prints a line with :data:`MARK` and JSON, among whatever else
    :param cwd: its working directory
    :param timeout_s: how long it may take
    :param environ: all of its environment, None for ours
    :return: what it answered
    :raises ComponentError: if it does not start, does not end in time, or ends without an answer
    """
    try:
        output, exit_code = answer_of(command, timeout_s=timeout_s, cwd=cwd, environ=environ)
    except OSError as exc:
        raise ComponentError(f"{command[0]} cannot be started: {exc.strerror}") from exc
    except subprocess.TimeoutExpired as exc:
        raise ComponentError(f"{command[0]} did not answer within {timeout_s:g} s") from exc
    answers = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if not answers:
        raise ComponentError(
            f"{command[0]} ended with exit code {exit_code} and no answer; its last words were"
            f" {output.strip()[-300:]!r}"
        )
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer
