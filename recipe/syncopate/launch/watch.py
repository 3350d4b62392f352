"""Watches the agents of one attempt until all are done, or ends all of them when one fails, and says why."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

import syncopate
from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.agents import Agent, end_agents, wait_for_agents
from syncopate.launch.failure import AgentEnd, Failure, find_failure, is_port_taken
from syncopate.launch.interruption import Interruption
from syncopate.launch.rank_record import RankRecord, read_records

_POLL_S = 0.2
_RECORDS_EVERY_S = 1.0
_OTHERS_LIMIT_S = 3.0
"""How long the other agents may take to report their ranks, which may have failed first."""
_REPORT_LIMIT_S = 10.0
"""How long an agent may take to report a rank that failed: torchrun waits 30 s for its other ranks first."""
_EXIT_LIMIT_S = 300.0
"""How long an agent may stay once all ranks of all nodes said that they are done: as long as torchrun's own barrier."""
_SETTLE_LIMIT_S = 2.0
_REMIND_EVERY_S = 60.0
_QUIET_S = 600.0
"""After how long without a line from any rank here that is said: one of them may hang."""
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL. RETURNN takes 3 s to write down where its threads are."""


class PortTakenError(Exception):
    """Another process listens where the agents wanted to meet."""


class FailedError(Exception):
    """
    An agent or a rank that was started here failed.

    :param failure: what went wrong first
    :param message: the same with the last lines of its log
    """

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message


@dataclass(kw_only=True)
class Attempt:
    """
    One start of all ranks.

    :param id: tells its records and logs from those of other attempts
    :param log_dir: of this attempt only
    :param agents: those that this launcher started
    :param try_number: how often the agents were started before, where a port was taken
    """

    id: str
    log_dir: Path
    agents: list[Agent] = field(default_factory=list)
    try_number: int = 0

    @property
    def rank_dir(self) -> Path:
        """Where the ranks keep their records."""
        return self.log_dir / "ranks"

    def records_here(self) -> list[RankRecord]:
        """:return: of the ranks that our agents started"""
        here = {agent.number for agent in self.agents}
        return [record for record in read_records(self.rank_dir, attempt=self.id) if record.agent in here]

    def is_done(self, cluster: Cluster) -> bool:
        """:return: whether all ranks, of other nodes as well, have ended"""
        records = read_records(self.rank_dir, attempt=self.id)
        return sum(record.outcome is not None for record in records) >= cluster.world_size

    def ends(self) -> list[AgentEnd]:
        """:return: of the agents that have ended"""
        return [
            AgentEnd(
                number=agent.number,
                exit_code=code,
                ended_by_us=agent.ended_by_us,
                log_path=agent.log_path,
                is_rank=agent.is_rank,
            )
            for agent in self.agents
            if (code := agent.poll()) is not None
        ]


class StopSignals:
    """
    While it is entered, signals that ask this process to end are only noted, so that the agents can be ended first.
    Afterwards the signal takes the effect it would have had. Outside of the main thread python allows no handlers;
    there the agents end with the process.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.noted: int | None = None
        self.noted_at_s: float | None = None
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in self._SIGNALS:
                if signal.getsignal(signum) != signal.SIG_IGN:
                    self._old_handlers[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        for signum, handler in self._old_handlers.items():
            signal.signal(signum, handler)
        if self.noted is not None:
            print(f"syncopate: {self.reason}", flush=True)
            signal.raise_signal(self.noted)
            raise Interruption(self.reason)

    @property
    def reason(self) -> str:
        """What the noted signal did."""
        assert self.noted is not None
        return f"told to end by {signal.Signals(self.noted).name}; all ranks were ended"

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.noted is None:
            self.noted_at_s = time.time()
        self.noted = signum


def watch(attempt: Attempt, cluster: Cluster, *, stop: StopSignals, on_poll: Callable[[], None] | None = None) -> None:
    """
    Returns when all agents ended well, or a signal asked us to stop.

    :param attempt: its agents were just started
    :param cluster: whose ranks they start
    :param stop: notes signals
    :param on_poll: called in each round
    :raises FailedError: if an agent or a rank failed; all others were ended before
    :raises PortTakenError: if they could not start because of the port
    :raises LaunchError: if an agent does not end
    """
    clock = _Clock()
    ranks_here = len(attempt.agents) * cluster.num_gpus_per_node
    printed_before = -1
    while stop.noted is None:
        exit_codes = [agent.poll() for agent in attempt.agents]
        if any(exit_codes):
            _fail(attempt)
        if all(code == 0 for code in exit_codes):
            return
        if on_poll is not None:
            on_poll()
        if clock.every("records", _RECORDS_EVERY_S):
            records = attempt.records_here()
            if clock.holds_for_s("failed", any(record.failed for record in records)) > _REPORT_LIMIT_S:
                _fail(attempt)
            done = sum(record.outcome is not None for record in records)
            if clock.holds_for_s("done", done == ranks_here and attempt.is_done(cluster)) > _EXIT_LIMIT_S:
                left = _who_runs(attempt, records)
                end_agents(attempt.agents, grace_s=GRACE_S)
                raise LaunchError(
                    f"all ranks said that they are done, but {left} did not end within"
                    f" {_EXIT_LIMIT_S:g} s, so it was ended. The training itself is complete. Logs: {attempt.log_dir}"
                )
            printed = sum(agent.log_path.stat().st_size for agent in attempt.agents)
            if clock.holds_for_s("quiet", printed == printed_before) > _QUIET_S:
                clock.holds_for_s("quiet", False)
                print(
                    f"syncopate: no rank of {_who_runs(attempt, records)} has printed anything for {_QUIET_S / 60:g}"
                    " min; if that is not meant, one of them hangs (py-spy dump --pid shows where)",
                    flush=True,
                )
            printed_before = printed
            if clock.holds_for_s("some done", 0 < done < ranks_here) > _REMIND_EVERY_S:
                clock.holds_for_s("some done", False)
                waited_for = [record.rank for record in records if record.outcome is None]
                print(f"syncopate: {done} ranks are done, waiting for ranks {waited_for}", flush=True)
        time.sleep(_POLL_S)


def _fail(attempt: Attempt) -> NoReturn:
    """Ends what still runs, and raises what went wrong first."""
    killed = [end for end in attempt.ends() if end.signal_number is not None]
    if not killed and not is_port_taken(attempt.ends(), attempt.records_here()):
        wait_for_agents(attempt.agents, _OTHERS_LIMIT_S)
    end_agents(attempt.agents, grace_s=GRACE_S)
    deadline = time.monotonic() + _SETTLE_LIMIT_S  # for the guards to write down that their rank is gone
    while any(record.outcome is None for record in attempt.records_here()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    ends, records = attempt.ends(), attempt.records_here()
    if is_port_taken(ends, records):
        raise PortTakenError
    failure = find_failure(ends, records)
    package = Path(syncopate.__file__).resolve().parent
    raise FailedError(failure, failure.message(package=package, log_dir=attempt.log_dir))


def _who_runs(attempt: Attempt, records: list[RankRecord]) -> str:
    return ", ".join(
        f"agent {agent.number} (pid {agent.pid}, ranks {[r.rank for r in records if r.agent == agent.number]})"
        for agent in attempt.agents
        if agent.poll() is None
    )


class _Clock:
    """Remembers since when something holds, and when something was done last."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def holds_for_s(self, what: str, holds: bool) -> float:
        """:return: for how long it has held, 0 if it does not"""
        if not holds:
            self._since_s.pop(what, None)
            return 0.0
        return time.monotonic() - self._since_s.setdefault(what, time.monotonic())

    def every(self, what: str, period_s: float) -> bool:
        """:return: whether it is time to do it again; not at once"""
        if self.holds_for_s(what, True) < period_s:
            return False
        del self._since_s[what]
        return True
