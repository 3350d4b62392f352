from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import syncopate
from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.environment import expose_package, gpus_of_agent, interface_environment, rank_environment


def environment(environ: dict[str, str], **kwargs: object) -> dict[str, str]:
    arguments: dict[str, object] = {
        "python_path": "/run/python_path",
        "num_cores": 4,
        "ranks_on_host": 2,
        "rank_dir": "/run/logs/a/ranks",
        "attempt": "a",
        "agent": 1,
    }
    return rank_environment(environ=environ, **{**arguments, **kwargs})  # type: ignore[arg-type]


def test_everything_at_once() -> None:
    assert environment({"HOME": "/home/me"}, returnn_root="/returnn", device="cpu") == {
        "HOME": "/home/me",
        "PYTHONPATH": "/run/python_path",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank ${rank}] ",
        "SYNCOPATE_RANK_DIR": "/run/logs/a/ranks",
        "SYNCOPATE_ATTEMPT": "a",
        "SYNCOPATE_AGENT": "1",
        "SYNCOPATE_DEVICE": "cpu",
        "SYNCOPATE_RETURNN_ROOT": "/returnn",
    }


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(4, 2, "2"), (4, 3, "1"), (2, 8, "1"), (96, 8, "12")])
def test_k13_ranks_of_a_host_share_its_cores(cores: int, ranks: int, threads: str) -> None:
    """K13: Sisyphus sets both to 1, whatever was asked for."""
    found = environment({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, num_cores=cores, ranks_on_host=ranks)
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == (threads, threads)


def test_k16_what_the_user_set_reaches_the_ranks() -> None:
    """K16"""
    wanted = {
        "NCCL_SOCKET_IFNAME": "ib0",
        "GLOO_SOCKET_IFNAME": "ib0",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "SLURM_NODEID": "0",
    }
    found = environment(wanted)
    assert {name: found[name] for name in wanted} == wanted


def test_what_another_launch_left_does_not_reach_the_ranks() -> None:
    stale = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "elsewhere",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "old",
        "TORCHELASTIC_ERROR_FILE": "/old",
        "PET_NNODES": "8",
        "PYTHON_EXEC": "/usr/bin/python2",
        "SYNCOPATE_RANK_GUARDED": "1",
        "SYNCOPATE_RETURNN_ROOT": "/old",
        "_RETURNN_TORCH_DISTRIBUTED_INIT_INFO": "{}",
    }
    assert not {*environment(stale)} & {*stale}


def test_our_folder_comes_before_what_the_user_has_on_the_path() -> None:
    assert environment({"PYTHONPATH": "/mine:/other"})["PYTHONPATH"] == "/run/python_path:/mine:/other"
    assert environment({"PYTHONPATH": ""})["PYTHONPATH"] == "/run/python_path"


def test_training_python_sees_syncopate_and_nothing_of_the_manager(tmp_path: Path) -> None:
    folder = expose_package(tmp_path)
    assert [entry.name for entry in folder.iterdir()] == ["syncopate"]
    look = (
        "import json, importlib.util as u, syncopate; print(json.dumps([syncopate.__file__,"
        " *(n for n in ('i6_core', 'sisyphus', 'torch', 'pytest', 'tests') if u.find_spec(n))]))"
    )
    # Isolated from the installed packages of this python, as a training python of its own would be.
    output = subprocess.run(
        [sys.executable, "-S", "-P", "-c", look], env={"PYTHONPATH": str(folder)}, cwd=tmp_path, capture_output=True
    )
    assert json.loads(output.stdout) == [str(folder / "syncopate" / "__init__.py")]


def test_link_is_kept_or_renewed(tmp_path: Path) -> None:
    package = Path(syncopate.__file__).resolve().parent
    link = expose_package(tmp_path) / "syncopate"
    before = os.lstat(link).st_ino
    expose_package(tmp_path)
    assert os.lstat(link).st_ino == before
    link.unlink()
    link.symlink_to("/moved/away/since")
    expose_package(tmp_path)
    assert link.resolve() == package


def test_emulated_nodes_share_the_gpus_of_the_host_and_none_is_used_twice():
    cluster = Cluster(num_nodes=2, num_gpus_per_node=2)
    given = {"CUDA_VISIBLE_DEVICES": "5,3,GPU-7,1"}
    assert [gpus_of_agent(given, cluster, agent, agents_here=2) for agent in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "5,3"},
        {"CUDA_VISIBLE_DEVICES": "GPU-7,1"},
    ]
    assert [gpus_of_agent({}, cluster, agent, agents_here=2) for agent in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "2,3"},
    ]


def test_a_node_of_several_hosts_uses_the_gpus_it_was_given():
    """Whichever of them it is."""
    cluster = Cluster(num_nodes=2, num_gpus_per_node=2)
    for visible in ({}, {"CUDA_VISIBLE_DEVICES": "5,3"}, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}):
        assert [gpus_of_agent(visible, cluster, agent, agents_here=1) for agent in (0, 1)] == [{}, {}]


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("0,1,2", 3)])
def test_too_few_gpus_for_the_emulated_nodes_are_named(visible, count):
    with pytest.raises(LaunchError) as caught:
        gpus_of_agent({"CUDA_VISIBLE_DEVICES": visible}, Cluster(num_nodes=2, num_gpus_per_node=2), 0, agents_here=2)
    assert str(caught.value) == (
        f"2x2 gpu emulated on one host needs 4 GPUs, but CUDA_VISIBLE_DEVICES={visible!r} names {count}; ask for as"
        " many GPUs as ranks, use fewer ranks, or device='cpu'"
    )


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("2", 1)])
def test_too_few_gpus_of_a_node_are_named(visible, count):
    with pytest.raises(LaunchError) as caught:
        gpus_of_agent({"CUDA_VISIBLE_DEVICES": visible}, Cluster(num_nodes=2, num_gpus_per_node=2), 1, agents_here=1)
    assert str(caught.value) == (
        f"a node of 2x2 gpu needs 2 GPUs, but CUDA_VISIBLE_DEVICES={visible!r} names {count}; ask for as many GPUs as"
        " ranks, use fewer ranks, or device='cpu'"
    )


def test_one_choice_of_an_interface_in_the_syntax_of_each_library():
    """Rather than ``ib0``, NCCL would take any interface whose name starts with it."""
    assert interface_environment({"SYNCOPATE_INTERFACE": "ib0"}) == {
        "NCCL_SOCKET_IFNAME": "=ib0",
        "GLOO_SOCKET_IFNAME": "ib0",
    }
    assert interface_environment({}) == interface_environment({"SYNCOPATE_INTERFACE": ""}) == {}
    found = environment({"SYNCOPATE_INTERFACE": "ib0"})
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("=ib0", "ib0")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("NCCL_SOCKET_IFNAME", {"GLOO_SOCKET_IFNAME": "ib0"}),
        ("GLOO_SOCKET_IFNAME", {"NCCL_SOCKET_IFNAME": "=ib0"}),
    ],
)
def test_what_the_user_set_for_a_library_itself_wins(name, others):
    environ = {"SYNCOPATE_INTERFACE": "ib0", name: "eth1"}
    assert interface_environment(environ) == others
    assert environment(environ)[name] == "eth1"
