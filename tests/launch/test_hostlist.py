from __future__ import annotations

import pytest

from syncopate.errors import LaunchError
from syncopate.launch.hostlist import expand_hostlist


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [
        ("node7", ["node7"]),
        ("a,b.example.org", ["a", "b.example.org"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("cn[008-011]", ["cn008", "cn009", "cn010", "cn011"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[1-2]-ib,login", ["n1-ib", "n2-ib", "login"]),
        (
            "n[1-3,7],gpu-a[01-02]x[1-2]",
            ["n1", "n2", "n3", "n7", "gpu-a01x1", "gpu-a01x2", "gpu-a02x1", "gpu-a02x2"],
        ),
    ],
)
def test_expands(hostlist: str, hosts: list[str]) -> None:
    assert expand_hostlist(hostlist) == hosts


@pytest.mark.parametrize(
    ("hostlist", "why"),
    [
        ("", "it names no host"),
        ("n[1-2", "']' is missing"),
        ("n1-2]", "unexpected ']'"),
        ("n[1[2]]", "unexpected '['"),
        ("n[3-1]", "the range '3-1' runs backwards"),
        ("n[1-x]", "'1-x' is neither a number nor a range like 01-12"),
        ("n[1,]", "'' is neither a number nor a range like 01-12"),
    ],
)
def test_refuses_what_it_cannot_read(hostlist: str, why: str) -> None:
    with pytest.raises(LaunchError) as caught:
        expand_hostlist(hostlist)
    assert str(caught.value) == (
        f"cannot read the host list {hostlist!r}: {why}; expected something like 'n[1-3,7],gpu-a[01-02]'"
    )
