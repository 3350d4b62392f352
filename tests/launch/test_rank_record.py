from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError, ReadError
from syncopate.launch.rank_record import (
    RankRecord,
    check_ranks,
    mark_killed,
    read_record,
    read_records,
    record_path,
    write_record,
)

RECORD = RankRecord(
    rank=0,
    world_size=4,
    local_rank=0,
    node=0,
    agent=0,
    host="gpu07",
    pid=123,
    start_time_s=1.0,
    attempt="now",
    log_dir="/logs/0",
)


def write_world(folder: Path, ranks: list[int], *, world_size: int = 4, attempt: str = "now") -> None:
    for rank in ranks:
        record = replace(RECORD, rank=rank, node=rank // 2, local_rank=rank % 2, agent=1 - rank // 2)
        write_record(folder, replace(record, world_size=world_size, attempt=attempt))


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    failed = RECORD.ended("failed", exit_code=1, error="ValueError: no", traceback=("a", "b"))
    for record in (RECORD, failed):
        write_record(tmp_path, record)
        assert read_record(record_path(tmp_path, 0)) == record
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.json"]
    assert failed.failed
    assert not RECORD.failed
    assert not RECORD.ended("finished", exit_code=0).failed


def test_record_of_a_process_under_torchrun_and_alone() -> None:
    environ = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "2",
        "SYNCOPATE_AGENT": "0",
        "SYNCOPATE_ATTEMPT": "now",
        "TORCHELASTIC_ERROR_FILE": "/logs/x/1/error.json",
    }
    record = RankRecord.of_this_process(environ)
    assert (record.rank, record.world_size, record.local_rank, record.node, record.agent) == (5, 8, 1, 2, 0)
    assert (record.pid, record.attempt, record.log_dir) == (os.getpid(), "now", "/logs/x/1")
    alone = RankRecord.of_this_process({})
    assert (alone.rank, alone.world_size, alone.local_rank, alone.node, alone.agent) == (0, 1, 0, 0, None)
    assert (alone.attempt, alone.log_dir) == (None, None)


def test_a_rank_that_said_how_it_ended_is_not_marked_killed(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    mark_killed(tmp_path, 0)
    (killed,) = read_records(tmp_path)
    assert killed.outcome is not None
    assert killed.outcome.kind == "killed"
    write_record(tmp_path, RECORD.ended("finished", exit_code=0))
    mark_killed(tmp_path, 0)
    (finished,) = read_records(tmp_path)
    assert finished.outcome is not None
    assert finished.outcome.kind == "finished"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank": 0}', '{"rank": 0, "outcome": null}'])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(text)
    with pytest.raises(ReadError) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path}: not the record of a rank: ")


def test_k10_one_world_of_the_right_size_passes(tmp_path: Path) -> None:
    """K10. Which agent got which node does not matter."""
    write_world(tmp_path, [3, 1, 0, 2])
    assert [record.rank for record in check_ranks(tmp_path, Cluster(num_nodes=2, num_gpus_per_node=2))] == [0, 1, 2, 3]


def test_k10_worlds_of_one_node_are_rejected(tmp_path: Path) -> None:
    """K10: each of two nodes trained a world of its own, and both went well."""
    write_world(tmp_path, [0, 1], world_size=2)
    with pytest.raises(LaunchError) as caught:
        check_ranks(tmp_path, Cluster(num_nodes=2, num_gpus_per_node=2))
    assert str(caught.value) == (
        "4 ranks were asked for (2x2 gpu), but they were not one world: ranks [2, 3] were never seen;"
        " rank 0 (local rank 0) on node 0 (host gpu07, agent 1) was told a world of 2;"
        " rank 1 (local rank 1) on node 0 (host gpu07, agent 1) was told a world of 2"
        f" (records in {tmp_path}). The result is rejected."
    )


def test_k10_too_many_ranks_are_rejected(tmp_path: Path) -> None:
    """K10"""
    write_world(tmp_path, [0, 1, 2, 3])
    with pytest.raises(LaunchError, match=r"1 ranks were asked for .* ranks \[1, 2, 3\] should not exist; rank 0 "):
        check_ranks(tmp_path, Cluster())


def test_records_of_an_earlier_attempt_prove_nothing(tmp_path: Path) -> None:
    write_world(tmp_path, [0, 1, 2, 3], attempt="before")
    write_world(tmp_path, [0, 1])
    assert len(check_ranks(tmp_path, Cluster(num_gpus_per_node=4))) == 4
    with pytest.raises(LaunchError, match=r"ranks \[2, 3\] were never seen"):
        check_ranks(tmp_path, Cluster(num_gpus_per_node=4), attempt="now")


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"ranks \[0\] were never seen"):
        check_ranks(tmp_path / "missing", Cluster())


def test_file_is_plain_json(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    assert json.loads((tmp_path / "rank0.json").read_text()) == {
        "rank": 0,
        "world_size": 4,
        "local_rank": 0,
        "node": 0,
        "agent": 0,
        "host": "gpu07",
        "pid": 123,
        "start_time_s": 1.0,
        "attempt": "now",
        "log_dir": "/logs/0",
        "outcome": None,
    }
