"""Runs the test job, by the real manager in a folder of its own, until it ended and nothing of it is left."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from syncopate.cluster import Cluster
from syncopate.doctor.slurm_commands import QueuedJob, Slurm
from syncopate.doctor.slurm_folder import WORK, folder_like, uninterrupted
from syncopate.errors import ComponentError
from syncopate.launch.check_record import CheckFolder, RankCheck, WorkerCheck, WorkerFailure
from syncopate.launch.lifeline import bound_command

JOBS = Path(WORK, "syncopate", "jobs", "cluster_check")
MANAGER_LOG = "manager.log"
ENVIRONMENT = {
    # What the settings say about these is for file systems and queues that are looked at for weeks.
    "SIS_WAIT_PERIOD_BETWEEN_CHECKS": "5",
    "SIS_WAIT_PERIOD_CACHE": "1",
    "SIS_WAIT_PERIOD_JOB_FS_SYNC": "0",
    "SIS_WAIT_PERIOD_JOB_CLEANUP": "0",
    "SIS_WAIT_PERIOD_MTIME_OF_INPUTS": "0",
    # Everything in the new folder, one submission, and its files stay until we read them.
    "SIS_WORK_DIR": WORK,
    "SIS_OUTPUT_DIR": "output",
    "SIS_ALIAS_DIR": "alias",
    "SIS_ALIAS_AND_OUTPUT_SUBDIR": "",
    "SIS_CACHE_FINISHED_RESULTS": "False",
    "SIS_JOB_AUTO_CLEANUP": "False",
    "SIS_MAX_SUBMIT_RETRIES": "0",
    "SIS_USE_VERBOSE_TRACEBACK": "False",
}
_POLL_S = 1.0
_QUEUE_EVERY_S = 3.0
_SQUEUE_LIMIT_S = 60.0
"""For how long squeue may fail, as it does while the controller is busy or started again."""
_SAY_EVERY_S = 60.0
_LAST_WORD_S = 15.0
"""How long what a job wrote may take to be seen here once it is gone from the queue."""
_END_GRACE_S = 20.0
_MANAGER_LIMIT_S = 10.0
_HOPELESS = {
    *("AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionConfig", "PartitionNodeLimit"),
    *("PartitionTimeLimit", "QOSNotAllowed"),
}
"""Reasons that do not go away by waiting."""
_HOPELESS_S = 10.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SUBMITTED = re.compile(r"Submitted with job_id: (\d+)")
_REFUSAL = re.compile(r"sbatch: error: (.*)")


@dataclass(kw_only=True)
class Seen:
    """
    What is known of the test job.

    :param job_id: in SLURM, None as long as it was not submitted
    :param states: in the order in which they were seen
    :param reason: why it waited, as SLURM says it
    :param submitted_s: when, by ``time.monotonic``
    :param run_s: when it was first seen to be out of the queue
    :param hopeless_s: since when it waits for a reason that does not go away, None if it does not
    :param workers: see :class:`CheckFolder`
    :param ranks: see :class:`CheckFolder`
    :param failures: see :class:`CheckFolder`
    """

    job_id: str | None = None
    states: list[str] = field(default_factory=list)
    reason: str = ""
    submitted_s: float = 0.0
    run_s: float | None = None
    hopeless_s: float | None = None
    workers: list[WorkerCheck] = field(default_factory=list)
    ranks: list[RankCheck] = field(default_factory=list)
    failures: list[WorkerFailure] = field(default_factory=list)

    @property
    def name(self) -> str:
        """It, for a reader."""
        return "the test job" if self.job_id is None else f"job {self.job_id}"

    def note_id(self, job_id: str) -> None:
        """
        :param job_id: in SLURM
        """
        if self.job_id is None:
            self.job_id, self.submitted_s = job_id, time.monotonic()

    def note(self, jobs: list[QueuedJob]) -> None:
        """
        :param jobs: of the folder, that are in the queue now
        """
        for job in jobs:
            self.note_id(job.id)
            if job.state not in self.states[-1:]:
                self.states.append(job.state)
            if job.state != "PENDING" and self.run_s is None:
                self.run_s = time.monotonic()
            self.reason = job.reason
            waits_in_vain = job.state == "PENDING" and job.reason in _HOPELESS
            self.hopeless_s = (self.hopeless_s or time.monotonic()) if waits_in_vain else None


def run_test_job(
    seen: Seen,
    *,
    setup: Path,
    work_dir: Path,
    slurm: Slurm,
    cluster: Cluster,
    python: str,
    returnn_root: str | None,
    limit_s: float,
    say: Callable[[str], None],
) -> str:
    """
    :param seen: gets what is known, also where this fails
    :param setup: folder of the user's settings
    :param work_dir: of the settings
    :param slurm: its commands
    :param cluster: that is asked for
    :param python: of the trainings, a path
    :param returnn_root: their checkout of RETURNN
    :param limit_s: how long all of it may take, most of which may be the queue
    :param say: takes a line about what is waited for
    :return: a sentence
    :raises ComponentError: if it did not end well, with the reason
    """
    with _ended_by_signals(), folder_like(setup, work_dir=work_dir) as folder:
        arguments = (
            *(cluster.num_nodes, cluster.num_gpus_per_node, cluster.device),
            *(python, returnn_root, secrets.token_hex(4)),
        )
        run = _Run(seen, folder=folder, slurm=slurm, limit_s=limit_s, say=say)
        try:
            with _manager(folder, f"syncopate.jobs.cluster_check.register{arguments!r}") as manager:
                run.wait(manager)
        finally:
            with uninterrupted():
                run.clean_up()
    nodes = sorted({rank.node for rank in seen.ranks})
    assert seen.run_s is not None
    return f"{seen.name} ran on {', '.join(nodes)}, after {seen.run_s - seen.submitted_s:.0f} s in the queue"


class _Run:
    def __init__(self, seen: Seen, *, folder: Path, slurm: Slurm, limit_s: float, say: Callable[[str], None]) -> None:
        self.seen = seen
        self.folder = folder
        self.slurm = slurm
        self.limit_s = limit_s
        self.say = say

    def wait(self, manager: subprocess.Popen[bytes]) -> None:
        """Returns when the job is finished."""
        began_s = said_s = asked_s = answered_s = time.monotonic()
        gone_s: float | None = None
        while True:
            if self._job_file("finished.run.1") is not None:
                self._check_submission(manager)
                self.seen.run_s = self.seen.run_s or time.monotonic()
                return
            if self._job_file("error.run.1") is not None:
                self._check_submission(manager)
                raise ComponentError(self._why_failed())
            now_s = time.monotonic()
            if now_s - asked_s >= _QUEUE_EVERY_S:
                asked_s = now_s
                try:
                    jobs = self.slurm.jobs_of(self.folder)
                except ComponentError:
                    if now_s - answered_s > _SQUEUE_LIMIT_S:
                        raise
                else:
                    answered_s = now_s
                    self.seen.note(jobs)
                    gone_s = None if jobs or self.seen.job_id is None else gone_s or now_s
            if gone_s is not None and now_s - gone_s > _LAST_WORD_S:
                raise ComponentError(self._why_failed())
            self._check_submission(manager)
            if self.seen.hopeless_s is not None and now_s - self.seen.hopeless_s > _HOPELESS_S:
                raise ComponentError(
                    f"{self.seen.name} would wait for ever: SLURM gives {self.seen.reason!r} as the reason. It is"
                    " cancelled; compare what sinfo shows with --nodes and --gpus-per-node here, and with partitions,"
                    " account and sbatch_args in settings.py"
                )
            if now_s - began_s > self.limit_s:
                raise ComponentError(self._why_late())
            if now_s - said_s > _SAY_EVERY_S:
                said_s = now_s
                self.say(f"waiting since {now_s - began_s:.0f} s: {self._state()}")
            time.sleep(_POLL_S)

    def clean_up(self) -> None:
        """Reads what was found, and removes the job from the queue."""
        for job_dir in self.folder.glob(f"{JOBS}/ClusterCheckJob.*"):
            checks = CheckFolder(path=job_dir / "checks")
            self.seen.workers = checks.workers()
            self.seen.ranks = checks.ranks()
            self.seen.failures = checks.failures()
        ended = self._job_file("finished.run.1") or self._job_file("error.run.1")
        cancelled = self.slurm.remove(self.folder, grace_s=_END_GRACE_S if ended else 0)
        if cancelled:
            self.say(f"job {', '.join(cancelled)} was cancelled")

    def _job_file(self, name: str) -> Path | None:
        return next(iter(self.folder.glob(f"{JOBS}/ClusterCheckJob.*/{name}")), None)

    def _check_submission(self, manager: subprocess.Popen[bytes]) -> None:
        if self.seen.job_id is not None:
            return
        log = _COLOUR.sub("", (self.folder / MANAGER_LOG).read_text(errors="replace"))
        submitted = _SUBMITTED.search(log)
        if submitted is not None:
            self.seen.note_id(submitted[1])
            return
        refusals = _REFUSAL.findall(log)
        if refusals:
            raise ComponentError(
                f"sbatch refuses the test job: {'; '.join(refusals[-2:])}. Compare what sinfo shows with --nodes and"
                " --gpus-per-node here, and with partitions, account and sbatch_args in settings.py"
            )
        if manager.poll() is not None:
            self.seen.note(self.slurm.jobs_of(self.folder))
            if self.seen.job_id is None:
                lines = [line.strip() for line in log.splitlines() if line.strip()]
                errors = [line for line in lines if "Error" in line] or lines or ["it says nothing"]
                raise ComponentError(f"the manager ended before it submitted the test job: {errors[-1]}")

    def _state(self) -> str:
        if self.seen.job_id is None:
            return "the manager has not submitted the test job yet"
        if not self.seen.states:
            return f"{self.seen.name} was submitted, and is not in the queue"
        state = self.seen.states[-1]
        return f"{self.seen.name} is {state}{f' ({self.seen.reason})' if state == 'PENDING' else ''}"

    def _why_late(self) -> str:
        if self.seen.states[-1:] == ["PENDING"]:
            return (
                f"{self.seen.name} waited in the queue until the limit of {self.limit_s:g} s, where SLURM gives"
                f" {self.seen.reason!r} as the reason; it is cancelled. Give a larger --limit-s, or try again when the"
                " queue is shorter"
            )
        return f"{self._state()} after {self.limit_s:g} s; give a larger --limit-s"

    def _why_failed(self) -> str:
        job_dir = self._job_file("job.save")
        failures = [] if job_dir is None else CheckFolder(path=job_dir.parent / "checks").failures()
        if failures:
            return f"{self.seen.name} failed: {_in_short(failures[0].message)}"
        ended = None if self.seen.job_id is None else self.slurm.how_it_ended(self.seen.job_id)
        return (
            f"{self.seen.name} ended{f' as {ended}' if ended else ''} without a result; the last words of its"
            f" logs were {self._last_words()!r}"
        )

    def _last_words(self) -> str:
        """:return: the last line of the logs that SLURM wrote, in which srun says why it could not start a worker"""
        logs = sorted(self.folder.glob(f"{JOBS}/ClusterCheckJob.*/engine/*"), key=lambda path: path.stat().st_mtime)
        lines = [line.strip() for log in logs for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "nothing"


def _in_short(message: str) -> str:
    """:return: the sentence of the launcher, and the last line of the log that it shows"""
    first, *others = message.splitlines()
    shown: list[str] = []
    for line in others:
        if not line.startswith("    "):
            if shown:
                break
            continue
        shown.append(line.strip())
    return f"{first} The log ends with {shown[-1]!r}" if shown and shown[-1] not in first else first


@contextmanager
def _manager(folder: Path, config: str) -> Iterator[subprocess.Popen[bytes]]:
    """``sis manager -r``, which asks nothing here, and whose exit code says nothing."""
    (folder / "log").mkdir()
    script = Path(sys.executable).with_name("sis")
    sis = [str(script)] if script.is_file() else [sys.executable, "-m", "sisyphus"]
    with open(folder / MANAGER_LOG, "wb") as log:
        process = subprocess.Popen(
            bound_command([*sis, "manager", "-r", config]),
            cwd=folder,
            env=_manager_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for us alone: then we end it, and what it started.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with uninterrupted():
            _end(process)


def _manager_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """
    :param environ: ours
    :return: that of the manager
    """
    path = os.pathsep.join([os.path.dirname(sys.executable), environ.get("PATH", os.defpath)])
    return {**environ, **ENVIRONMENT, "PATH": path}


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, and then for certain, with all that it started."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_MANAGER_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Whatever asks us to end lets us clean up first."""

    def interrupt(signum: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt(f"ended by {signal.Signals(signum).name}")

    old = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)
