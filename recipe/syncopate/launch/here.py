"""Runs a training whose agents are all started on this host: one node, or several that are emulated."""

from __future__ import annotations

import random
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from syncopate.cluster import Cluster
from syncopate.errors import HostMemoryError, LaunchError
from syncopate.launch.agents import end_agents
from syncopate.launch.attempts import note_end, superseded_by
from syncopate.launch.command import LOCAL_HOST
from syncopate.launch.host_memory import num_memory_kills
from syncopate.launch.interruption import Interruption
from syncopate.launch.place import PORT_RANGE, PORT_TRIES, Meeting, Place
from syncopate.launch.rank_record import check_ranks
from syncopate.launch.start import make_folders, start_agent
from syncopate.launch.training import Hooks, Training
from syncopate.launch.watch import GRACE_S, Attempt, FailedError, PortTakenError, StopSignals, watch

FENCE_EVERY_S = 2.0


def run_here(training: Training, place: Place, *, environ: Mapping[str, str], hooks: Hooks) -> None:
    """
    :param training: what is started
    :param place: of its agents
    :param environ: of this process
    :param hooks: what is done around it
    :raises LaunchError: see :func:`syncopate.launch.run.run_training`
    """
    attempt = _new_attempt(training)
    with StopSignals() as stop:
        try:
            hooks.begin(training.run_dir, attempt.id)
            _run_ranks(training, place, attempt, environ=environ, hooks=hooks, stop=stop)
            check_ranks(attempt.rank_dir, training.cluster, attempt=attempt.id)
            if hooks.finish is not None:
                hooks.finish()
        except BaseException as exc:
            note_end(training.run_dir, attempt.id, str(exc) or type(exc).__name__)
            raise


def _run_ranks(
    training: Training, place: Place, attempt: Attempt, *, environ: Mapping[str, str], hooks: Hooks, stop: StopSignals
) -> None:
    memory_kills = num_memory_kills()
    fence = Fence(training.run_dir, attempt.id)

    def on_poll() -> None:
        fence.check()
        if hooks.on_poll is not None:
            hooks.on_poll()

    for try_number in range(PORT_TRIES):
        attempt.try_number = try_number
        meeting = _meeting_here(training.cluster, attempt)
        make_folders(training, attempt)
        try:
            for number in place.agents_here:
                agent = start_agent(
                    training,
                    number=number,
                    agents_here=len(place.agents_here),
                    meeting=meeting,
                    local_address=LOCAL_HOST,
                    attempt=attempt,
                    environ=environ,
                )
                attempt.agents.append(agent)
            watch(attempt, training.cluster, stop=stop, on_poll=on_poll)
        except FailedError as exc:
            if stop.noted is None:
                raise end_of(exc, memory_kills=memory_kills) from None
        except PortTakenError:
            if try_number < PORT_TRIES - 1:
                continue
            raise LaunchError(
                f"another process listens on port {meeting.port} of {meeting.host}, where the agents were to meet"
                f" (try {try_number + 1}); see who it is (ss -ltnp), or start again. Logs: {attempt.log_dir}"
            ) from None
        finally:
            end_agents(attempt.agents, grace_s=GRACE_S)
            attempt.agents.clear()
        if stop.noted is not None:
            raise Interruption(stop.reason)
        return


class Fence:
    """
    Two starts of one training must not write one checkpoint.

    :param run_dir: of the training
    :param attempt: id of this start
    """

    def __init__(self, run_dir: Path, attempt: str) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self._next_s = 0.0

    def check(self) -> None:
        """
        :raises Interruption: if there is a newer one
        """
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + FENCE_EVERY_S
        newer = superseded_by(self._run_dir, self._attempt)
        if newer is not None:
            raise Interruption(f"a newer start of this training, {newer}, took over; {self._attempt} ends")


def end_of(exc: FailedError, *, memory_kills: int | None) -> BaseException:
    """
    :param exc: what failed here
    :param memory_kills: how many processes the host had killed for lack of memory before
    :return: what a caller is told
    """
    if exc.failure.is_interrupt:
        return Interruption(exc.failure.reason)
    kills_now = num_memory_kills()
    if exc.failure.was_killed and None not in (memory_kills, kills_now) and kills_now != memory_kills:
        return HostMemoryError(
            f"{exc.message}\nThe kernel killed it because the memory that was asked for on host"
            f" {socket.gethostname()} was used up (main memory, not that of a GPU)."
        )
    return LaunchError(exc.message)


def _new_attempt(training: Training) -> Attempt:
    """:return: with an id never used before"""
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
    return Attempt(id=name, log_dir=training.run_dir / "logs" / name)


def _meeting_here(cluster: Cluster, attempt: Attempt) -> Meeting:
    """:return: a meeting point for agents that are all on this host"""
    port = 0 if cluster.num_nodes == 1 else _free_port()
    return Meeting(host=LOCAL_HOST, port=port, id=f"{attempt.id}.{attempt.try_number}")


def _free_port() -> int:
    """
    :return: a port on which nobody listens now. Somebody may before the agent does, so be ready to try again.
    """
    for port in random.SystemRandom().sample(range(*PORT_RANGE), 100):
        if is_free(port):
            return port
    raise LaunchError(f"none of 100 ports tried between {PORT_RANGE[0]} and {PORT_RANGE[1]} is free on this host")


def is_free(port: int) -> bool:
    """
    :param port: on any interface of this host
    """
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
