from __future__ import annotations

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.addresses import addresses_of, check_addresses
from syncopate.launch.place import Allocation, find_place

THREE = Cluster(num_nodes=3)
GOOD = {"gpu07": ["10.0.0.7"], "gpu08": ["10.0.0.8"], "gpu09": ["10.0.0.9"]}


def allocation(index: int, **environ: str) -> Allocation:
    place = find_place(
        THREE,
        {
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "gpu[07-09]",
            "SLURM_NODEID": str(index),
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NUM_NODES": "3",
            **environ,
        },
    )
    assert place.allocation is not None
    return place.allocation


class Names:
    """A name service, and what it was asked for."""

    def __init__(self, **addresses: list[str]) -> None:
        self._addresses = {**GOOD, **addresses}
        self.asked: list[str] = []

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        if name not in self._addresses:
            raise OSError(-2, "Name or service not known")
        return self._addresses[name]


def check(index: int, names: Names, *, own_name: str | None = None, **environ: str) -> None:
    check_addresses(
        allocation(index, **environ),
        environ=environ,
        cluster=THREE,
        resolve=names,
        own_name=own_name or f"gpu{7 + index:02}",
    )


@pytest.mark.parametrize("index", [0, 1, 2])
def test_names_that_lead_to_each_other(index: int) -> None:
    names = Names()
    check(index, names)
    assert names.asked == ["gpu07", f"gpu{7 + index:02}"]


def test_the_first_node_leads_back_to_a_second_one() -> None:
    """Two agents would each wait at their own store."""
    names = Names(gpu07=["127.0.1.1", "::1"])
    with pytest.raises(LaunchError) as caught:
        check(1, names)
    assert str(caught.value) == (
        "node 1 (host gpu08) resolves 'gpu07', the first node, to 127.0.1.1, ::1, which is itself; correct /etc/hosts"
        " there, or set SYNCOPATE_MEETING_HOST in DEFAULT_ENVIRONMENT_SET of settings.py to a name or an address that"
        " leads to the first node"
    )


def test_one_address_that_leads_there_is_enough() -> None:
    check(1, Names(gpu07=["127.0.1.1", "10.0.0.7"]))
    check(0, Names(gpu07=["127.0.1.1", "10.0.0.7"]))


def test_a_name_that_leads_nowhere() -> None:
    with pytest.raises(LaunchError) as caught:
        check(1, Names(), SYNCOPATE_HOST_SUFFIX="i")
    assert str(caught.value) == (
        "the name 'gpu07i' of the first node of ['gpu07', 'gpu08', 'gpu09'] cannot be resolved ([Errno -2] Name or"
        " service not known); correct SYNCOPATE_HOST_SUFFIX or SYNCOPATE_MEETING_HOST in DEFAULT_ENVIRONMENT_SET of"
        " settings.py, or the name service of that host"
    )
    with pytest.raises(LaunchError, match=r"^the name 'strange' of this host cannot be resolved \("):
        check(1, Names(), own_name="strange")


@pytest.mark.parametrize("index", [0, 1])
def test_the_own_name_leads_to_the_loopback_interface(index: int) -> None:
    """As Debian's /etc/hosts has it. Gloo takes the address of the own name."""
    own = f"gpu{7 + index:02}"
    with pytest.raises(LaunchError) as caught:
        check(index, Names(**{own: ["127.0.1.1"]}))
    assert str(caught.value) == (
        f"node {index} resolves its own host name {own!r} to 127.0.1.1, so Gloo would wait there for the other 2 nodes,"
        " which cannot reach it; correct /etc/hosts there, or set SYNCOPATE_INTERFACE in DEFAULT_ENVIRONMENT_SET of"
        " settings.py to the network interface to use, such as 'ib0'"
    )


@pytest.mark.parametrize("name", ["SYNCOPATE_INTERFACE", "GLOO_SOCKET_IFNAME"])
def test_with_an_interface_the_own_name_does_not_matter(name: str) -> None:
    names = Names(gpu08=["127.0.1.1"])
    check(1, names, **{name: "ib0"})
    assert names.asked == ["gpu07"]
    with pytest.raises(LaunchError, match="which is itself"):
        check(1, Names(gpu07=["127.0.1.1"]), **{name: "ib0"})


def test_the_name_that_was_set_is_asked_for() -> None:
    names = Names(head=["10.1.1.1"])
    check(2, names, SYNCOPATE_MEETING_HOST="head")
    assert names.asked == ["head", "gpu09"]


def test_nodes_on_one_host_need_no_names() -> None:
    names = Names()
    check(1, names, SYNCOPATE_MEETING_HOST="127.0.0.1")
    assert names.asked == []


def test_addresses_of_a_name() -> None:
    assert addresses_of("127.0.0.1") == ["127.0.0.1"]
    assert set(addresses_of("localhost")) <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError):
        addresses_of("no-such-host.invalid")
