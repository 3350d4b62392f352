"""
What a test job writes down, in one folder that all of its nodes see: a file per worker, one per rank, and one per
worker that failed. Whoever started it reads them, also where the job ended early.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from syncopate.errors import ReadError


class _Record:
    """A dataclass that is a file of JSON."""

    def write(self, path: Path) -> None:
        """
        :param path: replaced as a whole, so that nobody reads half of it
        """
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")  # type: ignore[call-overload]
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """
        :param path: of a file
        :raises ReadError: if it is something else
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as exc:
            raise ReadError(f"{path}: not a {cls.__name__}: {type(exc).__name__}: {exc}") from exc


@dataclass(frozen=True, kw_only=True)
class WorkerCheck(_Record):
    """
    What the manager's python found on a node, before ranks were started.

    :param number: of the SLURM task that it is
    :param node: name of the node in SLURM
    :param on_each_node: whether SLURM runs one on each node; None if that could not be told
    :param names: of the variables for trainings that are set here
    :param has_squeue: whether squeue is on the PATH
    :param python_error: why the training python does not answer on this node, None if it does
    :param syncopate_error: why it would not run our syncopate, None if it would
    """

    number: int
    node: str
    on_each_node: bool | None
    names: tuple[str, ...]
    has_squeue: bool
    python_error: str | None
    syncopate_error: str | None


@dataclass(frozen=True, kw_only=True)
class WorkerFailure(_Record):
    """
    How a worker failed.

    :param number: of the SLURM task that it was
    :param message: of the exception
    """

    number: int
    message: str


@dataclass(frozen=True, kw_only=True)
class RankCheck(_Record):
    """
    What a rank found, in the training python.

    :param rank: its number in the world
    :param local_rank: its number on its node
    :param node: name of the node in SLURM, or of the host
    :param python: the interpreter
    :param versions: in words
    :param syncopate_error: why a training could not import what it needs of syncopate, None if it could
    :param returnn_error: why RETURNN would not train here, None if it would
    :param names: of the variables for trainings that are set here
    :param num_cpus: that it may use, by its affinity
    :param num_host_cpus: that the host has
    :param cpus: which it may use
    :param step_cpus: value of SRUN_CPUS_PER_TASK
    :param gpus: names of the GPUs that it sees, None where it was not to look
    :param time_left: of the job, as squeue says it; None if only another rank of the node was to ask
    :param time_left_error: why it could not be told, None if it could
    :param exchange: what the ranks found out together, as in :class:`Exchange`; None if they did not come so far
    """

    rank: int
    local_rank: int
    node: str
    python: str
    versions: str
    syncopate_error: str | None
    returnn_error: str | None
    names: tuple[str, ...]
    num_host_cpus: int
    cpus: tuple[int, ...]
    step_cpus: str | None
    gpus: tuple[str, ...] | None
    time_left: str | None
    time_left_error: str | None
    exchange: Mapping[str, Any] | None = None

    @property
    def exchanged(self) -> Exchange | None:
        """See ``exchange``."""
        return None if self.exchange is None else Exchange(**self.exchange)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """
    What ranks can find out only together.

    :param backend: of torch.distributed
    :param is_sum_right: whether all of them were in one all-reduce
    :param join_s: until all were there
    :param clock_offset_s: how much the clock here is ahead of that of rank 0
    :param interfaces: over which it talked with other ranks
    :param nccl_network: what NCCL says it uses, None without it
    :param seen_after_s: after how long what others wrote was seen here, by name of the file; None for never
    """

    backend: str
    is_sum_right: bool
    join_s: float
    clock_offset_s: float
    interfaces: tuple[str, ...]
    nccl_network: str | None
    seen_after_s: Mapping[str, float | None]

    @property
    def unseen(self) -> list[str]:
        """Names of files that were never seen here."""
        return [name for name, after_s in self.seen_after_s.items() if after_s is None]


@dataclass(frozen=True, kw_only=True)
class CheckFolder:
    """
    :param path: of the folder
    """

    path: Path

    def file_of_rank(self, rank: int) -> Path:
        """:return: where a rank writes its :class:`RankCheck`"""
        return self.path / f"rank{rank}.json"

    def file_of_worker(self, number: int) -> Path:
        """:return: where a worker writes its :class:`WorkerCheck`"""
        return self.path / f"worker{number}.json"

    def file_of_failure(self, number: int) -> Path:
        """:return: where a worker writes its :class:`WorkerFailure`"""
        return self.path / f"failure{number}.json"

    def ranks(self) -> list[RankCheck]:
        """:return: by number, as far as they are there"""
        return sorted(map(RankCheck.read, self.path.glob("rank*.json")), key=lambda one: one.rank)

    def workers(self) -> list[WorkerCheck]:
        """:return: by number, as far as they are there"""
        return sorted(map(WorkerCheck.read, self.path.glob("worker*.json")), key=lambda one: one.number)

    def failures(self) -> list[WorkerFailure]:
        """:return: by number, as far as they are there"""
        return sorted(map(WorkerFailure.read, self.path.glob("failure*.json")), key=lambda one: one.number)
