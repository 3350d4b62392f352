"""
Why a training ended: one sentence that names node, rank and reason, from three witnesses.

- The agents' exit codes. An agent that died by a signal we did not send is the cause, its ranks only followed.
- The records of the ranks, with the exception and the exact time. When one rank dies, the others fail as well, because
  their connections break, so the earliest counts.
- torchrun's own report in the log of the agent, the only one that knows by which signal a rank was killed.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syncopate.launch.rank_record import RankRecord

_LOG_END_BYTES = 256 * 1024
_SHOWN_LINES = 15
_BROKEN_CONNECTION_DELAY_S = 2.0
_REPORTED_RANK = re.compile(
    r"^  rank +: (?P<rank>\d+) \(local_rank: \d+\)\n  exitcode +: (?P<exit_code>-?\d+) \(pid: \d+\)", re.M
)
_AGENT_SIGNAL = re.compile(r"^\S*SignalException: Process \d+ got signal: (?:Signals\.)?(\w+)", re.M)
_BROKEN_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken pipe|remote process exited|timed out"
    r"|DistNetworkError|DistBackendError",
    re.I,
)
_LOST_STORE = re.compile(r"^\S*RendezvousConnectionError: ", re.M)
_PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.I)
_HINTS = {
    "No module named 'syncopate": "The training python does not see syncopate at {package}: mount that folder into the"
    " container it runs in, and do not empty PYTHONPATH.",
    "No module named 'torch": "The training python has no torch.",
    "No module named torch": "The training python has no torch.",
}


@dataclass(frozen=True, kw_only=True)
class AgentEnd:
    """
    How an agent ended.

    :param number: of the agent
    :param exit_code: negative for a signal
    :param ended_by_us: whether the launcher had told it to end
    :param log_path: what it printed
    :param is_rank: it was no agent, but the only rank itself
    """

    number: int
    exit_code: int
    ended_by_us: bool
    log_path: Path
    is_rank: bool = False

    @property
    def signal_number(self) -> int | None:
        """The signal that ended the agent, if one did: directly, or caught by torchrun, which then exits by itself."""
        if self.is_rank:
            return None
        found = _AGENT_SIGNAL.findall(log_end(self.log_path)) if self.exit_code else []
        # One that was told to end by a signal, and says so, may still abort while its interpreter exits.
        if self.exit_code < 0 and not (found and self.exit_code == -signal.SIGABRT):
            return -self.exit_code
        if not found:
            return None
        return int(found[-1]) if found[-1].isdecimal() else int(signal.Signals[found[-1]])

    @property
    def lost_the_store(self) -> bool:
        """Whether it ended, and its ranks, because the agent that hosts the store was gone."""
        if self.is_rank or self.ended_by_us or self.exit_code <= 0 or self.reported_exit_codes():
            return False
        return _LOST_STORE.search(log_end(self.log_path)) is not None

    def reported_exit_codes(self) -> dict[int, int]:
        """:return: by rank, from torchrun's report"""
        if self.is_rank:
            return {0: self.exit_code}
        return {int(m["rank"]): int(m["exit_code"]) for m in _REPORTED_RANK.finditer(log_end(self.log_path))}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """
    :param reason: who failed, and how, in one sentence
    :param log_paths: where to read more, the most telling first
    :param is_interrupt: it was told to stop by SIGINT and is to be started again, nothing is wrong
    :param time_s: when, in seconds since 1970; None if nobody noted it
    :param is_cause: False if it looks as if it followed from the end of another one: a broken connection, say
    :param was_killed: by SIGKILL, which nobody here sent
    """

    reason: str
    log_paths: tuple[Path, ...]
    is_interrupt: bool = False
    time_s: float | None = None
    is_cause: bool = True
    was_killed: bool = False

    def message(self, *, package: Path, log_dir: Path) -> str:
        """
        :param package: where syncopate lies
        :param log_dir: of all logs of this attempt
        :return: the reason, the last lines of the log, and where the rest is
        """
        parts = [self.reason]
        for path in self.log_paths:
            lines = [line for line in log_end(path).splitlines() if line.strip()][-_SHOWN_LINES:]
            if lines:
                parts.append("\n    ".join([f"Last lines of {path}:", *lines]))
        shown = "\n".join(parts)
        hints = [hint.format(package=package) for text, hint in _HINTS.items() if text in shown]
        return "\n".join([*parts, *hints, f"All logs: {log_dir}"])


def find_failure(agents: Sequence[AgentEnd], records: Sequence[RankRecord]) -> Failure:
    """
    :param agents: all that this launcher started, ended
    :param records: of the ranks of this attempt
    :return: what went wrong first
    """
    for agent in agents:
        signum = agent.signal_number
        if signum is not None and not agent.ended_by_us:
            return _agent_killed(agent, signum, [record for record in records if record.agent == agent.number])
    for agent in agents:
        if agent.lost_the_store:
            return _agent_cut_off(agent, [record for record in records if record.agent == agent.number])
    exit_codes = {rank: code for agent in agents for rank, code in agent.reported_exit_codes().items()}
    suspects = [record for record in records if record.failed or exit_codes.get(record.rank, 0) != 0]
    if not suspects:
        return _nobody_known(agents, records)
    first = min(suspects, key=lambda record: _order(record, exit_codes.get(record.rank)))
    others = [f"{record.rank}" for record in suspects if record is not first]
    afterwards = f"; rank{'s' * (len(others) > 1)} {', '.join(others)} followed" if others else ""
    return Failure(
        reason=f"{first} {_how(first, exit_codes.get(first.rank))}{afterwards}. All ranks were ended.",
        log_paths=tuple(Path(first.log_dir) / name for name in ("stderr.log", "stdout.log"))
        if first.log_dir
        else tuple(agent.log_path for agent in agents if agent.number == first.agent),
        is_interrupt=first.outcome is not None and first.outcome.kind == "interrupted",
        time_s=first.outcome.time_s if first.outcome is not None else None,
        is_cause=not _fell_with_others(first, exit_codes.get(first.rank)),
        was_killed=exit_codes.get(first.rank) == -signal.SIGKILL,
    )


