"""The agents that one launcher starts: processes with a log that is followed, and an end that is certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from syncopate.errors import LaunchError
from syncopate.launch import lifeline

_POLL_S = 0.1
_KILL_LIMIT_S = 30.0


class Agent:
    """
    A torchrun agent, or the only rank where there is no torchrun. It dies with this process.

    :param number: of the agent
    :param command: to run
    :param environ: all of its environment
    :param work_dir: its working directory
    :param log_path: gets what it and its ranks print
    :param is_rank: there is no torchrun, it is the only rank itself
    :param echo: print what it prints
    """

    def __init__(
        self,
        *,
        number: int,
        command: Sequence[str],
        environ: Mapping[str, str],
        work_dir: Path,
        log_path: Path,
        is_rank: bool = False,
        echo: bool = True,
    ) -> None:
        self.echo = echo
        self.number = number
        self.log_path = log_path
        self.is_rank = is_rank
        self.ended_by_us = False
        self._printed = _LogFollower(log_path, prefix="" if is_rank else f"[agent {number}] ")
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                lifeline.bound_command(list(command)),
                env=dict(environ),
                cwd=work_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process, which leads its own session."""
        return self._process.pid

    def poll(self) -> int | None:
        """
        :return: None while it runs, then its exit code, negative for a signal. What it printed in the meantime is
            passed on.
        """
        exit_code = self._process.poll()
        if self.echo:
            self._printed.forward(sys.stdout, to_end=exit_code is not None)
        return exit_code

    def send(self, signum: int) -> None:
        """
        :param signum: for its whole process group, which a container's helpers may belong to
        """
        if self._process.poll() is None:
            self.ended_by_us = True
            os.killpg(self._process.pid, signum)


class _LogFollower:
    """
    Copies what is appended to a file, line by line.

    :param path: to follow
    :param prefix: for lines that no rank printed
    """

    def __init__(self, path: Path, *, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._file: BinaryIO | None = None
        self._rest = b""

    def forward(self, out: TextIO, *, to_end: bool) -> None:
        """
        :param out: gets the new lines
        :param to_end: also what is not yet a whole line, because no more will come
        """
        if self._file is None:
            self._file = self._path.open("rb")
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        if to_end and self._rest:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            text = line.decode(errors="replace")
            out.write(f"{text}\n" if text.startswith("[rank ") else f"{self._prefix}{text}\n")
        if lines:
            out.flush()


def wait_for_agents(agents: Sequence[Agent], limit_s: float) -> bool:
    """
    :param agents: to wait for
    :param limit_s: how long
    :return: whether all have ended
    """
    deadline = time.monotonic() + limit_s
    while True:
        exit_codes = [agent.poll() for agent in agents]
        if None not in exit_codes:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)


def end_agents(agents: Sequence[Agent], *, grace_s: float) -> None:
    """
    Ends those that still run, and by that their ranks: SIGTERM, and SIGKILL after the grace.

    :param agents: to end
    :param grace_s: time between the two
    :raises LaunchError: if one does not even die from SIGKILL
    """
    for agent in agents:
        agent.send(signal.SIGTERM)
    if wait_for_agents(agents, grace_s):
        return
    for agent in agents:
        agent.send(signal.SIGKILL)
    if not wait_for_agents(agents, _KILL_LIMIT_S):
        left = [f"agent {agent.number} (pid {agent.pid})" for agent in agents if agent.poll() is None]
        raise LaunchError(
            f"{', '.join(left)} did not end within {_KILL_LIMIT_S:g} s of SIGKILL: the kernel holds it, most often in a"
            " driver or a network file system; look at this host before using it again"
        )
