"""
Where the nodes of a training are, and which of them this launcher starts: a pure function of cluster and environment.

Four answers exist:

- ``SYNCOPATE_ENGINE=local``: all nodes are emulated on this host, several agents beside each other.
- one node: on this host, whatever started us.
- several nodes, and SLURM runs one launcher on each (``SLURM_STEP_NUM_NODES``): this one starts the agent of its own
  node, ``SLURM_NODEID``.
- several nodes, and SLURM runs one launcher in the batch script: this one starts a launcher on each node.

Sisyphus removes every variable it was not told to keep before a task runs, so a missing variable says nothing about
where we are: it is an error with the lines to put into settings.py, never a guess.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError, did_you_mean
from syncopate.launch.hostlist import expand_hostlist
from syncopate.launch.kept import ENGINE, HOST_SUFFIX, MEETING_HOST

ENGINES = ("local", "slurm")
_NEEDED = (
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_NODES",
)

PORT_RANGE = (20000, 30000)
"""Rendezvous ports on SLURM: above the well-known services, below the range the kernel hands out (from 32768)."""
PORT_TRIES = 5
_NEXT_PORT = 1999
"""Between two tries. Prime to the size of the range, and far: neighbouring ports belong to neighbouring jobs."""


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
class Allocation:
    """
    The nodes that SLURM gave.

    :param hosts: their names in SLURM, in its order
    :param addresses: the names by which they reach each other
    :param index: of the node that this launcher is for; None if it is to start a launcher on each node
    :param attempt: id of this start, unlike that of any other
    :param first_port: where to try first
    """

    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    index: int | None
    attempt: str
    first_port: int

    @property
    def shares_host(self) -> bool:
        """Whether all nodes are on one host and meet on its loopback interface, as in a cluster made for rehearsals."""
        return is_loopback(self.addresses[0])

    def meeting(self, try_number: int) -> Meeting:
        """
        :param try_number: from 0
        :return: where the agents are to meet
        """
        first, end = PORT_RANGE
        port = first + (self.first_port - first + try_number * _NEXT_PORT) % (end - first)
        suffix = f".{try_number}" if try_number else ""
        return Meeting(host=self.addresses[0], port=port, id=f"{self.attempt}{suffix}")


@dataclass(frozen=True, kw_only=True)
class Place:
    """
    :param agents_here: numbers of the agents that this launcher starts. An agent's number says on which host it is, not
        which ranks it gets: torchrun hands out node numbers when the agents meet
    :param allocation: None if all agents are started here, then the launcher chooses where they meet
    """

    agents_here: tuple[int, ...]
    allocation: Allocation | None = None


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


def is_loopback(host: str) -> bool:
    """
    :param host: a name or an address
    :return: whether it means this host, wherever it is read
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _slurm_place(cluster: Cluster, environ: Mapping[str, str], key: str) -> Place:
    job_id = _number("SLURM_JOB_ID", _needed(cluster, environ, "SLURM_JOB_ID"))
    hosts = _hosts(_needed(cluster, environ, "SLURM_JOB_NODELIST"))
    index = _number("SLURM_NODEID", _needed(cluster, environ, "SLURM_NODEID", "SLURM_PROCID"))
    restarts = _number("SLURM_RESTART_COUNT", environ.get("SLURM_RESTART_COUNT") or "0")
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
    per_node = _is_on_each_node(cluster, environ)
    if not per_node and index != 0:
        raise LaunchError(
            f"this launcher runs on node {index} without a step of SLURM on all {len(hosts)} nodes; it must run once"
            " on each node (by srun), or once in the batch script"
        )
    first, end = PORT_RANGE
    return Place(
        agents_here=(index,) if per_node else (),
        allocation=Allocation(
            hosts=hosts,
            addresses=_addresses(hosts, environ),
            index=index if per_node else None,
            attempt=f"{job_id}.{restarts}.{key}",
            first_port=first + job_id % (end - first),
        ),
    )


def _hosts(hostlist: str) -> tuple[str, ...]:
    try:
        return tuple(expand_hostlist(hostlist))
    except LaunchError as exc:
        raise LaunchError(f"{exc}; it is the value of SLURM_JOB_NODELIST") from exc


def _is_on_each_node(cluster: Cluster, environ: Mapping[str, str]) -> bool:
    """:return: whether srun started this launcher together with one on each other node"""
    if not environ.get("SLURM_STEP_ID"):
        return False
    return _number("SLURM_STEP_NUM_NODES", _needed(cluster, environ, "SLURM_STEP_NUM_NODES")) == cluster.num_nodes


def _addresses(hosts: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """
    SLURM's names may be those of a slow network (JSC's InfiniBand names end in ``i``), or may be known to SLURM alone,
    as where several of its nodes are on one host.
    """
    suffix, meeting_host = environ.get(HOST_SUFFIX, ""), environ.get(MEETING_HOST)
    addresses = tuple(f"{host}{suffix}" for host in hosts)
    if not meeting_host:
        return addresses
    return (meeting_host,) * len(hosts) if is_loopback(meeting_host) else (meeting_host, *addresses[1:])


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
