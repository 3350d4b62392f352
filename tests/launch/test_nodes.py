"""
Two nodes with one launcher each, as SLURM starts them, and the real torchrun: what one of them meets, both report.

The ranks are plain python where they need no collectives. Most of the time everybody waits for somebody, so several
cases run at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from syncopate.launch.attempts import ATTEMPTS_FILE
from syncopate.launch.place import PORT_TRIES
from syncopate.launch.rank_record import RankRecord, check_ranks
from tests.launch.nodes import TWO, End, TwoNodes
from tests.launch.trainings import SLEEP, parent_of, wait_until_gone

AT_ONCE = 3
GONE_LIMIT_S = 5
HOST = socket.gethostname()
SOON_SILENT = "board.BEAT_S = 0.5; node.SILENCE_LIMIT_S = 4.0"
REDUCE = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    while True:
        dist.all_reduce(torch.ones(1))
        print("reduced", flush=True)
"""

CASES: dict[str, Callable[[Path], None]] = {}


def case(check: Callable[[Path], None]) -> Callable[[Path], None]:
    """:param check: gets a folder of its own"""
    CASES[check.__name__] = check
    return check


def of_agent(records: list[RankRecord], agent: int) -> RankRecord:
    """:return: the only rank on a node; torchrun chooses which one it is"""
    (record,) = [record for record in records if record.agent == agent]
    return record


def noted_ends(nodes: TwoNodes) -> list[str]:
    """:return: what the next start will be told about this one, if it is one too many"""
    lines = [json.loads(line) for line in (nodes.folder / "run" / ATTEMPTS_FILE).read_text().splitlines() if line]
    return [line["reason"] for line in lines if line.get("end_of") == nodes.allocation.attempt]


def both(ends: list[End], kind: str) -> str:
    """:return: the first line that both launchers tell"""
    assert [(end.kind, end.exit_code) for end in ends] == [(kind, 1), (kind, 1)], ends
    assert ends[0].first_line == ends[1].first_line
    return ends[0].first_line


@case
def both_end_well(folder: Path) -> None:
    """K09, K17: prepared and finished once, by the first node, and nobody ends before that is done."""
    with TwoNodes(folder, "import time; time.sleep(rank); note(f'rank {rank} is done')") as nodes:
        ends = nodes.wait()
    assert [(end.kind, end.exit_code) for end in ends] == [("", 0), ("", 0)], ends
    *before, last_but_one, last = nodes.events()
    assert before == [
        "prepare by node 0",
        "prepare is done",
        "rank 0 is done",
        "rank 1 is done",
        "finish by node 0",
        "finish is done",
    ]
    assert {last_but_one, last} == {"node 0 ended", "node 1 ended"}
    records = check_ranks(nodes.log_dir / "ranks", TWO, attempt=nodes.allocation.attempt)
    assert {record.agent for record in records} == {0, 1}
    assert [nodes.note_of(index).state for index in (0, 1)] == ["complete", "complete"]
    assert noted_ends(nodes) == []
    for index, end in enumerate(ends):
        assert re.findall(r"^\[(?:rank|agent) \d+\]", end.output, re.M) == [], f"nothing was printed on node {index}"


@case
def the_node_with_the_store_ends_long_before_the_other(folder: Path) -> None:
    """Rank 0, which may be on any node, evaluates and saves when the others are done."""
    body = "import time; time.sleep(6 * int(os.environ['SYNCOPATE_AGENT']))"
    with TwoNodes(folder, body, setup="board.BEAT_S = 0.5") as nodes:
        ends = nodes.wait()
    assert [(end.kind, end.exit_code) for end in ends] == [("", 0), ("", 0)], ends
    records = nodes.records()
    times = [of_agent(records, agent).outcome.time_s for agent in (0, 1)]
    assert times[0] < times[1]


@case
def an_exception_on_the_second_node(folder: Path) -> None:
    body = """
        import time
        if os.environ["SYNCOPATE_AGENT"] == "1":
            print("reading data")
            raise ValueError("sequence 17 is empty")
        time.sleep(100)
    """
    with TwoNodes(folder, body) as nodes:
        ends = nodes.wait()
    rank = of_agent(nodes.records(), 1)
    assert both(ends, "LaunchError") == (
        f"rank {rank.rank} (local rank 0) on node {rank.node} (host {HOST}, agent 1) ended with exit code 1:"
        " ValueError: sequence 17 is empty. All ranks were ended."
    )
    for end in ends:
        assert "\n    ValueError: sequence 17 is empty\n" in end.message, "the end of its log"
        assert "\n    reading data\n" in end.message
        assert end.message.endswith(f"\nAll logs: {nodes.log_dir}")
    assert noted_ends(nodes) == [ends[0].first_line]


