"""Can the nodes reach each other by the names they have? Asked before the agents wait for each other for minutes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.kept import HOST_SUFFIX, INTERFACE, MEETING_HOST
from syncopate.launch.place import Allocation, is_loopback

Resolve = Callable[[str], list[str]]


def addresses_of(name: str) -> list[str]:
    """
    :param name: of a host
    :return: its addresses
    :raises OSError: if it has none
    """
    return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})


def check_addresses(
    allocation: Allocation,
    *,
    environ: Mapping[str, str],
    cluster: Cluster,
    resolve: Resolve = addresses_of,
    own_name: str | None = None,
) -> None:
    """
    :param allocation: the nodes, and which of them this is
    :param environ: of the launcher
    :param cluster: nodes, and ranks per node
    :param resolve: see :func:`addresses_of`
    :param own_name: of this host, None to ask it
    :raises LaunchError: if the name of the first node leads nowhere or, on another node, back to that itself; or if
        this host's own name leads to its loopback interface, where Gloo would then wait for the other nodes
    """
    if allocation.shares_host:
        return
    assert allocation.index is not None
    first = allocation.addresses[0]
    found = _resolved(first, resolve, what=f"the first node of {list(allocation.hosts)}")
    if allocation.index != 0 and all(map(is_loopback, found)):
        raise LaunchError(
            f"node {allocation.index} (host {allocation.hosts[allocation.index]}) resolves {first!r}, the first node,"
            f" to {', '.join(found)}, which is itself; correct /etc/hosts there, or set {MEETING_HOST} in"
            " DEFAULT_ENVIRONMENT_SET of settings.py to a name or an address that leads to the first node"
        )
    if environ.get(INTERFACE) or environ.get("GLOO_SOCKET_IFNAME"):
        return
    own = own_name if own_name is not None else socket.gethostname()
    found = _resolved(own, resolve, what="this host")
    if all(map(is_loopback, found)):
        raise LaunchError(
            f"node {allocation.index} resolves its own host name {own!r} to {', '.join(found)}, so Gloo would wait"
            f" there for the other {cluster.num_nodes - 1} nodes, which cannot reach it; correct /etc/hosts there, or"
            f" set {INTERFACE} in DEFAULT_ENVIRONMENT_SET of settings.py to the network interface to use, such as 'ib0'"
        )


def _resolved(name: str, resolve: Resolve, *, what: str) -> list[str]:
    try:
        return resolve(name)
    except OSError as exc:
        raise LaunchError(
            f"the name {name!r} of {what} cannot be resolved ({exc}); correct {HOST_SUFFIX} or {MEETING_HOST} in"
            " DEFAULT_ENVIRONMENT_SET of settings.py, or the name service of that host"
        ) from exc
