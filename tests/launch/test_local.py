"""
Emulated nodes with the real torchrun: sizes, deaths and what is said about them.

Where the ranks need no collectives they are plain python: then a training of two nodes takes three seconds.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch import local, watch
from syncopate.launch.rank_record import check_ranks
from tests.launch.trainings import (
    SLEEP,
    KillOnce,
    make_checkout,
    parent_of,
    records_now,
    running,
    train,
    wait_until_gone,
)

TWO = Cluster(num_nodes=2, device="cpu")
K14_LIMIT_S = 60
"""What K14 allows. Measured: 2 to 4 s, with a rank that does not react to SIGTERM 8 s."""


def test_k09_two_nodes_with_four_ranks_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """K09, and what the ranks find in their environment."""
    body = """
        names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS", "NCCL_DEBUG")
        print("I am", rank, *(os.environ[name] for name in names), os.getcwd(),
              "_RETURNN_TORCH_DISTRIBUTED_INIT_INFO" in os.environ)
    """
    cluster = Cluster.from_num_ranks(8, num_nodes=2, device="cpu")
    environ = {"NCCL_DEBUG": "WARN", "_RETURNN_TORCH_DISTRIBUTED_INIT_INFO": "{}", "RANK": "9", "WORLD_SIZE": "99"}
    rank_dir = train(tmp_path, cluster, body, environ=environ)
    said = re.findall(r"^\[rank (\d)\] I am (\d) (.*)$", capfd.readouterr().out, re.M)
    threads = max(1, len(os.sched_getaffinity(0)) // 8)
    assert sorted(said) == [
        (str(rank), str(rank), f"8 {rank % 4} 4 {rank // 4} {threads} WARN {tmp_path / 'work'} False")
        for rank in range(8)
    ]
    records = check_ranks(rank_dir, cluster)
    assert [(record.node, record.local_rank) for record in records] == [(rank // 4, rank % 4) for rank in range(8)]
    assert {record.node: record.agent for record in records}.keys() == {0, 1}
    assert {record.outcome.kind for record in records if record.outcome} == {"finished"}


def test_k10_ranks_that_leave_no_record_prove_nothing(tmp_path: Path) -> None:
    """K10: an agent that ends well is not enough."""
    script = tmp_path / "script.py"
    script.write_text("print('trained something, somehow')")
    with pytest.raises(
        LaunchError, match=r"^2 ranks were asked for \(1x2 cpu\), but .*: ranks \[0, 1\] were never seen"
    ):
        train(tmp_path, Cluster(num_gpus_per_node=2, device="cpu"), tail=[str(script)])


def test_k11_two_at_once_and_one_twice_in_a_row(tmp_path: Path) -> None:
    """K11, from threads: signal handlers can only be set in the main one."""
    body = "import time; time.sleep(1); print('world', os.environ['WORLD_SIZE'])"

    def several(name: str, cluster: Cluster, times: int) -> list[Path]:
        return [train(tmp_path / name, cluster, body) for _ in range(times)]

    with ThreadPoolExecutor(2) as pool:
        twice = pool.submit(several, "twice", TWO, 2)
        once = pool.submit(several, "once", Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"), 1)
        rank_dirs = [*twice.result(), *once.result()]
    assert [len(list(rank_dir.glob("rank*.json"))) for rank_dir in rank_dirs] == [2, 2, 4]
    assert len(set(rank_dirs)) == 3, "each start has logs of its own"


def test_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K11: somebody listens on the port between our look and the agent's."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        ports = iter([other.getsockname()[1], local._free_port()])
        monkeypatch.setattr(local, "_free_port", lambda: next(ports))
        train(tmp_path, TWO)
    assert next(ports, None) is None
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 2


def test_k14_kill_of_a_rank_that_the_others_wait_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """K14, in the middle of a collective: the others fail as well, and are not blamed."""
    body = """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        while True:
            dist.all_reduce(torch.ones(1))
            print("reduced", flush=True)
    """

    def reducing(records: list) -> int:
        logs = [Path(record.log_dir) / "stdout.log" for record in records]
        deadline = time.monotonic() + 60
        while not all("reduced" in log.read_text() for log in logs):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return records[1].pid

    kill = KillOnce(tmp_path, 2, reducing, signal.SIGKILL)
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, TWO, body, on_poll=kill)
    assert kill.since_s < K14_LIMIT_S
    assert wait_until_gone(tmp_path, 1) == {}
    first, *rest = str(caught.value).splitlines()
    agent = records_now(tmp_path)[1].agent
    assert first.startswith(
        f"rank 1 (local rank 0) on node 1 (host {socket.gethostname()}, agent {agent}) was killed by SIGKILL (signal 9)"
    )
    assert "    reduced" in rest
    assert rest[-1] == f"All logs: {next((tmp_path / 'run' / 'logs').iterdir())}"
    assert f"[agent {agent}] " in capfd.readouterr().out


@pytest.mark.parametrize("agent", [0, 1])
def test_k14_kill_of_an_agent(tmp_path: Path, agent: int) -> None:
    """K14: of the one that hosts the store, and of the other one. Their ranks would train for ever."""
    kill = KillOnce(tmp_path, 4, lambda rs: next(parent_of(r.pid) for r in rs if r.agent == agent), signal.SIGKILL)
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"), SLEEP, on_poll=kill)
    assert kill.since_s < K14_LIMIT_S
    assert wait_until_gone(tmp_path, 1) == {}
    own = [record for record in records_now(tmp_path) if record.agent == agent]
    store = ", which hosted the store," if agent == 0 else ""
    assert str(caught.value).splitlines()[0] == (
        f"agent {agent}{store} of node {own[0].node} (host {socket.gethostname()}) with ranks"
        f" {own[0].rank}, {own[1].rank} was ended by SIGKILL (signal 9). All ranks were ended."
    )


def test_exception_beside_a_rank_that_does_not_react(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun gives the others 30 s before it even reports; a rank inside a collective does not see SIGTERM."""
    monkeypatch.setattr(watch, "_REPORT_LIMIT_S", 1.0)
    monkeypatch.setattr(watch, "GRACE_S", 1.0)
    body = """
        import signal, time
        if rank == 0:
            time.sleep(1)
            print("reading data")
            raise ValueError("sequence 17 is empty")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(100)
    """
    begin = time.monotonic()
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, Cluster(num_gpus_per_node=2, device="cpu"), body)
    assert time.monotonic() - begin < 20
    assert wait_until_gone(tmp_path, 3) == {}
    message = str(caught.value)
    assert message.startswith(
        f"rank 0 (local rank 0) on node 0 (host {socket.gethostname()}, agent 0) ended with exit code 1:"
        " ValueError: sequence 17 is empty"
    )
    assert "ValueError: sequence 17 is empty\nLast lines of" in message
    assert "\n    reading data\n" in message