def kill(
    folder: Path, choose: Callable[[list[RankRecord]], int], body: str = SLEEP, *, setup: str = ""
) -> tuple[TwoNodes, list[End]]:
    """:return: how both end after one process was killed"""
    with TwoNodes(folder, body, setup=setup) as nodes:
        records = nodes.wait_for_ranks()
        if body is REDUCE:
            logs = [Path(record.log_dir or "") / "stdout.log" for record in records]
            nodes.wait_until(lambda: all("reduced" in log.read_text() for log in logs))
        os.kill(choose(records), signal.SIGKILL)
        return nodes, nodes.wait()


@case
def k14_kill_of_a_rank(folder: Path) -> None:
    nodes, ends = kill(folder, lambda records: of_agent(records, 1).pid)
    rank = of_agent(nodes.records(), 1)
    assert both(ends, "LaunchError") == (
        f"rank {rank.rank} (local rank 0) on node {rank.node} (host {HOST}, agent 1) was killed by SIGKILL (signal 9)."
        " All ranks were ended."
    )


@case
def k14_kill_of_a_rank_that_the_other_node_waits_for(folder: Path) -> None:
    """K14: there the rank fails at once, as its connection breaks. It is not blamed, though its node is quicker."""
    slow = "if index == 1: watch._POLL_S = 5.0"
    nodes, ends = kill(folder, lambda records: of_agent(records, 1).pid, REDUCE, setup=slow)
    rank = of_agent(nodes.records(), 1)
    assert both(ends, "LaunchError") == (
        f"rank {rank.rank} (local rank 0) on node {rank.node} (host {HOST}, agent 1) was killed by SIGKILL (signal 9)."
        " All ranks were ended."
    )


@case
def k14_kill_of_an_agent(folder: Path) -> None:
    nodes, ends = kill(folder, lambda records: parent_of(of_agent(records, 1).pid))
    rank = of_agent(nodes.records(), 1)
    assert both(ends, "LaunchError") == (
        f"agent 1 of node {rank.node} (host {HOST}) with ranks {rank.rank} was ended by SIGKILL (signal 9)."
        " All ranks were ended."
    )


@case
def k14_kill_of_the_agent_with_the_store(folder: Path) -> None:
    nodes, ends = kill(folder, lambda records: parent_of(of_agent(records, 0).pid))
    rank = of_agent(nodes.records(), 0)
    assert both(ends, "LaunchError") == (
        f"agent 0, which hosted the store, of node {rank.node} (host {HOST}) with ranks {rank.rank} was ended by"
        " SIGKILL (signal 9). All ranks were ended."
    )


def lose(folder: Path, lost: int, body: str = SLEEP) -> None:
    """The launcher of a node is killed, as if the host were gone. The other one is to be started again."""
    with TwoNodes(folder, body, setup=SOON_SILENT) as nodes:
        records = nodes.wait_for_ranks()
        if body is REDUCE:
            logs = [Path(record.log_dir or "") / "stdout.log" for record in records]
            nodes.wait_until(lambda: all("reduced" in log.read_text() for log in logs))
        pid = nodes.launchers[lost].pid
        nodes.launchers[lost].kill()
        ends = nodes.wait()
    assert ends[lost].exit_code == -signal.SIGKILL
    end = ends[1 - lost]
    assert (end.kind, end.exit_code) == ("Interruption", 1), end
    assert re.fullmatch(
        rf"node {lost} \(host node{'ab'[lost]}\) gave no sign for [4-9] s: its launcher \(pid {pid} on {HOST}\) was"
        " killed or stopped, the folder of this start is gone, or the host is down or cut off from the file system",
        end.message,
    ), end.message


@case
def the_second_node_is_lost(folder: Path) -> None:
    lose(folder, 1)


@case
def the_first_node_is_lost(folder: Path) -> None:
    lose(folder, 0)


@case
def the_second_node_is_lost_while_the_first_waits_for_it(folder: Path) -> None:
    """There the rank fails at once, as its connection breaks, and is not blamed."""
    lose(folder, 1, REDUCE)


@case
def the_first_node_is_lost_while_the_second_waits_for_it(folder: Path) -> None:
    lose(folder, 0, REDUCE)


@case
def the_second_node_is_told_to_end(folder: Path) -> None:
    with TwoNodes(folder, SLEEP) as nodes:
        nodes.wait_for_ranks()
        nodes.launchers[1].terminate()
        first, second = nodes.wait()
    assert (second.exit_code, second.kind) == (-signal.SIGTERM, None), second
    assert "syncopate: told to end by SIGTERM; all ranks were ended\n" in second.output
    assert (first.kind, first.exit_code) == ("Interruption", 1), first
    assert first.message == "node 1 (host nodeb): told to end by SIGTERM; all ranks were ended"
    assert noted_ends(nodes) == [first.message]


