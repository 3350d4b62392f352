"""What is said when a training failed, from the witnesses as torch 2.13 leaves them."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.launch.failure import AgentEnd, find_failure, is_port_taken
from syncopate.launch.rank_record import Outcome, RankRecord

REPORT = """
[rank 1] working
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
syncopate.launch.rank FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-12-01_04:57:00
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 15075)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 15075
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-12-01_04:57:00
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {exit_code} (pid: 15080) 
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""  # noqa: W291


def ended(folder: Path, number: int, exit_code: int, log: str = "", **kwargs: bool) -> AgentEnd:
    path = folder / f"agent{number}.log"
    path.write_text(log)
    return AgentEnd(**{"number": number, "exit_code": exit_code, "ended_by_us": False, "log_path": path, **kwargs})


def record(rank: int, outcome: Outcome | None = None) -> RankRecord:
    """Two ranks per node; node and agent numbers are swapped, as they may be."""
    return RankRecord(
        rank=rank,
        world_size=4,
        local_rank=rank % 2,
        node=rank // 2,
        agent=1 - rank // 2,
        host="vm",
        pid=1,
        start_time_s=0.0,
        attempt="now",
        log_dir=None,
        outcome=outcome,
    )


def failed(time_s: float, error: str) -> Outcome:
    return Outcome(kind="failed", time_s=time_s, exit_code=1, error=error)


def killed(time_s: float) -> Outcome:
    return Outcome(kind="killed", time_s=time_s)


def test_signal_of_a_killed_rank_comes_from_the_report_of_its_agent(tmp_path: Path) -> None:
    agents = [ended(tmp_path, 0, 1), ended(tmp_path, 1, 1, REPORT.format(exit_code=-9))]
    lost = "RuntimeError: Connection closed by peer [127.0.0.1]:4711"
    # The others may be quicker than the one who looks after the killed rank.
    records = [record(0, killed(11.0)), record(1, killed(10.0)), record(2, failed(9.99, lost)), record(3)]
    assert find_failure(agents, records).reason == (
        "rank 1 (local rank 1) on node 0 (host vm, agent 1) was killed by SIGKILL (signal 9);"
        " ranks 0, 2 followed. All ranks were ended."
    )


def test_the_earliest_exception_is_the_cause(tmp_path: Path) -> None:
    agents = [ended(tmp_path, 0, 1), ended(tmp_path, 1, 1)]
    records = [record(rank, failed(10.0 - rank, f"ValueError: {rank}")) for rank in range(4)]
    assert find_failure(agents, records).reason == (
        "rank 3 (local rank 1) on node 1 (host vm, agent 0) ended with exit code 1: ValueError: 3;"
        " ranks 0, 1, 2 followed. All ranks were ended."
    )


def test_a_rank_that_ended_without_a_word_has_its_exit_code_named(tmp_path: Path) -> None:
    agents = [ended(tmp_path, 1, 1, REPORT.format(exit_code=3))]
    assert "rank 1 (local rank 1) on node 0 (host vm, agent 1) ended with exit code 3 without an exception" in (
        find_failure(agents, [record(0, killed(11.0)), record(1, killed(10.0))]).reason
    )
    done = Outcome(kind="finished", time_s=10.0, exit_code=0)
    assert "ended with exit code 3 after its training was done" in (
        find_failure(agents, [record(0, done), record(1, done)]).reason
    )


def test_an_agent_that_was_killed_is_the_cause_of_everything(tmp_path: Path) -> None:
    agents = [ended(tmp_path, 0, -9), ended(tmp_path, 1, 1, REPORT.format(exit_code=1))]
    records = [record(rank, killed(10.0)) for rank in range(4)]
    assert find_failure(agents, records).reason == (
        "agent 0, which hosted the store, of node 1 (host vm) with ranks 2, 3 was ended by SIGKILL (signal 9)."
        " All ranks were ended."
    )
    agents = [ended(tmp_path, 0, -15, ended_by_us=True), ended(tmp_path, 1, -11)]
    assert find_failure(agents, []).reason == (
        "agent 1, whose ranks had not started yet, was ended by SIGSEGV (signal 11). All ranks were ended."
    )


