"""
The launcher of one node of several: ``python -m syncopate.launch.node TRAINING_FILE``, or inside a Sisyphus task that
SLURM runs once on each node.

All launchers take the same way together: the first one prepares and says where the agents meet, each starts the agent
of its node, each waits until all others are done as well, the first one writes the outputs, and only then do they end.
Whatever goes wrong on one of them is told to the others (:mod:`~syncopate.launch.board`), and all end with the same
cause. None of them can end well while another one failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from syncopate.errors import HostMemoryError, LaunchError
from syncopate.launch.addresses import check_addresses
from syncopate.launch.agents import end_agents
from syncopate.launch.attempts import note_end
from syncopate.launch.board import SILENCE_LIMIT_S, Board, NodeEnd, NodeNote, end_now, root_cause
from syncopate.launch.here import Fence, end_of, is_free
from syncopate.launch.host_memory import num_memory_kills
from syncopate.launch.interruption import Interruption
from syncopate.launch.place import PORT_TRIES, Allocation, Meeting, find_place
from syncopate.launch.rank_record import check_ranks
from syncopate.launch.start import make_folders, start_agent
from syncopate.launch.training import Hooks, Training
from syncopate.launch.watch import GRACE_S, Attempt, FailedError, PortTakenError, StopSignals, watch

_POLL_S = 0.5
_LOOK_EVERY_S = 1.0
_CONSEQUENCE_LIMIT_S = 15.0
"""How long this node goes on when another one ended, though not by itself: the cause may be here, and be seen soon."""
_SETTLE_LIMIT_S = 40.0
"""How long a node that ends waits for what the others say: theirs may be the cause."""
_PREPARE_LIMIT_S = 300.0
"""How long the first node may take to write the config, once it is there."""
_RECORDS_LIMIT_S = 30.0
"""How long the records of ranks on other nodes may take to be seen here."""
_REMIND_EVERY_S = 60.0


def board_folder(training: Training, attempt: str) -> Path:
    """:return: where the notes of the nodes are"""
    return training.run_dir / "logs" / attempt / "nodes"


def run_node(
    training: Training,
    allocation: Allocation,
    *,
    environ: Mapping[str, str],
    hooks: Hooks,
    begins: bool = True,
) -> None:
    """
    :param training: what is started
    :param allocation: the nodes, and which of them this is
    :param environ: of this process
    :param hooks: what is done around it, by the launcher of the first node
    :param begins: False where the caller did ``hooks.begin`` already
    :raises LaunchError: see :func:`syncopate.launch.run.run_training`
    """
    assert allocation.index is not None
    board = Board(board_folder(training, allocation.attempt), hosts=allocation.hosts, node=allocation.index)
    with board, StopSignals() as stop:
        launcher = _NodeLauncher(training, allocation, board, environ=environ, hooks=hooks, stop=stop)
        launcher.begins = begins and launcher.is_first
        try:
            launcher.work()
        except _OtherEndedError as exc:
            launcher.end(end_now("stopped", str(exc), is_cause=False))
        except FailedError as exc:
            launcher.end(_end_of_failure(exc, launcher.memory_kills))
        except Interruption as exc:
            launcher.end(end_now("stopped", str(exc)))
        except Exception as exc:
            reason = str(exc) if isinstance(exc, LaunchError) else f"{type(exc).__name__}: {exc}"
            where = f"{allocation.hosts[allocation.index]}"
            launcher.end(end_now("failed", f"node {allocation.index} (host {where}): {reason}"), own=exc)


class _OtherEndedError(Exception):
    """Another node ended before the training was done."""


class _MovedError(Exception):
    """The first node said anew where the agents meet."""


class _NodeLauncher:
    def __init__(
        self,
        training: Training,
        allocation: Allocation,
        board: Board,
        *,
        environ: Mapping[str, str],
        hooks: Hooks,
        stop: StopSignals,
    ) -> None:
        assert allocation.index is not None
        self.training = training
        self.allocation = allocation
        self.index = allocation.index
        self.board = board
        self.environ = environ
        self.hooks = hooks
        self.stop = stop
        self.attempt = Attempt(id=allocation.attempt, log_dir=board.folder.parent)
        self.memory_kills = num_memory_kills()
        self.fence: Fence | None = None
        self.begins = False
        self._next_look_s = 0.0
        self._ended_at_s: dict[int, float] = {}

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def work(self) -> None:
        """Until the training is complete on all nodes."""
        make_folders(self.training, self.attempt)
        if self.begins:
            self.hooks.begin(self.training.run_dir, self.attempt.id)
        meeting: Meeting | None = None
        while True:
            meeting = self._announce(self.attempt.try_number) if self.is_first else self._hear_of_meeting(meeting)
            try:
                self._run_agent(meeting)
                break
            except _MovedError:
                self.attempt.try_number += 1
            except PortTakenError:
                self.attempt.try_number += 1
        self.board.post("done")
        self._wait("end", lambda notes: all(note.state in ("done", "complete") for note in notes))
        if self.is_first:
            self._check_all_ranks()
            if self.hooks.finish is not None:
                self.hooks.finish()
            self.board.post("complete")
        else:
            self._wait("write the outputs", lambda notes: notes[0].state == "complete")
            self.board.post("complete")

    def end(self, end: NodeEnd, own: Exception | None = None) -> NoReturn:
        """
        Tells the others, hears what they say, and raises what all of them raise.

        :param end: why this node ends
        :param own: raised as it is, if it is the cause
        """
        if self.stop.noted is not None:
            # Whatever else happened, the signal came to all of this node's processes and is why.
            end = end_now("stopped", f"node {self.index} (host {self.board.hosts[self.index]}): {self.stop.reason}")
            end = replace(end, time_s=self.stop.noted_at_s or end.time_s)
        self._tell(end)
        if self.stop.noted is None:
            self._settle()
        root = root_cause(self.board.look()) or end
        lost = self._lost_nodes()
        if lost and not root.is_cause:
            root = end_now("stopped", "; ".join(lost))
            self._tell(root)  # for whoever reads the notes afterwards, as the launcher in a batch script
        if self.begins:
            note_end(self.training.run_dir, self.attempt.id, root.reason)
        if own is not None and root == end:
            raise own
        raise_end(root)

    def _tell(self, end: NodeEnd) -> None:
        try:
            self.board.post("ended", end=end)
        except OSError as exc:
            print(f"syncopate: the other nodes could not be told why this one ends: {exc}", flush=True)

    def _announce(self, try_number: int) -> Meeting:
        """:return: where the agents meet, on a port that is free now"""
        for number in range(try_number, PORT_TRIES):
            meeting = self.allocation.meeting(number)
            self.attempt.try_number = number
            if is_free(meeting.port):
                self.board.post("running", meeting=meeting)
                return meeting
        ports = [self.allocation.meeting(number).port for number in range(PORT_TRIES)]
        raise LaunchError(
            f"other processes listen on all of the ports {ports} of {self.allocation.addresses[0]}, where the agents"
            " were to meet; see who they are (ss -ltnp)"
        )

    def _hear_of_meeting(self, old: Meeting | None) -> Meeting:
        notes = self._wait(
            "prepare the training and say where to meet",
            lambda notes: notes[0].meeting not in (None, old),
            everybody=False,
            limit_s=_PREPARE_LIMIT_S + self.training.join_limit_s,
        )
        meeting = notes[0].meeting
        assert meeting is not None
        self.board.post("running")
        return meeting

    def _run_agent(self, meeting: Meeting) -> None:
        check_addresses(self.allocation, environ=self.environ, cluster=self.training.cluster)
        self.fence = Fence(self.training.run_dir, self.attempt.id)

        def on_poll() -> None:
            self._check_others(meeting)
            if self.hooks.on_poll is not None:
                self.hooks.on_poll()

        try:
            agent = start_agent(
                self.training,
                number=self.index,
                agents_here=1,
                meeting=meeting,
                local_address=self.allocation.addresses[self.index],
                attempt=self.attempt,
                environ=self.environ,
            )
            self.attempt.agents.append(agent)
            watch(self.attempt, self.training.cluster, stop=self.stop, on_poll=on_poll)
            self._check_stop()
        finally:
            end_agents(self.attempt.agents, grace_s=GRACE_S)
            self.attempt.agents.clear()

    def _check_stop(self) -> None:
        if self.stop.noted is not None:
            raise Interruption(self.stop.reason)

    def _check_others(self, meeting: Meeting | None) -> None:
        """Raises if this node cannot go on because of another one, or of a newer start."""
        self._check_stop()
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + _LOOK_EVERY_S
        if self.fence is not None:
            self.fence.check()
        notes = self.board.look()
        for number, note in enumerate(notes):
            if number != self.index:
                self._check_other(number, note)
        if meeting is not None and notes[0] is not None and notes[0].meeting not in (None, meeting):
            raise _MovedError

    def _check_other(self, number: int, note: NodeNote | None) -> None:
        silent_s = self.board.silent_s(number)
        if note is None:
            reason = self.hooks.absent(number) if self.hooks.absent else None
            if reason is not None:
                raise LaunchError(
                    f"node {number} (host {self.board.hosts[number]}) ended before its launcher started: {reason}"
                )
            if silent_s > self.training.join_limit_s:
                raise LaunchError(
                    f"node {number} (host {self.board.hosts[number]}) did not appear within {silent_s:.0f} s: its"
                    " launcher could not be started there, or does not see the folder"
                    f" {self.board.folder}; its own log is log.run.1.{number} of the job, or in the job's folder engine"
                )
        elif note.end is not None:
            self._ended_at_s.setdefault(number, time.monotonic())
            patience_s = 0.0 if note.end.is_cause else _CONSEQUENCE_LIMIT_S
            if time.monotonic() - self._ended_at_s[number] >= patience_s:
                raise _OtherEndedError(f"ended because of {note.name}: {note.end.reason}")
        elif self._is_lost(note):
            raise Interruption(self._words_for_lost(note))

    def _is_lost(self, note: NodeNote) -> bool:
        ended = note.end is not None or note.state == "complete"
        return not ended and self.board.silent_s(note.node) > SILENCE_LIMIT_S

    def _words_for_lost(self, note: NodeNote) -> str:
        return (
            f"{note.name} gave no sign for {self.board.silent_s(note.node):.0f} s: its launcher (pid {note.pid} on"
            f" {note.machine}) was killed or stopped, the folder of this start is gone, or the host is down or cut off"
            " from the file system"
        )

    def _lost_nodes(self) -> list[str]:
        notes = [note for note in self.board.look() if note is not None and note.node != self.index]
        return [self._words_for_lost(note) for note in notes if self._is_lost(note)]

    def _wait(
        self,
        what: str,
        done: Callable[[list[NodeNote]], bool],
        *,
        everybody: bool = True,
        limit_s: float = float("inf"),
    ) -> list[NodeNote]:
        """:return: the notes, once what is waited for is true"""
        began_s = reminded_s = time.monotonic()
        while True:
            self._check_others(None)
            notes = self.board.look()
            known = [note for note in notes if note is not None]
            if notes[0] is not None and (len(known) == len(notes) or not everybody) and done(known):
                return known
            if time.monotonic() - began_s > limit_s:
                raise LaunchError(f"waited {limit_s:.0f} s for node 0 (host {self.board.hosts[0]}) to {what}")
            if time.monotonic() - reminded_s > _REMIND_EVERY_S:
                reminded_s = time.monotonic()
                waited_for = ", ".join(
                    f"node {number} ({'not there yet' if note is None else note.state})"
                    for number, note in enumerate(notes)
                    if note is None or note.state not in ("done", "complete")
                )
                print(
                    f"syncopate: waiting since {reminded_s - began_s:.0f} s for the others to {what}:"
                    f" {waited_for or 'node 0'}",
                    flush=True,
                )
            time.sleep(_POLL_S)

    def _settle(self) -> None:
        """Until all others ended too, or are silent: what they say may be the cause."""
        deadline = time.monotonic() + _SETTLE_LIMIT_S
        while time.monotonic() < deadline and self.stop.noted is None:
            notes = self.board.look()
            if all(
                note is None or note.end is not None or self._is_lost(note)
                for note in notes
                if note is None or note.node != self.index
            ):
                return
            time.sleep(_POLL_S)

    def _check_all_ranks(self) -> None:
        """Those of other hosts may be seen here with a delay."""
        deadline = time.monotonic() + _RECORDS_LIMIT_S
        while True:
            try:
                check_ranks(self.attempt.rank_dir, self.training.cluster, attempt=self.attempt.id)
                return
            except LaunchError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)


def raise_end(end: NodeEnd) -> NoReturn:
    """
    :param end: of a node
    :raises LaunchError: or Interruption, or HostMemoryError, by its kind
    """
    if end.kind == "stopped":
        raise Interruption(end.reason)
    if end.kind == "host_memory":
        raise HostMemoryError(end.reason)
    raise LaunchError(end.reason)


def _end_of_failure(exc: FailedError, memory_kills: int | None) -> NodeEnd:
    told = end_of(exc, memory_kills=memory_kills)
    if isinstance(told, Interruption):
        kind = "stopped"
    else:
        kind = "host_memory" if isinstance(told, HostMemoryError) else "failed"
    end = end_now(kind, str(told), is_cause=exc.failure.is_cause)
    if exc.failure.time_s is None:
        return end
    return NodeEnd(kind=end.kind, reason=end.reason, time_s=exc.failure.time_s, is_cause=end.is_cause)


def main(argv: list[str], environ: Mapping[str, str]) -> int:
    """
    :param argv: path of a file with :meth:`Training.as_dict`
    :param environ: of this process, started by srun
    :return: exit code
    """
    if len(argv) != 1:
        sys.exit("usage: python -m syncopate.launch.node TRAINING_FILE")
    training = Training.from_dict(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    place = find_place(training.cluster, environ, key=training.key)
    if place.allocation is None or place.allocation.index is None:
        raise LaunchError("python -m syncopate.launch.node is started by srun, once on each node of a job")
    try:
        run_node(training, place.allocation, environ=environ, hooks=Hooks(), begins=False)
    except LaunchError as exc:
        print(f"syncopate: {exc}", flush=True)
        return 1
    except Interruption as exc:
        print(f"syncopate: {exc}", flush=True)
        return 75  # EX_TEMPFAIL
    return 0


if __name__ == "__main__":
    import os

    sys.exit(main(sys.argv[1:], os.environ))
