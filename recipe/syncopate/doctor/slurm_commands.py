"""What SLURM's commands say on this host, or on the gateway that the settings name."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from syncopate.doctor.finding import Note
from syncopate.errors import ComponentError
from syncopate.launch.answer import answer_of

PROGRAMS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sacct", "sinfo")
_LIMIT_S = 60
_GONE_LIMIT_S = 90
"""SLURM itself gives a job 30 s between SIGTERM and SIGKILL, by default."""
_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """
    :param id: of a job in SLURM's queue
    :param state: such as "PENDING"
    :param reason: why it waits
    """

    id: str
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """
    :param gateway: host on which the commands are, reached by ssh; None for this one
    :param environ: added to ours
    """

    gateway: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def call(self, *command: str) -> tuple[str, int]:
        """
        :param command: of SLURM, with its arguments
        :return: what it prints, and its exit code
        :raises ComponentError: if it cannot be started, or does not end in time
        """
        words: Sequence[str] = command
        if self.gateway is not None:
            words = ["ssh", "-x", self.gateway, "-o", "BatchMode=yes", shlex.join(command)]
        try:
            output, exit_code = answer_of(words, timeout_s=_LIMIT_S, environ={**os.environ, **self.environ})
        except OSError as exc:
            raise ComponentError(f"{words[0]} cannot be started: {exc.strerror}") from exc
        except subprocess.TimeoutExpired as exc:
            raise ComponentError(f"{command[0]} did not answer within {_LIMIT_S} s; is SLURM's controller up?") from exc
        return output.strip(), exit_code

    def ask(self, *command: str) -> str:
        """
        :param command: of SLURM, with its arguments
        :return: what it prints
        :raises ComponentError: if it fails
        """
        output, exit_code = self.call(*command)
        if exit_code != 0:
            raise ComponentError(f"{command[0]} ends with exit code {exit_code}: {_last_line(output)}")
        return output

    def check_programs(self) -> str:
        """
        :raises ComponentError: if commands are missing
        """
        if self.gateway is not None:
            return f"asked for on {self.gateway}, the gateway of the engine"
        path = self.environ.get("PATH")
        missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
        if missing:
            raise ComponentError(
                f"there is no {', no '.join(missing)} on the PATH here; start on a host from which jobs are submitted,"
                " often called login node, or load the module of SLURM"
            )
        return ", ".join(PROGRAMS)

    def version(self) -> str:
        """
        :raises ComponentError: if it cannot be told
        """
        return self.ask("sinfo", "--version")

    def check_controller(self) -> str:
        """
        :raises ComponentError: if no controller answers
        """
        output, _ = self.call("scontrol", "ping")
        if " is UP" not in output:
            raise ComponentError(f"no controller of SLURM answers: {_last_line(output)}; try again when it is up")
        return " ".join(line.strip() for line in output.splitlines() if " is " in line)

    def check_accounting(self) -> str | Note:
        """:return: whether Sisyphus can learn how a job ended"""
        # As Sisyphus asks.
        output, exit_code = self.call("sacct", "-n", "-P", "-j", "1", "--format=State%30")
        if exit_code == 0:
            return "sacct answers"
        return Note(
            text=f"sacct does not answer ({_last_line(output)}), so that a training which ran out of the host's memory"
            " cannot be told from one that was killed by something else, and is not submitted again with more"
        )

    def jobs_of(self, folder: Path) -> list[QueuedJob]:
        """
        :param folder: in which they were submitted
        :return: those that are in the queue, or end right now
        :raises ComponentError: if squeue does not answer
        """
        output = self.ask("squeue", "-h", "-u", getpass.getuser(), "-o", "%F|%T|%r|%Z")
        rows = [line.split("|", 3) for line in output.splitlines() if line.count("|") >= 3]
        here = {str(folder), str(folder.resolve())}
        return [QueuedJob(id=job, state=state, reason=reason) for job, state, reason, place in rows if place in here]

    def how_it_ended(self, job_id: str) -> str | None:
        """
        :param job_id: of a job
        :return: SLURM's word for it, None if there is no accounting
        """
        output, exit_code = self.call("sacct", "-n", "-X", "-P", "-j", job_id, "--format=State%30")
        return output.splitlines()[0].strip() if exit_code == 0 and output else None

    def remove(self, folder: Path, *, grace_s: float) -> list[str]:
        """
        Waits until no job of a folder is left, and cancels those that do not end by themselves.

        :param folder: in which they were submitted
        :param grace_s: how long they may take by themselves
        :return: ids of those that were cancelled
        :raises ComponentError: if they do not go
        """
        cancelled: set[str] = set()
        began_s = time.monotonic()
        while True:
            waited_s = time.monotonic() - began_s
            try:
                ids = {job.id for job in self.jobs_of(folder)}
                if not ids:
                    return sorted(cancelled)
                if waited_s >= grace_s and ids - cancelled:
                    self.ask("scancel", *sorted(ids))
                    cancelled |= ids
                problem = f"job {', '.join(sorted(ids))} is still in SLURM's queue; see squeue -u {getpass.getuser()}"
            except ComponentError as exc:
                # The job is not to be left behind because SLURM was busy for a moment.
                problem = f"nobody knows whether the test job is still in the queue: {exc}"
            if waited_s > grace_s + _GONE_LIMIT_S:
                raise ComponentError(problem)
            time.sleep(_POLL_S)


def _last_line(text: str) -> str:
    return (text.strip() or "it says nothing").splitlines()[-1].strip()
