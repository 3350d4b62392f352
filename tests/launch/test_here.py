"""
Emulated nodes with the real torchrun: sizes, deaths and what is said about them.

Where the ranks need no collectives they are plain python: then a training of two nodes takes three seconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import HostMemoryError, LaunchError
from syncopate.launch import here, watch
from syncopate.launch.attempts import ATTEMPTS_FILE, begin_attempt
from syncopate.launch.interruption import Interruption
from syncopate.launch.place import PORT_TRIES
from syncopate.launch.rank_record import check_ranks
from syncopate.launch.training import Hooks
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

ONE = Cluster(device="cpu")
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
        ports = iter([other.getsockname()[1], here._free_port()])
        monkeypatch.setattr(here, "_free_port", lambda: next(ports))
        rank_dir = train(tmp_path, TWO)
    assert next(ports, None) is None
    assert sorted(path.name for path in rank_dir.parent.glob("*.log")) == [
        "agent0.1.log",
        "agent0.log",
        "agent1.1.log",
        "agent1.log",
    ]


def test_no_port_is_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K11: as above, and never another way out."""
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(here, "_free_port", lambda: port)
        monkeypatch.setattr(here, "PORT_TRIES", 2)
        with pytest.raises(LaunchError) as caught:
            train(tmp_path, TWO)
    (log_dir,) = (tmp_path / "run" / "logs").iterdir()
    assert PORT_TRIES > 2
    assert str(caught.value) == (
        f"another process listens on port {port} of 127.0.0.1, where the agents were to meet (try 2); see who it is"
        f" (ss -ltnp), or start again. Logs: {log_dir}"
    )
    assert wait_until_gone(tmp_path, 1) == {}


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
    with pytest.raises(Interruption, match=r"^agent \d.* was ended by SIGINT \(signal 2\), as RETURNN .* All ranks"):
        train(tmp_path, TWO, body)
    assert issubclass(Interruption, KeyboardInterrupt)
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


@pytest.mark.parametrize(("on_machine", "num_nodes", "threads"), [(96, 1, 7), (4, 1, 4), (96, 2, 7)])
def test_k13_cores_given_to_the_task_are_shared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    on_machine: int,
    num_nodes: int,
    threads: int,
) -> None:
    """K13: the machine may have more than the task asked for, which is 7 per node, or less."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(on_machine)))
    cluster = Cluster(num_nodes=num_nodes, device="cpu")
    body = "print('threads', os.environ['OMP_NUM_THREADS'])"
    train(tmp_path, cluster, body, distributed=num_nodes > 1, cpus_per_node=7)
    assert re.findall(r"threads (\d+)$", capfd.readouterr().out, re.M) == [str(threads)] * num_nodes


def notes_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "run" / ATTEMPTS_FILE).read_text().splitlines()
    return [json.loads(line) for line in lines if line]


def test_hooks_run_once_and_around_the_ranks(tmp_path: Path) -> None:
    done: list[str] = []
    hooks = Hooks(
        prepare=lambda: done.append(f"prepare beside {len(records_now(tmp_path))} records"),
        finish=lambda: done.append(f"finish after {records_now(tmp_path)[0].outcome.kind}"),
        progress=lambda: 3,
        max_starts=1,
    )
    train(tmp_path, ONE, distributed=False, hooks=hooks)
    assert done == ["prepare beside 0 records", "finish after finished"]
    (note,) = notes_of(tmp_path)
    assert (note["progress"], note["refused"]) == (3, False)
    assert [note["attempt"]] == [path.name for path in (tmp_path / "run" / "logs").iterdir()]


def test_how_a_start_ended_is_noted_and_the_next_one_in_vain_is_refused(tmp_path: Path) -> None:
    """Nothing is prepared or started any more."""
    prepared: list[int] = []
    hooks = Hooks(prepare=lambda: prepared.append(1), max_starts=1)
    with pytest.raises(LaunchError, match=r"^rank 0 .* ended with exit code 1: SystemExit: 1\. All ranks were ended\."):
        train(tmp_path, ONE, "sys.exit(1)", distributed=False, hooks=hooks)
    start, end = notes_of(tmp_path)
    assert end["end_of"] == start["attempt"]
    assert re.fullmatch(r"rank 0 \(.*\) ended with exit code 1: SystemExit: 1\. All ranks were ended\.", end["reason"])
    with pytest.raises(LaunchError, match=r"^this training was started 1 times in a row without finishing another"):
        train(tmp_path, ONE, "sys.exit(1)", distributed=False, hooks=hooks)
    assert prepared == [1]
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 1


def test_what_finish_raises_is_noted(tmp_path: Path) -> None:
    def finish() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        train(tmp_path, ONE, distributed=False, hooks=Hooks(finish=finish))
    assert notes_of(tmp_path)[1]["reason"] == "disk full"


def test_a_newer_start_takes_over(tmp_path: Path) -> None:
    """The older one, cut off from SLURM perhaps, must not write into the same checkpoints."""

    def start_another() -> None:
        if len(records_now(tmp_path)) == 1 and len(notes_of(tmp_path)) == 1:
            begin_attempt(tmp_path / "run", "newer", progress=None, max_starts=None)

    with pytest.raises(Interruption) as caught:
        train(tmp_path, ONE, SLEEP, distributed=False, on_poll=start_another)
    old = notes_of(tmp_path)[0]["attempt"]
    assert str(caught.value) == f"a newer start of this training, newer, took over; {old} ends"
    assert wait_until_gone(tmp_path, 1) == {}


def test_a_kill_that_the_kernel_counted_as_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr(here, "num_memory_kills", lambda: next(counts))
    kill = KillOnce(tmp_path, 1, lambda records: records[0].pid, signal.SIGKILL)
    with pytest.raises(HostMemoryError) as caught:
        train(tmp_path, ONE, SLEEP, distributed=False, on_poll=kill)
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith("rank 0 (local rank 0) on node 0 ")
    assert first.endswith(" was killed by SIGKILL (signal 9). All ranks were ended.")
    assert last == (
        f"The kernel killed it because the memory that was asked for on host {socket.gethostname()} was used up (main"
        " memory, not that of a GPU)."
    )


@pytest.mark.parametrize(("counts", "signum"), [((3, 3), signal.SIGKILL), ((3, 4), signal.SIGSEGV)])
def test_other_deaths_are_not_blamed_on_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int, int], signum: int
) -> None:
    """Nobody was killed for lack of memory, or somebody else was."""
    remaining = iter(counts)
    monkeypatch.setattr(here, "num_memory_kills", lambda: next(remaining))
    kill = KillOnce(tmp_path, 1, lambda records: records[0].pid, signum)
    with pytest.raises(LaunchError, match=rf"was killed by {signal.Signals(signum).name}") as caught:
        train(tmp_path, ONE, SLEEP, distributed=False, on_poll=kill)
    assert caught.type is LaunchError
    assert "memory" not in str(caught.value)


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


def test_training_python_that_cannot(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, ONE, python="/no/such/python")
    assert str(caught.value) == (
        "the training python '/no/such/python' does not exist, or is no program that may be executed, on host"
        f" {socket.gethostname()}"
    )
    without_torch = tmp_path / "python"
    without_torch.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_torch.chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        train(tmp_path, ONE, python=str(without_torch))
    assert str(caught.value).startswith("agent 0 ended with exit code 1; no rank had started. All ranks were ended.\n")
    assert "The training python has no torch." in str(caught.value)
