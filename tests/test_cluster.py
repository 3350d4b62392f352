"""Ranks, nodes and groups are pure arithmetic, and what cannot be meant is refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from syncopate import Cluster
from syncopate.cluster import normal_group
from syncopate.errors import ClusterError

TWO_BY_FOUR = Cluster(num_nodes=2, num_gpus_per_node=4)


def message(call):
    with pytest.raises(ClusterError) as caught:
        call()
    return str(caught.value)


def test_the_default_is_one_rank_on_a_gpu():
    assert Cluster() == Cluster(num_nodes=1, num_gpus_per_node=1, device="gpu")
    assert Cluster().world_size == 1


def test_k09_eight_ranks_on_two_nodes_are_four_each():
    cluster = Cluster.from_num_ranks(8, num_nodes=2)
    assert cluster == TWO_BY_FOUR
    assert cluster.world_size == 8
    assert [cluster.ranks_of_node(node) for node in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [cluster.node_of_rank(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_k09_seven_ranks_on_two_nodes_are_refused():
    assert message(lambda: Cluster.from_num_ranks(7, num_nodes=2)) == (
        "Cluster: 7 ranks cannot be shared equally by 2 nodes; use a multiple of 2, or another number of nodes"
    )


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "2", None, float("nan"), [1], np.float64(2), np.True_])
@pytest.mark.parametrize("name", ["num_nodes", "num_gpus_per_node"])
def test_numbers_that_are_none(name, value):
    assert message(lambda: Cluster(**{name: value})) == f"Cluster: {name} must be an int of at least 1, got {value!r}"


@pytest.mark.parametrize(("num_ranks", "num_nodes"), [(0, 1), (4, 0), (True, 1), ("4", 1), (4, 2.0), (-4, -2)])
def test_numbers_of_ranks_that_are_none(num_ranks, num_nodes):
    assert "must be an int of at least 1, got" in message(
        lambda: Cluster.from_num_ranks(num_ranks, num_nodes=num_nodes)
    )


def test_numpy_ints_are_ints():
    cluster = Cluster(num_nodes=np.int64(2), num_gpus_per_node=np.int32(4))
    assert cluster == TWO_BY_FOUR
    assert type(cluster.num_nodes) is int
    assert type(Cluster(device=np.str_("cpu")).device) is str
    assert str(cluster) == "2x4 gpu"


@pytest.mark.parametrize(
    ("device", "hint"), [("cuda", ""), ("CPU", ""), ("gpus", " (did you mean 'gpu'?)"), (None, ""), (1, "")]
)
def test_unknown_devices(device, hint):
    expected = f"Cluster: device must be one of ['gpu', 'cpu'], got {device!r}{hint}"
    assert message(lambda: Cluster(device=device)) == expected


def test_unknown_options():
    assert message(lambda: Cluster(nodes=2)) == (
        "Cluster: unknown option 'nodes', allowed are ['num_nodes', 'num_gpus_per_node', 'device']"
        " (did you mean 'num_nodes'?)"
    )


def test_a_cluster_is_a_value():
    assert hash(TWO_BY_FOUR) == hash(Cluster(num_nodes=2, num_gpus_per_node=4))
    assert len({TWO_BY_FOUR, Cluster(num_nodes=2, num_gpus_per_node=4), Cluster()}) == 2
    assert copy.deepcopy(TWO_BY_FOUR) == pickle.loads(pickle.dumps(TWO_BY_FOUR)) == TWO_BY_FOUR
    with pytest.raises(dataclasses.FrozenInstanceError):
        TWO_BY_FOUR.num_nodes = 3
    assert dataclasses.replace(TWO_BY_FOUR, num_nodes=1) == Cluster(num_gpus_per_node=4)


@pytest.mark.parametrize(
    ("group", "groups"),
    [
        ("world", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("node", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (1, [[0], [1], [2], [3], [4], [5], [6], [7]]),
        (2, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (2.0, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (np.int64(4), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ([[7, 5, 3, 1], [6, 4, 2, 0]], [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ((range(4), range(4, 8)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([[0], list(range(1, 8))], [[0], [1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_groups_hold_every_rank_once(group, groups):
    assert TWO_BY_FOUR.groups(group) == groups


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (3, "groups of 3 ranks do not divide the 8 ranks of 2x4 gpu; use a divisor of 8, or lists of ranks"),
        (16, "groups of 16 ranks do not divide the 8 ranks of 2x4 gpu; use a divisor of 8, or lists of ranks"),
        (0, "group: a group of ranks must have at least 1 rank, got 0"),
        (-2, "group: a group of ranks must have at least 1 rank, got -2"),
        (
            "nodes",
            "group must be one of ['node', 'world'], a number of ranks, or lists of ranks such as [[0, 1], [2, 3]],"
            " got 'nodes' (did you mean 'node'?)",
        ),
        (
            [[0, 1], [2, 3]],
            "the rank lists [[0, 1], [2, 3]] hold the ranks 0..3, but 2x4 gpu has the ranks 0..7;"
            " name every rank exactly once",
        ),
        (
            [[0, 1, 1], [2, 4]],
            "group: the rank lists [[0, 1, 1], [2, 4]] are no partition of the ranks 0..3:"
            " missing [3], out of range [4], named twice [1]; name every rank exactly once",
        ),
        ([[0, -1]], "group: ranks are numbers from 0, got -1 in [[0, -1]]"),
        ([[0, "1"]], "group: ranks are numbers from 0, got '1' in [[0, '1']]"),
        ([[0, 1.5]], "group: ranks are numbers from 0, got 1.5 in [[0, 1.5]]"),
        ([[0, True]], "group: ranks are numbers from 0, got True in [[0, True]]"),
    ],
)
def test_groups_that_do_not_fit(group, text):
    assert message(lambda: TWO_BY_FOUR.groups(group)) == text


@pytest.mark.parametrize(
    "group", [None, True, 2.5, float("nan"), float("inf"), [], [[]], [[0, 1], []], [0, 1], ["01"], {0: [1]}, {0, 1}, ""]
)
def test_what_is_no_group(group):
    assert message(lambda: normal_group(group)) == (
        "group must be one of ['node', 'world'], a number of ranks, or lists of ranks such as [[0, 1], [2, 3]],"
        f" got {group!r}"
    )


def test_a_rank_far_out_of_range_is_named_at_once():
    text = message(lambda: normal_group([[0, 10**12]]))
    assert "missing [1], out of range [1000000000000]" in text
