"""
Where the nodes of a training are, and which of them this launcher starts: a pure function of cluster and environment.

Three answers exist:

- ``SYNCOPATE_ENGINE=local``: all nodes are emulated on this host, several agents beside each other.
- one node: on this host, whatever started us.
- several nodes: SLURM runs one launcher per node, ``SLURM_JOB_NODELIST`` names the hosts and ``SLURM_NODEID`` this one.

Sisyphus removes every variable it was not told to keep before a task runs, so a missing variable says nothing about
where we are: it is an error with the lines to put into settings.py, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError, did_you_mean
from syncopate.launch.hostlist import expand_hostlist
from syncopate.launch.kept import ENGINE

ENGINES = ("local", "slurm")
_NEEDED = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_PROCID", "SLURM_RESTART_COUNT")

PORT_RANGE = (20000, 30000)
"""Rendezvous ports on SLURM: above the well-known services, below the range the kernel hands out (from 32768)."""


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """
    Where the agents of one training meet (torchrun calls it rendezvous).

    :param host: which hosts the store
    :param port: of the store; 0 takes any free one, possible if only one agent comes
    :param id: of the training; agents with another id do not meet it even on the same port
    """

    host: str
    port: int
    id: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """
    :param agents_here: numbers of the agents that this launcher starts. An agent's number says on which host it is, not
        which ranks it gets: torchrun hands out node numbers when the agents meet
    :param meeting: where the agents meet; None if they are all here, then the launcher chooses
    """

    agents_here: tuple[int, ...]
    meeting: Meeting | None = None

    @property
    def all_here(self) -> bool:
        """Whether this launcher starts every agent."""
        return self.meeting is None


def find_place(cluster: Cluster, environ: Mapping[str, str], *, key: str = "train") -> Place:
    """
    :param cluster: how many nodes there are to be
    :param environ: of this process
    :param key: tells apart what one SLURM job may start: letters, digits, ``.``, ``_`` and ``-``
    :raises LaunchError: if a variable is missing or does not fit the cluster
    """
    if not re.fullmatch(r"[\w.-]+", key):
        raise LaunchError(f"find_place: key must consist of letters, digits, '.', '_' and '-', got {key!r}")
    engine = environ.get(ENGINE)
    if engine is not None and engine not in ENGINES:
        raise LaunchError(
            f"{ENGINE} must be one of {list(ENGINES)}, got {engine!r}{did_you_mean(engine, ENGINES)};"
            " it is set by DEFAULT_ENVIRONMENT_SET in settings.py"
        )
    if engine == "local" or cluster.num_nodes == 1:
        return Place(agents_here=tuple(range(cluster.num_nodes)))
    return _slurm_place(cluster, environ, key)


def _slurm_place(cluster: Cluster, environ: Mapping[str, str], key: str) -> Place:
    job_id = _needed(cluster, environ, "SLURM_JOB_ID")
    hosts = expand_hostlist(_needed(cluster, environ, "SLURM_JOB_NODELIST"))
    index = _number("SLURM_NODEID", _needed(cluster, environ, "SLURM_NODEID", "SLURM_PROCID"))
    restarts = _number("SLURM_RESTART_COUNT", environ.get("SLURM_RESTART_COUNT", "0"))
    if len(hosts) != cluster.num_nodes:
        raise LaunchError(
            f"the cluster has {cluster.num_nodes} nodes ({cluster}), but SLURM gave {len(hosts)}:"
            f" SLURM_JOB_NODELIST={environ['SLURM_JOB_NODELIST']}; ask SLURM for {cluster.num_nodes} nodes"
        )
    if index >= len(hosts):
        raise LaunchError(
            f"this is task {index} of a SLURM job with {len(hosts)} nodes, numbered from 0:"
            " more than one task runs per node; ask SLURM for --ntasks-per-node=1"
        )
    first, end = PORT_RANGE
    port = first + _number("SLURM_JOB_ID", job_id) % (end - first)
    return Place(
        agents_here=(index,),
        meeting=Meeting(host=hosts[0], port=port, id=f"{job_id}.{restarts}.{key}"),
    )


def _needed(cluster: Cluster, environ: Mapping[str, str], *names: str) -> str:
    for name in names:
        if environ.get(name):
            return environ[name]
    raise LaunchError(
        f"{' or '.join(names)} must be set, but is not, so the {cluster.num_nodes} nodes of the"
        f" cluster ({cluster}) cannot find each other. Sisyphus empties the environment before a task runs."
        f" On SLURM put into settings.py: DEFAULT_ENVIRONMENT_KEEP |= {{{', '.join(map(repr, _NEEDED))}}}"
        " (syncopate.launch.kept.kept_names lists all that is of use)."
        f" To emulate all nodes on one host: DEFAULT_ENVIRONMENT_SET[{ENGINE!r}] = 'local'."
    )


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise LaunchError(f"{name} must be a number, got {value!r}")
    return int(value)
