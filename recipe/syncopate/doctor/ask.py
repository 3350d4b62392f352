"""Asks another python, in a process that is ended with all its children when the time is up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncopate.errors import ComponentError
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
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as exc:
        raise ComponentError(f"{command[0]} cannot be started: {exc.strerror}") from exc
    with process:
        try:
            output = process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired as exc:
            # Children of a wrapper hold the pipe as well, so it is not enough to end the wrapper.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise ComponentError(f"{command[0]} did not answer within {timeout_s:g} s") from exc
    answers = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if not answers:
        raise ComponentError(
            f"{command[0]} ended with exit code {process.returncode} and no answer; its last words were"
            f" {output.strip()[-300:]!r}"
        )
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer
