"""Processes of the cluster: which run, which belong to its jobs, and how they end. Never found by a name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_KILL_LIMIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """
    One process, told from a later one that got the same id by the time at which it started.

    :param pid: process id
    :param start: in ticks of the clock since the host started
    """

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """None if there is none, or only its exit code, which its parent has not asked for yet."""
        stat = _stat(pid)
        return None if stat is None or stat[0] == "Z" else cls(pid=pid, start=int(stat[19]))

    @classmethod
    def load(cls, file: Path) -> Process | None:
        """What :meth:`save` wrote, None if it never did."""
        try:
            pid, start = file.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return None
        return cls(pid=int(pid), start=int(start))

    def save(self, file: Path) -> None:
        file.write_text(f"{self.pid} {self.start}\n", encoding="ascii")

    def runs(self) -> bool:
        return Process.of(self.pid) == self

    def kill(self, number: signal.Signals) -> None:
        if self.runs():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # It ended in between.


@dataclass(frozen=True, kw_only=True)
class JobProcess:
    """
    :param process: one that runs for a job
    :param node: on which it was started
    :param job_id: SLURM's, of one task if it is an array
    """

    process: Process
    node: str
    job_id: str

    def command(self) -> str:
        """Its command line, in which no line ends; empty if it ended."""
        return " ".join(os.fsdecode(_read(self.process.pid, "cmdline")).replace("\0", " ").split())


def of_jobs(*, slurm_conf: Path, sockets: Path, memory_group: Path | None) -> list[JobProcess]:
    """
    Processes that SLURM started for jobs of one cluster, and what those started.

    No daemon is the parent of any (a slurmstepd is a child of init), and a process may leave the parent and the session
    that it was started in. So: who listens on a socket in the spool folder of a node is a slurmstepd of this cluster,
    who has the variables of a job of this cluster in its environment, or is in its control group, is one of its tasks;
    with them come all of their descendants. Without a control group, a process that emptied its environment and left
    its parent is lost, to SLURM as well.

    :param slurm_conf: of the cluster
    :param sockets: the folder of its spool folders
    :param memory_group: its control group, if it has one
    """
    jobs = {**_in_group(memory_group), **_with_environ(slurm_conf), **_step_daemons(sockets)}
    children: dict[int, list[int]] = {}
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(pid)
    todo = list(jobs)
    while todo:
        parent = todo.pop()
        for pid in children.get(parent, ()):
            if pid not in jobs:
                jobs[pid] = jobs[parent]
                todo.append(pid)
    # This command itself may run in a job.
    jobs.pop(os.getpid(), None)
    found = [(Process.of(pid), place) for pid, place in sorted(jobs.items())]
    return [JobProcess(process=process, node=node, job_id=job) for process, (node, job) in found if process is not None]


def stop(processes: Iterable[Process], *, limit_s: float) -> None:
    """
    Asks them to end, kills those that did not, and returns when none runs.

    :param limit_s: time they have to end by themselves
    :raises SystemExit: if one cannot be killed
    """
    left = list(processes)
    for number, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, _KILL_LIMIT_S)):
        for process in left:
            process.kill(number)
        end_s = time.monotonic() + wait_s
        while (left := [process for process in left if process.runs()]) and time.monotonic() < end_s:
            time.sleep(0.02)
        if not left:
            return
    raise SystemExit(f"cluster: cannot kill the processes {[process.pid for process in left]}")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    """Nothing, if it ended or belongs to somebody else."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state (field 3) on: what is before it may contain any character."""
    return os.fsdecode(_read(pid, "stat")).rpartition(")")[2].split() or None


def _with_environ(slurm_conf: Path) -> dict[int, tuple[str, str]]:
    """Node and job, by process id."""
    conf = os.fsencode(slurm_conf)
    found = {}
    for pid in _pids():
        environ = dict(entry.partition(b"=")[::2] for entry in _read(pid, "environ").split(b"\0"))
        # Those without a node are commands of the user, such as one that waits for its job.
        if environ.get(b"SLURM_CONF") == conf and {b"SLURMD_NODENAME", b"SLURM_JOB_ID"} <= environ.keys():
            found[pid] = (os.fsdecode(environ[b"SLURMD_NODENAME"]), os.fsdecode(environ[b"SLURM_JOB_ID"]))
    return found


def _in_group(memory_group: Path | None) -> dict[int, tuple[str, str]]:
    """Node and job, by process id. SLURM makes the groups slurm_NODE/uid_UID/job_JOB/step_STEP/task_TASK."""
    found: dict[int, tuple[str, str]] = {}
    for folder, _, _ in os.walk(memory_group) if memory_group is not None else ():
        try:
            pids = Path(folder, "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            continue  # The group was removed in between: an empty one.
        names = dict(name.partition("_")[::2] for name in Path(folder).parts)
        found |= {int(pid): (names.get("slurm", ""), names.get("job", "")) for pid in pids}
    return found


def _step_daemons(sockets: Path) -> dict[int, tuple[str, str]]:
    """Node and job, by process id. Each has a socket NODE_JOB.STEP in the spool folder of its node."""
    places = {}
    for line in os.fsdecode((_PROC / "net" / "unix").read_bytes()).splitlines()[1:]:
        fields = line.split(maxsplit=7)
        path = Path(fields[7]) if len(fields) == 8 else Path()
        if path.parent.parent == sockets:
            places[f"socket:[{fields[6]}]"] = (path.parent.name, path.stem.rpartition("_")[2])
    if not places:
        return {}
    return {pid: places[name] for pid in _pids() for name in _open_files(pid) if name in places}


def _open_files(pid: int) -> Iterator[str]:
    try:
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            try:
                yield os.readlink(entry)
            except FileNotFoundError:
                continue  # Closed in between.
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return  # As in _read.
