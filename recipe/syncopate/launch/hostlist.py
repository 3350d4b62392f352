"""SLURM's short form of host names: ``n[1-3,7],gpu-a[01-02]x[1-2]``."""

from __future__ import annotations

import re
from itertools import product

from syncopate.errors import LaunchError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand_hostlist(hostlist: str) -> list[str]:
    """
    :param hostlist: as in ``SLURM_JOB_NODELIST``
    :return: every host, in the order of the list
    :raises LaunchError: if it cannot be read
    """
    hosts = [host for entry in _split(hostlist) for host in _expand_entry(entry, hostlist)]
    if not hosts:
        raise _unreadable(hostlist, "it names no host")
    return hosts


def _split(hostlist: str) -> list[str]:
    """:return: what stands between the commas outside of brackets"""
    entries = [""]
    inside = False
    for char in hostlist.strip():
        if char == "," and not inside:
            entries.append("")
            continue
        if char in "[]":
            if inside == (char == "["):
                raise _unreadable(hostlist, f"unexpected {char!r}")
            inside = not inside
        entries[-1] += char
    if inside:
        raise _unreadable(hostlist, "']' is missing")
    return [entry for entry in entries if entry]


def _expand_entry(entry: str, hostlist: str) -> list[str]:
    parts: list[list[str]] = []
    for text, numbers in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", entry):
        parts.append([text] if text else _expand_numbers(numbers, hostlist))
    return ["".join(choice) for choice in product(*parts)]


def _expand_numbers(numbers: str, hostlist: str) -> list[str]:
    expanded: list[str] = []
    for item in numbers.split(","):
        match = _RANGE.fullmatch(item)
        if not match:
            raise _unreadable(hostlist, f"{item!r} is neither a number nor a range like 01-12")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _unreadable(hostlist, f"the range {item!r} runs backwards")
        expanded += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return expanded


def _unreadable(hostlist: str, why: str) -> LaunchError:
    return LaunchError(
        f"cannot read the host list {hostlist!r}: {why}; expected something like 'n[1-3,7],gpu-a[01-02]'"
    )
