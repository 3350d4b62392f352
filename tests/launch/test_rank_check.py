"""The ranks of a test job: on emulated nodes they meet, and one that waits in vain gives up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import syncopate
from syncopate.cluster import Cluster
from syncopate.launch.check_record import CheckFolder
from syncopate.launch.here import is_free
from syncopate.launch.rank_record import read_records
from tests.launch.trainings import train


def test_ranks_of_two_emulated_nodes(tmp_path):
    folder = CheckFolder(path=tmp_path / "checks")
    folder.path.mkdir()
    seen = tmp_path / "log"
    seen.write_text("a line")
    tail = ("-m", "syncopate.launch.rank_check", str(folder.path), "--sees", str(seen))
    tail += ("--module", "syncopate.launch.rank", "--module", "syncopate.no_such_part")
    cluster = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
    train(tmp_path, cluster, tail=tail, returnn_root=None)
    ranks = folder.ranks()
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert [rank.local_rank for rank in ranks] == [0, 1, 0, 1]
    for rank in ranks:
        assert rank.returnn_error is None
        assert rank.syncopate_error.startswith("import syncopate.no_such_part: ModuleNotFoundError")
        assert set(rank.cpus) == os.sched_getaffinity(0)
        exchange = rank.exchanged
        assert exchange.is_sum_right
        assert exchange.backend == "gloo"
        assert exchange.unseen == []
        assert set(exchange.seen_after_s) == {*(f"rank{number}.json" for number in range(4)), "log"}
        assert exchange.interfaces
    assert ranks[0].exchanged.clock_offset_s == 0


def test_a_rank_that_nobody_meets_gives_up(tmp_path):
    port = next(port for port in range(20000, 30000) if is_free(port))
    environ = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SYNCOPATE_DEVICE": "cpu"}
    environ |= {"SYNCOPATE_RANK_DIR": str(tmp_path / "ranks"), "PYTHONPATH": str(Path(syncopate.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "syncopate.launch.rank_check", str(tmp_path), "--limit-s", "8"],
        env={**os.environ, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 4, done.stderr
    (record,) = read_records(tmp_path / "ranks")
    assert record.outcome.error == ("TimeoutError: it did not get through the exchange with the other ranks within 8 s")
