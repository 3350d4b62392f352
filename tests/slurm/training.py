"""What the folder of one training, SLURM, and the processes on this host say about it."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from syncopate.launch.board import NodeNote, note_from_json
from syncopate.launch.failure import log_end
from syncopate.launch.rank_record import RankRecord, read_records
from syncopate.returnn_io.learning_rates import LearningRates, read_learning_rates

if TYPE_CHECKING:
    from tests.slurm.conftest import Cluster

LIMIT_S = 240.0
"""For whatever a training takes; a start takes 20 s on two cores that have nothing else to do."""
ENDED_LIMIT_S = 60.0
"""How long the processes of a training may outlive the first of them that was killed."""
_POLL_S = 0.2
Seen = TypeVar("Seen")


class Training:
    """
    One training job, as its folder shows it.

    :param folder: of the Sisyphus job
    :param cluster: on which it runs
    """

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.cluster = cluster

    def submissions(self) -> list[dict[str, Any]]:
        """What SLURM was asked for each time."""
        path = self.folder / "submit_log.run"
        return [ast.literal_eval(line)[1] for line in path.read_text().splitlines()] if path.exists() else []

    def job_ids(self) -> list[int]:
        """SLURM's, of all submissions."""
        slurm = [each["engine_info"] for each in self.submissions() if each["engine_name"] == "slurm"]
        return [int(job_id) for info in slurm for _, job_id in info if job_id is not None]

    def attempts(self) -> list[str]:
        """Ids of all starts."""
        return [line["attempt"] for line in self.journal() if "attempt" in line]

    def ends(self) -> dict[str, str]:
        """How starts ended that ended early, by id."""
        return {line["end_of"]: line["reason"] for line in self.journal() if "end_of" in line}

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "attempts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []

    def ranks(self, attempt: str | None = None) -> list[RankRecord]:
        """Of one start, by default of the last one."""
        attempts = self.attempts()
        if attempt is None and not attempts:
            return []
        return read_records(self.folder / "logs" / (attempt or attempts[-1]) / "ranks")

    def notes(self, attempt: str | None = None) -> dict[int, NodeNote]:
        """What the launchers of one start say, by number of the node."""
        folder = self.folder / "logs" / (attempt or self.attempts()[-1]) / "nodes"
        return {note.node: note for note in map(_note, sorted(folder.glob("node*.json")))}

    def rank_on(self, node: int) -> RankRecord:
        """One of the last start that runs on this node of the job."""
        return next(record for record in self.ranks() if record.agent == node)

    def agent_pid(self, node: int) -> int:
        """Of the last start: torchrun on this node of the job."""
        return parent_pid(self.rank_on(node).pid)

    def launcher_pid(self, node: int) -> int:
        """Of the last start: the Sisyphus worker on this node of the job."""
        pid = parent_pid(self.agent_pid(node))
        assert pid == self.notes()[node].pid
        return pid

    def learning_rates(self) -> LearningRates | None:
        """Those of the job's output if it is finished, else as far as it got."""
        for name in ("output/learning_rates", "work/learning_rates"):
            if (self.folder / name).exists():
                return read_learning_rates(self.folder / name)
        return None

    def epochs(self) -> list[int]:
        """Those that are trained."""
        rates = self.learning_rates()
        return [epoch.epoch for epoch in rates.trained] if rates is not None else []

    def checkpoints(self) -> list[int]:
        """Epochs of the checkpoints that a start can go on from."""
        models = self.folder / "output" / "models"
        return sorted(int(path.name.split(".")[1]) for path in models.glob("epoch.*.opt.pt"))

    def rank_log(self, rank: int, attempt: str) -> str:
        """What one rank of a start printed."""
        (record,) = (record for record in self.ranks(attempt) if record.rank == rank)
        return (Path(record.log_dir or "") / "stdout.log").read_text(errors="replace")

    def log(self, node: int | None = None) -> str:
        """Of the task, or of one of its nodes."""
        path = self.folder / ("log.run.1" if node is None else f"log.run.1.{node}")
        return path.read_text(errors="replace")

    def engine_log(self, job_id: int, node: int) -> str:
        """What SLURM wrote of one node."""
        (path,) = (self.folder / "engine").glob(f"*.run.{job_id}.1.{node}")
        return path.read_text(errors="replace")

    @property
    def has_failed(self) -> bool:
        return (self.folder / "error.run.1").exists()

    @property
    def has_finished(self) -> bool:
        return (self.folder / "finished.run.1").exists()

    @property
    def has_ended(self) -> bool:
        return self.has_failed or self.has_finished

    def accounted(self) -> dict[int, str]:
        """State of each job that SLURM ever had for this training, by id."""
        options = ("--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State")
        names = f"--name={self.task_name}"
        lines = self.cluster.run("sacct", *options, names).splitlines()
        return {int(job_id): state for job_id, state in (line.split("|") for line in lines)}

    @property
    def task_name(self) -> str:
        """Of the task that trains, as SLURM has it."""
        parts = self.folder.parts
        return ".".join([*parts[parts.index("work") + 1 :], "run"])

    def launch_error(self, node: int | None = None) -> str:
        """The first line of the error that the task ended with."""
        lines = [line for line in self.log(node).splitlines() if "LaunchError: " in line or "MemoryError: " in line]
        assert lines, self.log(node)[-4000:]
        return lines[-1]

    def trains(self, *, epochs: int = 1, start: int = 1) -> bool:
        """
        :param epochs: of which the checkpoints are there
        :param start: number of the start
        :return: whether all ranks of it run
        """
        assert not self.has_failed, self.log()[-4000:]
        if len(self.attempts()) < start:
            return False
        records = self.ranks()
        return bool(records) and len(records) == records[0].world_size and len(self.checkpoints()) >= epochs

    def wait_until_gone(self, job_id: int, *, limit_s: float = ENDED_LIMIT_S) -> None:
        """Until SLURM is done with the job, and none of its processes runs."""

        def look() -> bool:
            in_slurm = job_id in self.cluster.squeue() or bool(self.cluster.processes(job_id))
            return not in_slurm and not pids_in(self.folder)

        self.wait_for(f"end of job {job_id}", look, limit_s)

    def start_now(self, job_id: int) -> None:
        """Skips the wait after a requeue, which is 2 minutes."""
        self.wait_for("requeued job", lambda: self.cluster.squeue().get(job_id) == "PENDING", ENDED_LIMIT_S)
        self.cluster.run("scontrol", "update", f"jobid={job_id}", "StartTime=now")

    def wait_for(self, what: str, look: Callable[[], Seen], limit_s: float = LIMIT_S) -> Seen:
        """The first thing seen that is true."""
        end_s = time.monotonic() + limit_s
        while not (seen := look()):
            if time.monotonic() > end_s:
                shown = "\n".join(
                    f"{path.name}:\n{log_end(path)[-2000:]}" for path in sorted(self.folder.glob("log.run.*"))
                )
                raise AssertionError(f"no {what} after {limit_s} s; the last seen was {seen!r}\n{shown}")
            time.sleep(_POLL_S)
        return seen


def pids_in(folder: Path) -> list[int]:
    """Processes that work in this folder, or below it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            cwd = path.readlink()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # It ended in between, or is somebody else's.
        if cwd.is_relative_to(folder):
            found.append(int(path.parent.name))
    return found


def parent_pid(pid: int) -> int:
    """:return: the process that started it"""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _note(path: Path) -> NodeNote:
    """A launcher may be writing it."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return note_from_json(path.read_text(encoding="utf-8"))
        except ValueError:
            if time.monotonic() > end_s:
                raise
            time.sleep(_POLL_S)
