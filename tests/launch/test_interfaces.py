"""Over which interface connections go: of this process for real, and as the kernel writes those of other hosts."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest

from syncopate.launch.interfaces import connections, interfaces_in_use
from syncopate.launch.rank_check import nccl_network

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
REST = "00000000:00000000 00:00000000 00000000     0        0"


@contextmanager
def connection(family: int, address: str):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((address, 0))
        server.listen()
        client.connect(server.getsockname())
        with server.accept()[0]:
            yield server.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7"])
def test_a_connection_of_this_process(address):
    with connection(socket.AF_INET, address) as port:
        assert "lo" in interfaces_in_use(except_port=None)
        assert "lo" in interfaces_in_use(except_port=port + 1)
    assert interfaces_in_use(except_port=None) == []


def test_that_with_a_service_does_not_count():
    with connection(socket.AF_INET, "127.0.0.1") as port:
        assert interfaces_in_use(except_port=port) == []


def test_connections_as_the_kernel_writes_them():
    """Numbers are in the byte order of the machine; the tests run where it is little-endian."""
    table = [
        HEAD,
        f"   0: 0102000A:8AE5 0202000A:CD02 01 {REST} 4711 1",
        f"   1: 0000000000000000FFFF00000102000A:8E9F 0000000000000000FFFF00000202000A:E2B0 01 {REST} 4712 1",
        f"   2: 000000FD000000000000000002000000:0050 000000FD000000000000000003000000:0051 01 {REST} 4713 1",
        f"   3: 0102000A:1F90 00000000:0000 0A {REST} 4714 1",
        f"   4: 0102000A:1F91 0202000A:CD03 01 {REST} 1 1",
    ]
    assert connections(table, inodes={"4711", "4712", "4713", "4714"}) == [
        ("10.0.2.1", (0x8AE5, 0xCD02)),
        ("10.0.2.1", (0x8E9F, 0xE2B0)),
        ("fd00::2", (0x50, 0x51)),
    ]


def test_what_nccl_says_it_uses(tmp_path):
    log = tmp_path / "nccl.log"
    assert nccl_network(str(log)) is None
    log.write_text("g1:7:7 [0] NCCL INFO Bootstrap: Using ib0:10.0.2.1<0>\n")
    assert nccl_network(str(log)) is None
    log.write_text(
        "g1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.2.1<0>\n"
        "g1:7:7 [0] NCCL INFO Using network IB\n"
    )
    assert nccl_network(str(log)) == "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.2.1<0>"
