"""
The small file that each rank keeps about itself, ``rank<R>.json``: who it is, where it runs, and how it ended.

It is replaced as a whole, so a reader sees either the old or the new one. The launcher proves from these files that the
world had the size that was asked for, and finds in them who failed first.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError, ReadError
from syncopate.launch.environment import AGENT, ATTEMPT

OUTCOMES = ("finished", "failed", "interrupted", "killed")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """
    How a rank ended.

    :param kind: "finished"; "failed": by an exception or an exit code; "interrupted": by SIGINT, as RETURNN does when
        the time limit comes near; "killed": it was gone without a word
    :param time_s: when, in seconds since 1970
    :param exit_code: of the process, None if it was killed
    :param error: type and text of the exception
    :param traceback: its last lines
    """

    kind: str
    time_s: float
    exit_code: int | None = None
    error: str | None = None
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """
    :param rank: its number in the world
    :param world_size: how many ranks it was told there are
    :param local_rank: its number on its node
    :param node: of which it is part, torchrun's GROUP_RANK
    :param agent: number of the agent that started it; None if the launcher did not say
    :param host: name of the machine
    :param pid: of the process
    :param start_time_s: in seconds since 1970
    :param attempt: id of the start of the training it belongs to
    :param log_dir: folder of stdout.log and stderr.log, None without torchrun
    :param outcome: None while it runs
    """

    rank: int
    world_size: int
    local_rank: int
    node: int
    agent: int | None
    host: str
    pid: int
    start_time_s: float
    attempt: str | None
    log_dir: str | None
    outcome: Outcome | None = None

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str]) -> RankRecord:
        """
        :param environ: of the rank; without torchrun's variables it is the only one
        """
        error_file = environ.get("TORCHELASTIC_ERROR_FILE")
        return cls(
            rank=int(environ.get("RANK", "0")),
            world_size=int(environ.get("WORLD_SIZE", "1")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
            node=int(environ.get("GROUP_RANK", "0")),
            agent=int(environ[AGENT]) if AGENT in environ else None,
            host=socket.gethostname(),
            pid=os.getpid(),
            start_time_s=time.time(),
            attempt=environ.get(ATTEMPT),
            log_dir=os.path.dirname(error_file) if error_file else None,
        )

    def ended(self, kind: str, **details: Any) -> RankRecord:
        """
        :param kind: as in :class:`Outcome`
        :param details: the rest of :class:`Outcome`
        :return: this record with the outcome, as of now
        """
        return replace(self, outcome=Outcome(kind=kind, time_s=time.time(), **details))

    @property
    def failed(self) -> bool:
        """Whether it ended, and not well."""
        return self.outcome is not None and self.outcome.kind != "finished"

    def __str__(self) -> str:
        agent = "" if self.agent is None else f", agent {self.agent}"
        return f"rank {self.rank} (local rank {self.local_rank}) on node {self.node} (host {self.host}{agent})"


def record_path(rank_dir: Path, rank: int) -> Path:
    """:return: where a rank keeps its record"""
    return rank_dir / f"rank{rank}.json"


def write_record(rank_dir: Path, record: RankRecord) -> None:
    """
    :param rank_dir: folder of all records
    :param record: replaces what its rank wrote before
    """
    path = record_path(rank_dir, record.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(asdict(record), indent=1) + "\n")
    new.replace(path)


def read_record(path: Path) -> RankRecord:
    """
    :param path: of a record
    :raises ReadError: if it is none
    """
    try:
        fields = json.loads(path.read_text())
        outcome = fields.pop("outcome")
        if outcome is not None:
            outcome = Outcome(**{**outcome, "traceback": tuple(outcome["traceback"])})
        return RankRecord(**fields, outcome=outcome)
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise ReadError(f"{path}: not the record of a rank: {type(exc).__name__}: {exc}") from exc


def mark_killed(rank_dir: Path, rank: int) -> None:
    """
    Notes that a rank is gone, unless it said so itself.

    :param rank_dir: folder of all records
    :param rank: which is gone
    """
    record = read_record(record_path(rank_dir, rank))
    if record.outcome is None:
        write_record(rank_dir, record.ended("killed"))


def read_records(rank_dir: Path, *, attempt: str | None = None) -> list[RankRecord]:
    """
    :param rank_dir: folder of all records
    :param attempt: leave out what other attempts wrote; None takes all
    :return: by rank
    """
    records = [read_record(path) for path in rank_dir.glob("rank*.json")]
    return sorted((r for r in records if attempt in (None, r.attempt)), key=lambda record: record.rank)


def check_ranks(rank_dir: str | Path, cluster: Cluster, *, attempt: str | None = None) -> list[RankRecord]:
    """
    The proof that one world of the right size trained, and not several small ones that each went well.

    :param rank_dir: folder of the records
    :param cluster: what was asked for
    :param attempt: the attempt that counts; None takes all records
    :return: the records, by rank
    :raises LaunchError: unless the ranks seen are exactly those of the cluster, each knowing the size of the world
    """
    rank_dir = Path(rank_dir)
    records = read_records(rank_dir, attempt=attempt)
    wanted = set(range(cluster.world_size))
    seen = {record.rank for record in records}
    wrong: list[str] = []
    if missing := sorted(wanted - seen):
        wrong.append(f"ranks {missing} were never seen")
    if foreign := sorted(seen - wanted):
        wrong.append(f"ranks {foreign} should not exist")
    wrong += [
        f"{record} was told a world of {record.world_size}" for record in records if record.world_size != len(wanted)
    ]
    if wrong:
        raise LaunchError(
            f"{cluster.world_size} ranks were asked for ({cluster}), but they were not one world:"
            f" {'; '.join(wrong)} (records in {rank_dir}). The result is rejected."
        )
    return records