@pytest.mark.parametrize("name", ["15", "Signals.SIGTERM"])
def test_torchrun_catches_signals_and_exits_by_itself(tmp_path: Path, name: str) -> None:
    """The text depends on the version of python."""
    module = "torch.distributed.elastic.multiprocessing.api"
    agent = ended(tmp_path, 1, 1, f"{module}.SignalException: Process 77 got signal: {name}\n")
    assert agent.signal_number == signal.SIGTERM
    assert "agent 1 of node 0 (host vm) with ranks 0, 1 was ended by SIGTERM" in (
        find_failure([agent], [record(0), record(1)]).reason
    )


def test_ranks_print_what_they_like(tmp_path: Path) -> None:
    quoted = "".join(f"[rank 0] {line}\n" for line in REPORT.format(exit_code=-9).splitlines())
    agent = ended(tmp_path, 1, 1, f"{quoted}[rank 0] SignalException: Process 77 got signal: 15\n")
    assert agent.reported_exit_codes() == {}
    assert agent.signal_number is None


def test_the_only_rank_is_no_agent(tmp_path: Path) -> None:
    alone = replace(record(0, killed(1.0)), agent=0)
    rank = ended(tmp_path, 0, -9, is_rank=True)
    assert find_failure([rank], [alone]).reason == (
        "rank 0 (local rank 0) on node 0 (host vm, agent 0) was killed by SIGKILL (signal 9). All ranks were ended."
    )
    assert find_failure([rank], [alone]).log_paths == (rank.log_path,)


def test_ranks_that_could_not_start(tmp_path: Path) -> None:
    stderr = tmp_path / "agent1" / "id_x" / "attempt_0" / "0" / "stderr.log"
    stderr.parent.mkdir(parents=True)
    stderr.write_text("python: No module named 'syncopate'\n")
    agents = [ended(tmp_path, 0, 0), ended(tmp_path, 1, 1, REPORT.format(exit_code=1))]
    failure = find_failure(agents, [])
    assert failure.reason == (
        "agent 1 ended with exit code 1, rank 0 with SIGTERM (signal 15), rank 1 with exit code 1; no rank had started."
        " All ranks were ended."
    )
    message = failure.message(package=Path("/setup/recipe/syncopate"), log_dir=tmp_path)
    assert f"Last lines of {stderr}:\n    python: No module named 'syncopate'\n" in message
    assert (
        "The training python does not see syncopate at /setup/recipe/syncopate: mount that folder into the container it"
        f" runs in, and do not empty PYTHONPATH.\nAll logs: {tmp_path}" in message
    )


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Connection closed by peer [127.0.0.1]:4711",
        "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp",
        "DistNetworkError: Failed to recv, got 0 bytes",
        "RuntimeError: [enforce fail] Broken pipe",
        "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
    ],
)
def test_a_broken_connection_is_no_cause(tmp_path: Path, error: str) -> None:
    """The node of that rank fails, but another one is asked first for the reason."""
    failure = find_failure([ended(tmp_path, 1, 1)], [record(0, failed(10.0, error)), record(1)])
    assert (failure.is_cause, failure.time_s, failure.was_killed) == (False, 10.0, False)
    assert error in failure.reason


def test_an_exception_is_a_cause(tmp_path: Path) -> None:
    failure = find_failure([ended(tmp_path, 1, 1)], [record(0, failed(10.0, "ValueError: 3")), record(1, killed(11.0))])
    assert (failure.is_cause, failure.time_s, failure.was_killed) == (True, 10.0, False)


def test_a_rank_that_was_told_to_end_is_no_cause(tmp_path: Path) -> None:
    told = replace(failed(10.0, "SystemExit: 143"), exit_code=143)
    failure = find_failure([ended(tmp_path, 1, 1)], [record(0, told), record(1)])
    assert (failure.is_cause, failure.time_s) == (False, 10.0)


@pytest.mark.parametrize(("exit_code", "was_killed"), [(-9, True), (-11, False), (1, False)])
def test_who_may_have_been_killed_for_lack_of_memory(tmp_path: Path, exit_code: int, was_killed: bool) -> None:
    agents = [ended(tmp_path, 1, 1, REPORT.format(exit_code=exit_code))]
    failure = find_failure(agents, [record(0, killed(11.0)), record(1, killed(10.0))])
    assert (failure.was_killed, failure.is_cause, failure.time_s) == (was_killed, True, 10.0)
    assert find_failure([ended(tmp_path, 0, -9, is_rank=True)], [record(0, killed(1.0))]).was_killed


