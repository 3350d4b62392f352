from __future__ import annotations

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import ClusterError, LaunchError
from syncopate.launch.command import agent_command, rank_tail
from syncopate.launch.place import Meeting

HERE = Meeting(host="127.0.0.1", port=23456, id="20260101T120000-abcdef.0")


def test_k09_emulated_node_gets_its_own_number_of_ranks_not_the_total() -> None:
    """K09: 2 nodes, 8 ranks."""
    command = agent_command(
        python="/env/bin/python",
        cluster=Cluster.from_num_ranks(8, num_nodes=2),
        meeting=HERE,
        agent=1,
        tail=rank_tail("/run/returnn.config"),
        log_dir="/run/logs/x/agent1",
        local_address="127.0.0.1",
    )
    assert command == [
        "/env/bin/python",
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--nproc-per-node=4",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:23456",
        "--rdzv-id=20260101T120000-abcdef.0",
        "--rdzv-conf=is_host=false,join_timeout=600,read_timeout=600,close_timeout=10",
        "--max-restarts=0",
        "--log-dir=/run/logs/x/agent1",
        "--redirects=3",
        "--tee=3",
        "--local-addr=127.0.0.1",
        "-m",
        "syncopate.launch.rank",
        "/run/returnn.config",
    ]


def test_k09_seven_ranks_on_two_nodes() -> None:
    with pytest.raises(ClusterError, match="7 ranks cannot be shared equally by 2 nodes"):
        Cluster.from_num_ranks(7, num_nodes=2)


def test_exactly_one_agent_hosts_the_store() -> None:
    hosts = [
        next(part for part in command if part.startswith("--rdzv-conf")).split(",")[0]
        for command in (
            agent_command(python="p", cluster=Cluster(num_nodes=3), meeting=HERE, agent=agent, tail=["x"], log_dir="l")
            for agent in range(3)
        )
    ]
    assert hosts == ["--rdzv-conf=is_host=true", "--rdzv-conf=is_host=false", "--rdzv-conf=is_host=false"]


def test_slurm_node_meets_on_the_first_host_under_its_own_address() -> None:
    arguments = {"python": "python", "cluster": Cluster(num_nodes=2), "agent": 1, "tail": ["x"], "log_dir": "l"}
    meeting = Meeting(host="gpu07i", port=24711, id="4711.0.train")
    command = agent_command(**arguments, meeting=meeting, local_address="gpu08i", join_limit_s=60)
    assert "--rdzv-endpoint=gpu07i:24711" in command
    assert "--rdzv-id=4711.0.train" in command
    assert "--rdzv-conf=is_host=false,join_timeout=60,read_timeout=60,close_timeout=10" in command
    assert command[-2:] == ["--local-addr=gpu08i", "x"]
    command = agent_command(**arguments, meeting=meeting)
    assert not [part for part in command if part.startswith("--local-addr")], "torchrun asks this host for its name"


def test_one_process_needs_no_torchrun_but_one_rank_with_a_scheme_does() -> None:
    arguments = {"python": "python", "cluster": Cluster(), "meeting": HERE, "agent": 0, "log_dir": "l"}
    tail = rank_tail("c")
    assert agent_command(**arguments, tail=tail, distributed=False) == ["python", "-m", "syncopate.launch.rank", "c"]
    assert "--nproc-per-node=1" in agent_command(**arguments, tail=tail)


def test_one_process_cannot_be_several_ranks() -> None:
    with pytest.raises(LaunchError, match="distributed=False starts a single process, but the cluster has 2 ranks"):
        agent_command(
            python="p", cluster=Cluster(num_nodes=2), meeting=HERE, agent=0, tail=[], log_dir="l", distributed=False
        )