def test_a_rank_that_fails_after_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Until then it is said who is waited for."""
    monkeypatch.setattr(watch, "_REMIND_EVERY_S", 0.5)
    with pytest.raises(
        LaunchError, match=r"^rank 1 \(local rank 1\) on node 0 .* ended with exit code 7: SystemExit: 7"
    ):
        train(
            tmp_path,
            Cluster(num_gpus_per_node=2, device="cpu"),
            "import time; time.sleep(4 * rank); sys.exit(7 * rank)",
        )
    assert "syncopate: 1 ranks are done, waiting for ranks [1]\n" in capfd.readouterr().out


def test_a_training_that_stops_itself_for_lack_of_time_is_interrupted_not_failed(tmp_path: Path) -> None:
    """As RETURNN does under torchrun: SIGINT to the group of the agent. Sisyphus then starts the task again."""
    body = """
        import signal, time
        time.sleep(1)
        if rank == 1:
            os.kill(-os.getpgid(os.getppid()), signal.SIGINT)
        time.sleep(100)
    """
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, TWO, body)
    assert wait_until_gone(tmp_path, 1) == {}


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_launcher(tmp_path: Path, signum: int) -> None:
    make_checkout(tmp_path / "checkout", SLEEP)
    program = (
        "import sys; from pathlib import Path; from syncopate.cluster import Cluster;"
        "from tests.launch.trainings import train;"
        f"train(Path({str(tmp_path)!r}), Cluster(num_nodes=2, device='cpu'))"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "logs").exists() or len(records_now(tmp_path)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    launcher.send_signal(signum)
    assert launcher.wait(30) == -signum
    assert wait_until_gone(tmp_path, 1) == {}


def test_one_process_without_torchrun(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = "print('RANK' in os.environ, 'MASTER_ADDR' in os.environ, os.getcwd())"
    rank_dir = train(tmp_path, Cluster(device="cpu"), body, distributed=False)
    assert capfd.readouterr().out == f"False False {tmp_path / 'work'}\n"
    assert len(check_ranks(rank_dir, Cluster())) == 1


def test_k13_cores_given_to_the_task_are_shared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """K13: the machine may have more than the task asked for."""
    train(tmp_path, Cluster(device="cpu"), "print(os.environ['OMP_NUM_THREADS'])", distributed=False, num_cores=7)
    assert capfd.readouterr().out == "7\n"


def test_one_process_that_is_killed(tmp_path: Path) -> None:
    kill = KillOnce(tmp_path, 1, lambda records: records[0].pid, signal.SIGSEGV)
    with pytest.raises(LaunchError, match=r"^rank 0 .* was killed by SIGSEGV \(signal 11\)\. All ranks were ended\.\n"):
        train(tmp_path, Cluster(device="cpu"), SLEEP, distributed=False, on_poll=kill)
    assert kill.since_s < 5
    assert wait_until_gone(tmp_path, 1) == {}


def test_a_process_that_is_done_but_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EXIT_LIMIT_S", 1.0)
    body = "import threading, time; threading.Thread(target=time.sleep, args=(100,)).start()"
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, Cluster(device="cpu"), body, distributed=False)
    assert re.fullmatch(
        r"all ranks said that they are done, but agent 0 \(pid \d+, ranks \[0\]\) did not end within 1 s,"
        r" so it was ended\. The training itself is complete\. Logs: .*",
        str(caught.value),
    )
    assert wait_until_gone(tmp_path, 1) == {}


def test_what_on_poll_raises_ends_the_ranks(tmp_path: Path) -> None:
    def give_up() -> None:
        if len(records_now(tmp_path)) == 1:
            assert running(tmp_path)
            raise RuntimeError("no more disk")

    with pytest.raises(RuntimeError, match="no more disk"):
        train(tmp_path, Cluster(device="cpu"), SLEEP, distributed=False, on_poll=give_up)
    assert wait_until_gone(tmp_path, 1) == {}


def test_agents_that_do_not_meet(tmp_path: Path) -> None:
    """On SLURM one of them may be missing; here the place says so. Nobody waits for ever."""
    environ = {
        "SYNCOPATE_ENGINE": "slurm",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "localhost,elsewhere",
        "SLURM_NODEID": "0",
    }
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, TWO, environ=environ, join_limit_s=2)
    assert str(caught.value).startswith("agent 0 ended with exit code 1; no rank had started. All ranks were ended.\n")
    assert "RendezvousTimeoutError" in str(caught.value)
    with pytest.raises(
        LaunchError, match=rf"^agent 0 of {os.getpid()}\.0\.train was started before, .*/agent0\.log exists:"
    ):
        train(tmp_path, TWO, environ=environ)


def test_training_python_that_cannot(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"^the training python '/no/such/python' does not exist, or is no program"):
        train(tmp_path, Cluster(device="cpu"), python="/no/such/python")
    without_torch = tmp_path / "python"
    without_torch.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_torch.chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, Cluster(device="cpu"), python=str(without_torch))
    assert str(caught.value).startswith("agent 0 ended with exit code 1; no rank had started. All ranks were ended.\n")
    assert "The training python has no torch." in str(caught.value)
