"""
Runs one training from this host: all nodes if they are emulated here, else the one node that this host is.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.agents import Agent, end_agents
from syncopate.launch.command import JOIN_LIMIT_S, LOCAL_HOST, agent_command, rank_tail
from syncopate.launch.environment import expose_package, gpus_of_agent, rank_environment
from syncopate.launch.place import PORT_RANGE, Meeting, Place, find_place
from syncopate.launch.rank_record import check_ranks
from syncopate.launch.watch import GRACE_S, Attempt, PortTakenError, StopSignals, watch

_PORT_TRIES = 5


def run_training(
    *,
    config_file: str | Path,
    run_dir: str | Path,
    work_dir: str | Path,
    cluster: Cluster,
    python: str,
    environ: Mapping[str, str],
    returnn_root: str | Path | None = None,
    distributed: bool = True,
    key: str = "train",
    tail: Sequence[str] | None = None,
    on_poll: Callable[[], None] | None = None,
    num_cores: int | None = None,
    echo: bool = True,
    join_limit_s: int = JOIN_LIMIT_S,
) -> None:
    """
    Returns when every rank is done. A training that fails is not started again.

    :param config_file: RETURNN config
    :param run_dir: gets ``logs/<attempt>/`` and ``python_path/``
    :param work_dir: working directory of the ranks, where RETURNN writes what its config names by relative paths
    :param cluster: nodes, and ranks per node
    :param python: of the training
    :param environ: of this process
    :param returnn_root: checkout of RETURNN; None takes the package that the training python has
    :param distributed: False for one process without torchrun and without ``torch.distributed``
    :param key: tells apart what one SLURM job may start
    :param tail: what each rank runs instead of RETURNN, see :func:`syncopate.launch.command.rank_tail`
    :param on_poll: called a few times per second while the ranks run; what it raises ends them
    :param num_cores: that the ranks on this host may use together; None takes those that this process may use
    :param echo: print what the ranks print; it is in their log files in any case
    :param join_limit_s: how long the agents may take to meet
    :raises LaunchError: if ranks could not be started, one of them died, or they were not one world of the right size
    :raises KeyboardInterrupt: if it was told to stop by SIGINT, as RETURNN does to itself when little time is left
    """
    run_dir, work_dir = Path(run_dir).absolute(), Path(work_dir).absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    place = find_place(cluster, environ, key=key)
    python = _find_python(python, environ)
    python_path = expose_package(run_dir)

    def start_agent(number: int, here: Place, attempt: Attempt) -> Agent:
        command = agent_command(
            python=python,
            cluster=cluster,
            place=here,
            agent=number,
            tail=tail if tail is not None else rank_tail(Path(config_file).absolute()),
            log_dir=attempt.log_dir / f"agent{number}",
            distributed=distributed,
            join_limit_s=join_limit_s,
        )
        environment = rank_environment(
            environ=environ,
            python_path=python_path,
            num_cores=num_cores or len(os.sched_getaffinity(0)),
            ranks_on_host=len(here.agents_here) * cluster.num_gpus_per_node,
            rank_dir=attempt.rank_dir,
            attempt=attempt.id,
            agent=number,
            device=cluster.device,
            returnn_root=None if returnn_root is None else Path(returnn_root).absolute(),
        )
        if place.all_here and cluster.num_nodes > 1 and cluster.device == "gpu":
            environment["CUDA_VISIBLE_DEVICES"] = gpus_of_agent(environ, cluster, number)
        log_path = attempt.log_dir / f"agent{number}.log"
        if log_path.exists():
            raise LaunchError(
                f"agent {number} of {attempt.id} was started before, {log_path} exists: what one SLURM job starts more"
                " than once needs a key of its own each time"
            )
        return Agent(
            number=number,
            command=command,
            environ=environment,
            work_dir=work_dir,
            log_path=log_path,
            is_rank=not distributed,
            echo=echo,
        )

    for try_number in range(1, _PORT_TRIES + 1):
        meeting = place.meeting or _meeting_here(cluster)
        attempt = Attempt(id=meeting.id, log_dir=run_dir / "logs" / meeting.id)
        attempt.log_dir.mkdir(parents=True, exist_ok=True)
        with StopSignals() as stop:
            try:
                for number in place.agents_here:
                    attempt.agents.append(start_agent(number, replace(place, meeting=meeting), attempt))
                watch(attempt, cluster, stop=stop, on_poll=on_poll)
            except PortTakenError:
                if not place.all_here or try_number == _PORT_TRIES:
                    raise LaunchError(
                        f"another process listens on port {meeting.port} of {meeting.host}, where the agents were to"
                        f" meet (try {try_number}); see who it is (ss -ltnp), or start again. Logs: {attempt.log_dir}"
                    ) from None
                continue
            finally:
                end_agents(attempt.agents, grace_s=GRACE_S)
        break
    if place.all_here:
        check_ranks(attempt.rank_dir, cluster, attempt=attempt.id)


def _find_python(python: str, environ: Mapping[str, str]) -> str:
    """:return: where it is, independent of the working directory"""
    found = shutil.which(python, path=environ.get("PATH"))
    if found is None:
        raise LaunchError(f"the training python {python!r} does not exist, or is no program that may be executed")
    return os.path.abspath(found)


def _meeting_here(cluster: Cluster) -> Meeting:
    """:return: a meeting point for agents that are all on this host, with an id never used before"""
    return Meeting(
        host=LOCAL_HOST,
        port=0 if cluster.num_nodes == 1 else _free_port(),
        id=f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}",
    )


def _free_port() -> int:
    """
    :return: a port on which nobody listens now. Somebody may before the agent does, so be ready to try again.
    """
    for port in random.SystemRandom().sample(range(*PORT_RANGE), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise LaunchError(f"none of 100 ports tried between {PORT_RANGE[0]} and {PORT_RANGE[1]} is free on this host")
