"""A folder in which the real `sis manager` trains sweeps on the cluster, and what can be seen of its jobs."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from syncopate.launch.board import NodeNote, note_from_json
from syncopate.launch.failure import log_end
from syncopate.launch.rank_record import RankRecord, read_records
from syncopate.returnn_io.learning_rates import LearningRates, read_learning_rates

if TYPE_CHECKING:
    from tests.slurm.conftest import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
SIS = Path(sys.executable).with_name("sis")
LIMIT_S = 240.0
"""For whatever a training takes; a start takes 20 s on two cores that have nothing else to do."""
ENDED_LIMIT_S = 60.0
"""How long the processes of a training may outlive the first of them that was killed."""
ALLOWED_STARTS = 3
"""Those in a row that may bring nothing: Sisyphus' MAX_SUBMIT_RETRIES."""
_STOP_LIMIT_S = 30.0
_POLL_S = 0.2
Seen = TypeVar("Seen")

SETTINGS = """
# The tests read logs, which are packed otherwise.
JOB_AUTO_CLEANUP = False
"""
HEAD = """
from syncopate import Cluster, Resources, Sweep, param_avg
from syncopate.tasks.char_lm import char_lm


def py():
"""


def sweep_text(
    prefix: str,
    rows: Mapping[str, str],
    *,
    num_epochs: int,
    num_gpus_per_node: int = 2,
    base: str = "char_lm(max_train_sequences=512)",
    resources: str = "mem_gb=2, time_h=1",
    options: str = "",
) -> str:
    """
    :param prefix: of the sweep
    :param rows: by name, code for the trial that is then called ``trial``, such as ``trial.job.set_env("A", "b")``
    :param num_epochs: of each
    :param num_gpus_per_node: ranks on each of two nodes
    :param base: code of the experiment
    :param resources: of one rank
    :param options: more arguments of the sweep
    :return: statements for :data:`HEAD`. Each row is the same training under a hash of its own.
    """
    lines = [
        f"base = {base}.updated({{'note': None}})",
        f"sweep = Sweep({prefix!r}, base=base, num_epochs={num_epochs}, resources=Resources({resources}),",
        f"    cluster=Cluster(num_nodes=2, num_gpus_per_node={num_gpus_per_node}, device='cpu'),",
        f"    torch_distributed={{'dataset_distribution': 'shard'}}, {options})",
    ]
    for name in rows:
        lines.append(f"trial_{name} = sweep.add({name!r}, param_avg(every=2), note={name!r})")
    lines.append("sweep.register()")
    for name, code in rows.items():
        if code:
            lines += [f"trial = trial_{name}", code]
    return "".join(f"    {line}\n" for line in lines)


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


class Setup:
    """
    A folder as a user of Sisyphus has. While it is entered, managers may run; at the end nothing of it does.

    :param folder: made by ``make_setup_folder``
    :param cluster: that its tasks run on
    :param settings: lines at the end of ``settings.py``
    """

    def __init__(self, folder: Path, cluster: Cluster, *, settings: str = "") -> None:
        self.folder = folder
        self.cluster = cluster
        (folder / "settings.py").unlink()
        text = (REPOSITORY / "settings.py").read_text(encoding="utf-8")
        (folder / "settings.py").write_text(f"{text}{SETTINGS}{settings}", encoding="utf-8")
        for name in ("config", "work"):
            (folder / name).mkdir()
        self._manager: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        own = {job_id for folder in self._job_folders() for job_id in Training(folder, self.cluster).job_ids()}
        left = own & self.cluster.squeue().keys()
        for job_id in left:
            self.cluster.run("scancel", str(job_id))
        self.cluster.wait_for("end of the jobs", lambda: not own & self.cluster.squeue().keys())
        # Of a manager that was stopped, tasks of its LocalEngine may still run.
        end_s = time.monotonic() + _STOP_LIMIT_S
        while (pids := pids_in(self.folder)) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def write(self, *sweeps: str, head: str = "", name: str = "sweeps") -> str:
        """
        :param sweeps: see :func:`sweep_text`
        :param head: of the config
        :param name: of the config
        :return: the path of a config for the manager
        """
        path = f"config/{name}.py"
        (self.folder / path).write_text(f"{head}{HEAD}{''.join(sweeps)}", encoding="utf-8")
        return path

    def start(self, config: str) -> None:
        """A manager in the background."""
        assert self._manager is None
        with (self.folder / "manager.log").open("ab") as log:
            self._manager = subprocess.Popen(
                [str(SIS), "manager", "-r", config],
                cwd=self.folder,
                env=self._environ(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert self._manager.stdin is not None
        # Asked only if all is done already: update outputs and aliases.
        self._manager.stdin.write(b"u\n")
        self._manager.stdin.close()

    def stop(self) -> None:
        """Ends the manager, if it runs. Jobs go on."""
        if self._manager is None:
            return
        if self._manager.poll() is None:
            self._manager.terminate()
            try:
                self._manager.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._manager.kill()
        self._manager.wait()
        self._manager = None

    def wait_for_end(self, limit_s: float = LIMIT_S) -> None:
        """Until the manager has nothing to do any more."""
        assert self._manager is not None
        try:
            self._manager.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the manager still runs after {limit_s} s\n{self.manager_log()[-4000:]}") from None
        self._manager = None

    def manager_log(self) -> str:
        return (self.folder / "manager.log").read_text(errors="replace")

    def training(self, alias: str, limit_s: float = LIMIT_S) -> Training:
        """
        :param alias: prefix of the sweep and name of the run; the manager makes it when it starts
        """
        path = self.folder / "alias" / alias

        def look() -> bool:
            assert path.exists() or self._manager is None or self._manager.poll() is None, self.manager_log()
            return path.exists()

        self.cluster.wait_for(f"alias {alias}", look, limit_s)
        return Training(path.resolve(), self.cluster)

    def compare(self, *arguments: str) -> str:
        """What ``python -m syncopate compare`` prints."""
        done = subprocess.run(
            [sys.executable, "-m", "syncopate", "compare", *arguments],
            cwd=self.folder,
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environ(self) -> dict[str, str]:
        """That of a user's shell with the environment of the setup activated: i6_core looks for black there."""
        environ = {name: value for name, value in self.cluster.environ.items() if name not in ("PYTHONPATH", "CI")}
        return {**environ, "PATH": os.pathsep.join([str(SIS.parent), environ.get("PATH", os.defpath)])}

    def _job_folders(self) -> Iterator[Path]:
        for path in self.folder.glob("work/**/submit_log.run"):
            yield path.parent


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