@case
def the_job_is_told_to_end(folder: Path) -> None:
    """As by scancel, or at the time limit: all nodes at once, and they have little time for it."""
    with TwoNodes(folder, SLEEP) as nodes:
        nodes.wait_for_ranks()
        for launcher in nodes.launchers.values():
            launcher.terminate()
        ends = nodes.wait()
    assert [(end.exit_code, end.kind) for end in ends] == [(-signal.SIGTERM, None)] * 2, ends
    (reason,) = noted_ends(nodes)
    assert re.fullmatch(r"node [01] \(host node[ab]\): told to end by SIGTERM; all ranks were ended", reason)


@case
def a_rank_stops_the_training_for_lack_of_time(folder: Path) -> None:
    """As RETURNN does under torchrun: SIGINT to the group of the agent."""
    body = """
        import signal, time
        time.sleep(1)
        if os.environ["SYNCOPATE_AGENT"] == "1":
            os.kill(-os.getpgid(os.getppid()), signal.SIGINT)
        time.sleep(100)
    """
    with TwoNodes(folder, body) as nodes:
        ends = nodes.wait()
    rank = of_agent(nodes.records(), 1)
    assert both(ends, "Interruption") == (
        f"agent 1 of node {rank.node} (host {HOST}) with ranks {rank.rank} was ended by SIGINT (signal 2), as RETURNN"
        " does itself when little time is left. All ranks were ended."
    )


@case
def a_host_that_ran_out_of_memory(folder: Path) -> None:
    """Both say so: the next start asks for more."""
    setup = """
from syncopate.launch import here
kills = iter([3, 3 + index])
node.num_memory_kills = here.num_memory_kills = lambda: next(kills)
"""
    with TwoNodes(folder, SLEEP, setup=setup) as nodes:
        os.kill(of_agent(nodes.wait_for_ranks(), 1).pid, signal.SIGKILL)
        ends = nodes.wait()
    assert both(ends, "HostMemoryError").endswith(
        f" (host {HOST}, agent 1) was killed by SIGKILL (signal 9). All ranks were ended."
    )
    assert f"The kernel killed it because the memory that was asked for on host {HOST} was used up" in ends[0].message


def does_not_appear(folder: Path, missing: int) -> None:
    with TwoNodes(folder, SLEEP, present=(1 - missing,), join_limit_s=3) as nodes:
        (end,) = nodes.wait()
    assert end.kind == "LaunchError", end
    assert re.fullmatch(
        rf"node {missing} \(host node{'ab'[missing]}\) did not appear within [3-7] s: its launcher could not be started"
        rf" there, or does not see the folder {re.escape(str(nodes.log_dir / 'nodes'))}; its own log is"
        rf" log\.run\.1\.{missing} of the job, or in the job's folder engine",
        end.message,
    ), end.message
    assert nodes.records() == []


@case
def the_second_node_never_appears(folder: Path) -> None:
    does_not_appear(folder, 1)


@case
def the_first_node_never_appears(folder: Path) -> None:
    does_not_appear(folder, 0)


@case
def a_node_that_comes_late(folder: Path) -> None:
    with TwoNodes(folder, present=(0,)) as nodes:
        nodes.wait_until(lambda: (nodes.log_dir / "agent0.log").exists())
        nodes.start(1)
        ends = [nodes.wait_for(index) for index in (0, 1)]
    assert [(end.kind, end.exit_code) for end in ends] == [("", 0), ("", 0)], ends


def listen(nodes: TwoNodes, *tries: int) -> ExitStack:
    """Takes the ports of some tries."""
    with ExitStack() as taken:
        for number in tries:
            other = taken.enter_context(socket.socket())
            other.bind(("", nodes.allocation.meeting(number).port))
            other.listen()
        return taken.pop_all()


@case
def k11_a_port_that_is_taken(folder: Path) -> None:
    nodes = TwoNodes(folder)
    with listen(nodes, 0, 1), nodes:
        ends = nodes.wait()
    assert [(end.kind, end.exit_code) for end in ends] == [("", 0), ("", 0)], ends
    assert nodes.note_of(0).meeting == nodes.allocation.meeting(2)
    assert {record.agent for record in nodes.records()} == {0, 1}


@case
def k11_a_port_that_is_taken_at_the_last_moment(folder: Path) -> None:
    """K11: between our look and the agent's. Then also the second node starts its agent anew."""
    nodes = TwoNodes(folder, setup="node.is_free = lambda port: True")
    with listen(nodes, 0), nodes:
        ends = nodes.wait()
    assert [(end.kind, end.exit_code) for end in ends] == [("", 0), ("", 0)], ends
    assert nodes.note_of(0).meeting == nodes.allocation.meeting(1)
    assert sorted(path.name for path in nodes.log_dir.glob("*.log")) == [
        "agent0.1.log",
        "agent0.log",
        "agent1.1.log",
        "agent1.log",
    ]
    assert "EADDRINUSE" in (nodes.log_dir / "agent0.log").read_text()
    assert nodes.events().count("prepare by node 0") == 1