def is_port_taken(agents: Sequence[AgentEnd], records: Sequence[RankRecord]) -> bool:
    """
    :param agents: all that this launcher started, ended
    :param records: of the ranks of this attempt
    :return: whether no rank started because another process listens on the port of the store
    """
    return not records and any(
        agent.exit_code and not agent.ended_by_us and _PORT_TAKEN.search(log_end(agent.log_path)) for agent in agents
    )


def log_end(path: Path) -> str:
    """
    :param path: of a log, may be missing
    :return: its last 256 KiB
    """
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LOG_END_BYTES))
        return file.read().decode(errors="replace")


def _agent_killed(agent: AgentEnd, signum: int, records: Sequence[RankRecord]) -> Failure:
    store = ", which hosted the store," if agent.number == 0 else ""
    why = ", as RETURNN does itself when little time is left" if signum == signal.SIGINT else ""
    return Failure(
        reason=f"agent {agent.number}{store}{_where(records)} was ended by {_signal_name(signum)}{why}. All ranks were"
        " ended.",
        log_paths=(agent.log_path,),
        is_interrupt=signum == signal.SIGINT,
        time_s=_first_end_s(records),
        is_cause=signum != signal.SIGTERM,
        was_killed=signum == signal.SIGKILL,
    )


def _agent_cut_off(agent: AgentEnd, records: Sequence[RankRecord]) -> Failure:
    return Failure(
        reason=f"agent {agent.number}{_where(records)} lost its connection to agent 0, which hosts the store. All ranks"
        " were ended.",
        log_paths=(agent.log_path,),
        time_s=_first_end_s(records),
        is_cause=False,
    )


def _where(records: Sequence[RankRecord]) -> str:
    if not records:
        return ", whose ranks had not started yet,"
    ranks = ", ".join(str(record.rank) for record in records)
    return f" of node {records[0].node} (host {records[0].host}) with ranks {ranks}"


def _first_end_s(records: Sequence[RankRecord]) -> float | None:
    return min((record.outcome.time_s for record in records if record.outcome), default=None)


def _nobody_known(agents: Sequence[AgentEnd], records: Sequence[RankRecord]) -> Failure:
    """No rank with a record and no signal can be blamed: mostly the ranks could not even start."""
    failed = [agent for agent in agents if agent.exit_code and not agent.ended_by_us] or list(agents)
    ends = [f"agent {agent.number} ended with {_exit(agent.exit_code)}" for agent in failed]
    ends += [
        f"rank {rank} with {_exit(code)}" for agent in failed for rank, code in agent.reported_exit_codes().items()
    ]
    started = f"{len(records)} ranks had started" if records else "no rank had started"
    stderrs = [path for agent in failed for path in agent.log_path.parent.glob(f"agent{agent.number}/*/*/*/stderr.log")]
    return Failure(
        reason=f"{', '.join(ends)}; {started}. All ranks were ended.",
        log_paths=(*sorted(stderrs)[:1], *(agent.log_path for agent in failed)),
    )


def _order(record: RankRecord, exit_code: int | None) -> tuple[float, bool]:
    """:return: to sort by: who failed first; those that probably fell because another one did are moved back"""
    outcome = record.outcome
    told_to_end = _was_told_to_end(record, exit_code)
    if outcome is None or not record.failed:
        return float("inf"), told_to_end  # only torchrun knows that it failed, and does not say when
    delay_s = _BROKEN_CONNECTION_DELAY_S if _fell_with_others(record, exit_code) else 0.0
    return outcome.time_s + delay_s, told_to_end


def _was_told_to_end(record: RankRecord, exit_code: int | None) -> bool:
    own_exit_code = record.outcome.exit_code if record.outcome else None
    return bool({exit_code, own_exit_code} & {-signal.SIGTERM, 128 + signal.SIGTERM})


def _fell_with_others(record: RankRecord, exit_code: int | None) -> bool:
    error = record.outcome.error if record.outcome else None
    return _was_told_to_end(record, exit_code) or bool(_BROKEN_CONNECTION.search(error or ""))


def _how(record: RankRecord, exit_code: int | None) -> str:
    """:return: the predicate of the sentence"""
    outcome = record.outcome
    if exit_code is not None and exit_code < 0:
        return f"was killed by {_signal_name(-exit_code)}"
    if outcome is None or outcome.kind == "killed":
        how = f"ended with exit code {exit_code}" if exit_code else "was killed, or ended"
        return f"{how} without an exception"
    if outcome.kind == "finished":
        return f"ended with exit code {exit_code} after its training was done"
    if outcome.kind == "interrupted":
        return "was interrupted by SIGINT, as RETURNN does itself when little time is left"
    return f"ended with exit code {outcome.exit_code}: {outcome.error}"


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else _signal_name(-code)


def _signal_name(signum: int) -> str:
    names = {number.value: number.name for number in signal.Signals}
    return f"{names.get(signum, 'signal')} (signal {signum})"