@pytest.mark.parametrize(
    ("signum", "is_cause", "was_killed"),
    [(signal.SIGKILL, True, True), (signal.SIGTERM, False, False), (signal.SIGINT, True, False)],
)
def test_a_killed_agent_is_a_cause_unless_it_was_told_to_end(
    tmp_path: Path, signum: int, is_cause: bool, was_killed: bool
) -> None:
    """SIGTERM comes to all processes of a SLURM job. When it died is known from its ranks, which died with it."""
    records = [record(0, killed(11.0)), record(1, killed(10.5)), record(2, killed(9.0))]
    failure = find_failure([ended(tmp_path, 1, -signum)], records)
    assert (failure.is_cause, failure.was_killed, failure.time_s) == (is_cause, was_killed, 10.5)
    assert failure.is_interrupt == (signum == signal.SIGINT)
    assert find_failure([ended(tmp_path, 1, -signum)], [record(0), record(1)]).time_s is None


LOST_STORE = """\
[rank 1] working
Traceback (most recent call last):
torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.
"""


def test_an_agent_that_lost_the_store_ended_its_healthy_ranks(tmp_path: Path) -> None:
    """They are not blamed, and neither is this node: the one with the store is gone."""
    agents = [ended(tmp_path, 1, 1, LOST_STORE)]
    failure = find_failure(agents, [record(0, killed(11.0)), record(1, killed(10.5))])
    assert failure.reason == (
        "agent 1 of node 0 (host vm) with ranks 0, 1 lost its connection to agent 0, which hosts the store."
        " All ranks were ended."
    )
    assert (failure.is_cause, failure.was_killed, failure.time_s) == (False, False, 10.5)
    assert failure.log_paths == (agents[0].log_path,)
    assert find_failure(agents, []).reason == (
        "agent 1, whose ranks had not started yet, lost its connection to agent 0, which hosts the store."
        " All ranks were ended."
    )


def test_a_lost_store_is_no_excuse(tmp_path: Path) -> None:
    """For a rank that failed before, for an agent that was killed, nor if a rank only prints so."""
    records = [record(0, killed(11.0)), record(1, killed(10.0))]
    assert "rank 1 (local rank 1) on node 0 (host vm, agent 1) was killed by SIGKILL" in (
        find_failure([ended(tmp_path, 1, 1, LOST_STORE + REPORT.format(exit_code=-9))], records).reason
    )
    first = ended(tmp_path, 0, -9)
    assert "agent 0, which hosted the store" in (
        find_failure([ended(tmp_path, 1, 1, LOST_STORE), first], records).reason
    )
    printed = "".join(f"[rank 0] {line}\n" for line in LOST_STORE.splitlines())
    failure = find_failure([ended(tmp_path, 1, 1, printed)], [record(0, failed(9.0, "ValueError: 3")), record(1)])
    assert (failure.is_cause, "ValueError: 3" in failure.reason) == (True, True)


def test_interrupt_is_no_failure(tmp_path: Path) -> None:
    told = Outcome(kind="interrupted", time_s=10.0, exit_code=1)
    assert find_failure([ended(tmp_path, 0, 1)], [record(2, told), record(3, failed(10.1, "timed out"))]).is_interrupt
    assert not find_failure([ended(tmp_path, 0, 1)], [record(2, told), record(3, failed(9.0, "no"))]).is_interrupt
    assert find_failure([ended(tmp_path, 0, 1, "SignalException: Process 7 got signal: 2")], []).is_interrupt


def test_port_taken_is_told_by_the_log_as_long_as_no_rank_started(tmp_path: Path) -> None:
    log = "torch.distributed.DistNetworkError: ... port: 29400, useIpv6: false, code: -98, name: EADDRINUSE, ..."
    assert is_port_taken([ended(tmp_path, 0, 1, log)], [])
    assert not is_port_taken([ended(tmp_path, 0, 1, log)], [record(0)])
    assert not is_port_taken([ended(tmp_path, 0, 1, "something else")], [])


def test_an_agent_that_aborts_while_it_ends_by_a_signal(tmp_path: Path) -> None:
    """Seen after RETURNN stopped for lack of time: that is no failure. An abort by itself is."""
    log = "SignalException: Process 7 got signal: 2\nFatal Python error: Aborted\n"
    assert find_failure([ended(tmp_path, 0, -6, log)], []).is_interrupt
    alone = find_failure([ended(tmp_path, 0, -6, "Fatal Python error: Aborted\n")], [])
    assert not alone.is_interrupt
    assert "was ended by SIGABRT (signal 6)" in alone.reason
    assert "SIGKILL" in find_failure([ended(tmp_path, 0, -9, log)], []).reason