@case
def k11_all_ports_are_taken(folder: Path) -> None:
    nodes = TwoNodes(folder)
    with listen(nodes, *range(PORT_TRIES)), nodes:
        first, second = nodes.wait()
    ports = [nodes.allocation.meeting(number).port for number in range(PORT_TRIES)]
    told = (
        f"other processes listen on all of the ports {ports} of 127.0.0.1, where the agents were to meet; see who they"
        " are (ss -ltnp)"
    )
    assert (first.kind, first.message) == ("LaunchError", told)
    assert (second.kind, second.message) == ("LaunchError", f"node 0 (host nodea): {told}")


@case
def a_python_that_one_node_does_not_have(folder: Path) -> None:
    """By its name it is found in the PATH of the first node only."""
    programs = folder / "bin"
    programs.mkdir()
    python = programs / "python-of-nodea"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environ = ({"PATH": f"{programs}:{os.environ['PATH']}"}, {})
    with TwoNodes(folder, SLEEP, environ=environ, python=python.name) as nodes:
        first, second = nodes.wait()
    told = (
        f"the training python 'python-of-nodea' does not exist, or is no program that may be executed, on host {HOST}"
    )
    assert (first.kind, first.message) == ("LaunchError", f"node 1 (host nodeb): {told}")
    assert (second.kind, second.message) == ("LaunchError", told)


@case
def a_newer_start_takes_over(folder: Path) -> None:
    """The older one, cut off from SLURM perhaps, must not write into the same checkpoints."""
    body = """
        import time
        for _ in range(1000):
            if os.environ["ROLE"] == "new" and os.path.exists("old is gone"):
                break
            time.sleep(0.1)
    """
    with TwoNodes(folder, body, environ=({"ROLE": "old"},) * 2) as old:
        old.wait_for_ranks()
        with TwoNodes(folder, body, environ=({"ROLE": "new"},) * 2) as new:
            old_ends = old.wait()
            assert all(launcher.poll() is None for launcher in new.launchers.values())
            (folder / "work" / "old is gone").touch()
            new_ends = new.wait()
    names = [start.allocation.attempt for start in (old, new)]
    assert both(old_ends, "Interruption") == (f"a newer start of this training, {names[1]}, took over; {names[0]} ends")
    assert [(end.kind, end.exit_code) for end in new_ends] == [("", 0), ("", 0)], new_ends
    assert len(check_ranks(new.log_dir / "ranks", TWO, attempt=names[1])) == 2


@case
def what_prepare_raises(folder: Path) -> None:
    with TwoNodes(folder, prepare="no space left") as nodes:
        first, second = nodes.wait()
    assert (first.kind, first.message) == ("ValueError", "no space left")
    assert (second.kind, second.message) == ("LaunchError", "node 0 (host nodea): ValueError: no space left")
    assert nodes.records() == []
    assert noted_ends(nodes) == [second.message]


@case
def k17_what_finish_raises(folder: Path) -> None:
    """K17: no node ends well."""
    with TwoNodes(folder, finish="no space left") as nodes:
        first, second = nodes.wait()
    assert (first.kind, first.message) == ("ValueError", "no space left")
    assert (second.kind, second.message) == ("LaunchError", "node 0 (host nodea): ValueError: no space left")
    assert noted_ends(nodes) == [second.message]


@case
def k10_ranks_that_leave_no_record_prove_nothing(folder: Path) -> None:
    """K10: agents that end well are not enough."""
    script = folder / "script.py"
    script.write_text("print('trained something, somehow')")
    with TwoNodes(folder, setup="node._RECORDS_LIMIT_S = 1.0", tail=[str(script)]) as nodes:
        first, second = nodes.wait()
    assert first.kind == second.kind == "LaunchError", (first, second)
    assert first.message.startswith(
        "2 ranks were asked for (2x1 cpu), but they were not one world: ranks [0, 1] were never seen (records in "
    )
    assert second.message == f"node 0 (host nodea): {first.message}"
    assert "finish by node 0" not in nodes.events()


@pytest.fixture(scope="module")
def checks(request, tmp_path_factory) -> Iterator[dict[str, Future[None]]]:
    """Those that were asked for, started in their order."""
    names = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(_check, CASES[name], tmp_path_factory.mktemp(name)) for name in names}
        pool.shutdown(cancel_futures=True)


def _check(check: Callable[[Path], None], folder: Path) -> None:
    check(folder)
    assert wait_until_gone(folder, GONE_LIMIT_S) == {}


@pytest.mark.parametrize("name", CASES)
def test_two_nodes(checks: dict[str, Future[None]], name: str) -> None:
    checks[name].result()
