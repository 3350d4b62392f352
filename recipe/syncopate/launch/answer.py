"""What a command prints within a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def answer_of(
    command: Sequence[str],
    *,
    timeout_s: float,
    cwd: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, int]:
    """
    :param command: to run, without input
    :param timeout_s: how long it may take
    :param cwd: its working directory
    :param environ: all of its environment, None for ours
    :return: what it prints, to whichever stream, and its exit code
    :raises OSError: if it cannot be started
    :raises subprocess.TimeoutExpired: if it does not end in time; then its process group is gone
    """
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
        env=None if environ is None else dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            output = process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            # A wrapper's children hold the pipe as well: killing the wrapper alone would leave us waiting for them.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    return output, process.returncode
