"""Two nodes as two real launchers on this host, which believe that srun started them: no SLURM is needed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncopate.cluster import Cluster
from syncopate.launch.board import NodeNote, note_from_json
from syncopate.launch.command import rank_tail
from syncopate.launch.here import is_free
from syncopate.launch.place import PORT_TRIES, Allocation, find_place
from syncopate.launch.rank_record import RankRecord, read_records
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training
from tests.launch.trainings import make_checkout

HOSTS = ("nodea", "nodeb")
TWO = Cluster(num_nodes=2, device="cpu")
LIMIT_S = 100.0
"""For whatever is waited for. Measured: a case takes 3 to 10 s."""
_FOLDER = "SYNCOPATE_TEST_FOLDER"
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class End:
    """
    How a launcher ended.

    :param exit_code: of its process
    :param kind: class of what :func:`run_training` raised, "" for nothing; None if the process did not get that far
    :param message: its text
    :param output: all that the launcher printed
    """

    exit_code: int
    kind: str | None
    message: str
    output: str

    @property
    def first_line(self) -> str:
        """Of the message: who failed, and how."""
        return self.message.partition("\n")[0]


class TwoNodes:
    """
    One start of a training on two nodes. While it is entered, its launchers run.

    :param folder: of the run, seen by both
    :param body: of ``rnn.py``, see :func:`tests.launch.trainings.make_checkout`; ``note(text)`` adds to the events
    :param setup: statements that each launcher executes before, such as to shorten a limit; ``index`` is there
    :param environ: added to the environment, for each node
    :param present: which nodes have a launcher
    :param job_id: of SLURM, by default one whose ports are free now
    :param options: for :class:`Training`
    """

    def __init__(
        self,
        folder: Path,
        body: str = "",
        *,
        setup: str = "",
        environ: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
        present: tuple[int, ...] = (0, 1),
        job_id: int | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self._setup = setup
        self._environ = environ
        self._present = present
        self._options = options
        self.job_id = job_id if job_id is not None else free_job_id()
        self.launchers: dict[int, subprocess.Popen[bytes]] = {}
        if not (folder / "checkout").exists():
            events = f"def note(text):\n    with open({str(folder / 'events')!r}, 'a') as f: f.write(text + '\\n')\n"
            make_checkout(folder / "checkout", body)
            program = folder / "checkout" / "rnn.py"
            program.write_text(events + program.read_text())

    def __enter__(self) -> Self:
        for index in self._present:
            self.start(index)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for launcher in self.launchers.values():
            launcher.kill()  # agents and ranks die with it
            launcher.wait()

    def start(self, index: int) -> None:
        """
        :param index: of the node
        """
        with self._output(index).open("wb") as output:
            self.launchers[index] = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import sys\n"
                    "from syncopate.launch import board, node, watch\n"
                    "from tests.launch.nodes import run_one\n"
                    f"index = {index}\n{self._setup}\n"
                    f"run_one(sys.argv[1], sys.argv[2])",
                    str(self._end_file(index)),
                    json.dumps(self._options),
                ],
                env={**slurm_environment(self.folder, self.job_id, index), **self._environ[index]},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> list[End]:
        """:return: how the launchers ended"""
        return [self.wait_for(index) for index in self._present]

    def wait_for(self, index: int) -> End:
        """
        :param index: of a node
        :return: how its launcher ended
        """
        exit_code = self.launchers[index].wait(LIMIT_S)
        output = self._output(index).read_text(errors="replace")
        file = self._end_file(index)
        told = json.loads(file.read_text()) if file.exists() else {"kind": None, "message": ""}
        return End(exit_code=exit_code, output=output, **told)

    @property
    def allocation(self) -> Allocation:
        """As the first node sees it."""
        found = find_place(TWO, slurm_environment(self.folder, self.job_id, 0)).allocation
        assert found is not None
        return found

    @property
    def log_dir(self) -> Path:
        """Of this start."""
        return self.folder / "run" / "logs" / f"{self.job_id}.0.train"

    def records(self) -> list[RankRecord]:
        """:return: of the ranks of this start so far"""
        return read_records(self.log_dir / "ranks")

    def note_of(self, index: int) -> NodeNote:
        """
        :param index: of a node
        :return: what its launcher told last
        """
        return note_from_json((self.log_dir / "nodes" / f"node{index}.json").read_text())

    def events(self) -> list[str]:
        """:return: what hooks, ranks and launchers noted, in the order of time"""
        path = self.folder / "events"
        return path.read_text().splitlines() if path.exists() else []

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """
        :param holds: waited for; it is an error if a launcher ends before
        """
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            ended = {index: process.poll() for index, process in self.launchers.items() if process.poll() is not None}
            outputs = "\n".join(self._output(index).read_text(errors="replace") for index in self._present)
            assert not ended, f"ended early: {ended}\n{outputs}"
            assert time.monotonic() < deadline, outputs
            time.sleep(0.1)

    def wait_for_ranks(self) -> list[RankRecord]:
        """:return: their records, as soon as all run"""
        self.wait_until(lambda: len(self.records()) == TWO.world_size)
        return self.records()

    def _output(self, index: int) -> Path:
        return self.folder / f"launcher{index}.{self.job_id}.log"

    def _end_file(self, index: int) -> Path:
        return self.folder / f"end{index}.{self.job_id}.json"


def slurm_environment(folder: Path, job_id: int, index: int) -> dict[str, str]:
    """
    :param folder: of the run
    :param job_id: of SLURM
    :param index: of the node
    :return: what srun sets for a launcher, as far as it is of interest
    """
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
        _FOLDER: str(folder),
        "PYTHONPATH": os.pathsep.join([str(_REPOSITORY / "recipe"), str(_REPOSITORY)]),
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NODELIST": ",".join(HOSTS),
        "SLURM_NODEID": str(index),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "2",
        "SYNCOPATE_ENGINE": "slurm",
        "SYNCOPATE_MEETING_HOST": "127.0.0.1",
    }


def free_job_id() -> int:
    """:return: a number that no other test has, and whose ports nobody uses now"""
    while True:
        job_id = secrets.randbelow(10**9)
        allocation = find_place(TWO, slurm_environment(Path(), job_id, 0)).allocation
        assert allocation is not None
        if all(is_free(allocation.meeting(number).port) for number in range(PORT_TRIES)):
            return job_id


def run_one(end_file: str, options: str) -> None:
    """
    What a launcher's process does.

    :param end_file: gets how it ended
    :param options: for :class:`Training`, as JSON; ``prepare`` and ``finish`` name errors that the hooks are to raise
    """
    folder, index = Path(os.environ[_FOLDER]), os.environ["SLURM_NODEID"]
    arguments = json.loads(options)

    def hook(name: str) -> Callable[[], None]:
        error = arguments.pop(name, None)

        def run() -> None:
            _note(folder, f"{name} by node {index}")
            time.sleep(1.0)  # nobody may go on meanwhile
            if error is not None:
                raise ValueError(error)
            _note(folder, f"{name} is done")

        return run

    hooks = Hooks(prepare=hook("prepare"), finish=hook("finish"))
    training = Training(
        **{
            "config_file": folder / "tiny.config",
            "run_dir": folder / "run",
            "work_dir": folder / "work",
            "cluster": TWO,
            "python": sys.executable,
            "returnn_root": folder / "checkout",
            "tail": rank_tail("tiny.config"),
            **arguments,
        }
    )
    end = {"kind": "", "message": ""}
    try:
        run_training(training, environ=os.environ, hooks=hooks)
    except BaseException as exc:
        end = {"kind": type(exc).__name__, "message": str(exc)}
    _note(folder, f"node {index} ended")
    Path(end_file).write_text(json.dumps(end))
    sys.exit(end["kind"] != "")


def _note(folder: Path, text: str) -> None:
    with (folder / "events").open("a") as file:
        file.write(f"{text}\n")
