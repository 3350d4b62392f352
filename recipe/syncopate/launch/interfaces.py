"""Over which network interfaces this process talks with others: what it does, and not what it was told to do."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from syncopate.launch.place import is_loopback

_ESTABLISHED = "01"
_SIOCGIFADDR = 0x8915
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_IPV6_ADDRESSES = "/proc/self/net/if_inet6"


def interfaces_in_use(*, except_port: int | None) -> list[str]:
    """
    :param except_port: of a service, connections with which do not count
    :return: names of the interfaces that carry this process' connections, sorted; the address instead of a name that
        is not known
    """
    own = _own_sockets()
    names = _names_by_address()
    used = {
        names.get(local, "lo" if is_loopback(local) else local)
        for table in _TABLES
        if os.path.exists(table)
        for local, ports in connections(Path(table).read_text().splitlines(), inodes=own)
        if except_port not in ports
    }
    return sorted(used)


def connections(table: Iterable[str], *, inodes: set[str]) -> list[tuple[str, tuple[int, int]]]:
    """
    :param table: lines of ``/proc/net/tcp`` or ``tcp6``
    :param inodes: of the sockets that count
    :return: own address, and both ports, of each connection that stands
    """
    found = []
    for line in list(table)[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED and fields[9] in inodes:
            (local, port), (_, other_port) = map(_address, fields[1:3])
            found.append((local, (port, other_port)))
    return found


def _address(text: str) -> tuple[str, int]:
    """:return: what the kernel writes as words in the byte order of the machine, and the port"""
    number, port = text.split(":")
    words = [int(number[start : start + 8], 16) for start in range(0, len(number), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    return _normal(ipaddress.ip_address(packed)), int(port, 16)


def _normal(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _own_sockets() -> set[str]:
    inodes = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            continue  # that of the listing itself
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    return inodes


def _names_by_address() -> Mapping[str, str]:
    names = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(control, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no IPv4 address
            names[socket.inet_ntoa(answer[20:24])] = name
    if os.path.exists(_IPV6_ADDRESSES):
        for line in Path(_IPV6_ADDRESSES).read_text().splitlines():
            number, *_, name = line.split()
            names[str(ipaddress.ip_address(bytes.fromhex(number)))] = name
    return names
