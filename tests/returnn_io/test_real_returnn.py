"""
RETURNN itself takes what we write, and does with it what the scheme says: one launch of four processes for all schemes.

The expectation is computed from the scheme alone, in plain Python: RETURNN's code has no part in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from syncopate import (
    Average,
    Cluster,
    Gradients,
    Level,
    Scheme,
    TrainingConfig,
    ddp,
    hierarchical,
    param_avg,
    with_scheme,
)
from syncopate.returnn_io.write import config_text

NUM_UPDATES = 9
TWO_NODES = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
ONE_NODE = Cluster(num_nodes=1, num_gpus_per_node=4, device="cpu")
FOUR_NODES = Cluster(num_nodes=4, num_gpus_per_node=1, device="cpu")
STATE = Average(optimizer_state=True)

CASES = {
    "ddp": (ddp(), TWO_NODES),
    "ddp with options": (ddp(options={"find_unused_parameters": True, "bucket_cap_mb": 1.0}), TWO_NODES),
    "ddp as RETURNN has it": (ddp(buffers=None), TWO_NODES),
    "ddp explicit": (ddp(explicit=True), TWO_NODES),
    "psync3": (param_avg(every=3), TWO_NODES),
    "psync3 in host memory, with optimizer": (param_avg(every=3, optimizer_state=True, on_cpu=True), FOUR_NODES),
    "psync3 as is": (param_avg(every=3, epoch_end="as_is"), TWO_NODES),
    "node gradients": (hierarchical(node="gradients", world_every=4), TWO_NODES),
    "node parameters": (hierarchical(node="parameters", node_every=2, world_every=4), TWO_NODES),
    "nodes of one rank": (hierarchical(node="gradients", world_every=4), FOUR_NODES),
    "one node": (hierarchical(node="parameters", node_every=2, world_every=4), ONE_NODE),
    "rank lists across": (Scheme(levels=(Level([[3, 1], [2, 0]], 2), Level("world", 4))), ONE_NODE),
    "rank lists as in K24": (Scheme(levels=(Level([[0, 1], [2, 3]], 2), Level("world", 8))), ONE_NODE),
    "uneven rank lists": (Scheme(levels=(Level([[0], [1, 2, 3]], sync=Gradients()), Level("world", 3))), ONE_NODE),
    "three levels": (
        Scheme(levels=(Level(1, sync=Gradients()), Level(2, 2, STATE), Level("world", 4))),
        ONE_NODE,
    ),
    "state of the outer level": (Scheme(levels=(Level("node", 2), Level("world", 4, STATE))), TWO_NODES),
}
DDP_OPTIONS = ("broadcast_buffers", "find_unused_parameters")


def text_of(scheme, cluster):
    config = TrainingConfig(config={"backend": "torch"})
    return config_text(with_scheme(config, scheme, cluster, torch_distributed={"timeout_sec": 60}))


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """For each case, what each rank saw."""
    folder = tmp_path_factory.mktemp("ranks")
    cases = {
        name: {
            "config": text_of(scheme, cluster),
            "num_updates": NUM_UPDATES,
            "num_gpus_per_node": cluster.num_gpus_per_node,
            "ddp": DDP_OPTIONS,
        }
        for name, (scheme, cluster) in CASES.items()
    }
    (folder / "cases.json").write_text(json.dumps(cases))
    program = Path(__file__).with_name("returnn_ranks.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder / "cases.json"), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]
    return {name: [rank[name] for rank in ranks] for name in CASES}


def averaged(values, groups):
    """The values by rank, each replaced by the mean of its group."""
    result = list(values)
    for ranks in groups:
        for rank in ranks:
            result[rank] = fmean(values[other] for other in ranks)
    return result


def outermost(levels, what):
    return next((level for level in reversed(levels) if what(level)), None)


def simulated(scheme, cluster):
    """
    What every rank holds after each update, and after the epoch: SGD with lr 0.1 and momentum 0.5 on one number, which
    starts as the rank's; ranks of a scheme without parameter levels start as rank 0, which DDP sees to.
    """
    first = scheme.levels[0].sync
    is_ddp = len(scheme.levels) == 1 and isinstance(first, Gradients) and not first.explicit
    weights = [0.0] * 4 if is_ddp else [0.0, 1.0, 2.0, 3.0]
    momenta = [0.0] * 4
    history = []
    for update in range(NUM_UPDATES):
        gradients = [float((rank + 1) * (update + 1) % 7) for rank in range(4)]
        if isinstance(first, Gradients):
            gradients = averaged(gradients, cluster.groups(scheme.levels[0].group))
        momenta = [0.5 * old + new for old, new in zip(momenta, gradients, strict=True)]
        weights = [weight - 0.1 * momentum for weight, momentum in zip(weights, momenta, strict=True)]
        firing = [
            level for level in scheme.levels if isinstance(level.sync, Average) and (update + 1) % level.every == 0
        ]
        if firing:
            weights = averaged(weights, cluster.groups(firing[-1].group))
        of_state = outermost(firing, lambda level: level.sync.optimizer_state)
        if of_state is not None:
            momenta = averaged(momenta, cluster.groups(of_state.group))
        history.append([[weight, momentum] for weight, momentum in zip(weights, momenta, strict=True)])
    if scheme.epoch_end == "average":
        weights, momenta = averaged(weights, [range(4)]), averaged(momenta, [range(4)])
    return history, [[weight, momentum] for weight, momentum in zip(weights, momenta, strict=True)]


def close(one, other):
    return one == pytest.approx(other, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_momenta_are_those_computed_by_hand(seen, name):
    scheme, cluster = CASES[name]
    history, end = simulated(scheme, cluster)
    for rank, found in enumerate(seen[name]):
        for update in range(NUM_UPDATES):
            assert close(found["history"][update], history[update][rank]), (rank, update)
        assert close(found["end"], end[rank]), rank


@pytest.mark.parametrize("name", CASES)
def test_k06_groups_are_those_of_our_cluster_though_all_nodes_have_one_host_name(seen, name):
    scheme, cluster = CASES[name]
    averages = [level for level in scheme.levels if isinstance(level.sync, Average)]
    for found in seen[name]:
        if averages:
            assert found["groups"] == [cluster.groups(level.group) for level in scheme.levels]
            assert found["periods"] == [level.every for level in scheme.levels]
            assert found["types"] == [
                "grad" if isinstance(level.sync, Gradients) else "param" for level in scheme.levels
            ]
        else:
            assert found["groups"] == ([[[0, 1, 2, 3]]] if name == "ddp explicit" else [])


@pytest.mark.parametrize("name", CASES)
def test_k24_all_ranks_create_all_groups_in_one_order(seen, name):
    scheme, cluster = CASES[name]
    created = [found["created"] for found in seen[name]]
    assert created == [created[0]] * 4
    if len(scheme.levels) > 1:
        expected = [ranks for level in scheme.levels if level.group != "world" for ranks in cluster.groups(level.group)]
        assert created[0] == expected


def test_k24_an_inner_sync_leaves_the_other_group_untouched(seen):
    (a, b, c, d) = (found["history"][1][0] for found in seen["rank lists as in K24"])
    assert a == b
    assert c == d
    history, _ = simulated(*CASES["rank lists as in K24"])
    assert abs(a - c) == pytest.approx(abs(history[1][0][0] - history[1][2][0]))
    assert abs(a - c) > 0.5


def test_ddp_keeps_buffers_apart_only_where_we_say_so(seen):
    """K21: rank 0 alone evaluates, so nothing may be broadcast there."""
    assert {str(found["ddp"]) for found in seen["ddp"]} == {
        str({"broadcast_buffers": False, "find_unused_parameters": False})
    }
    assert all(found["ddp"]["broadcast_buffers"] is True for found in seen["ddp as RETURNN has it"])
    assert all(found["ddp"]["find_unused_parameters"] is True for found in seen["ddp with options"])
    assert all(found["ddp"] is None for name in CASES if not name.startswith("ddp") for found in seen[name])
    assert [found["running"] for found in seen["ddp"]] == [0.0, 1.0, 2.0, 3.0]
    assert [found["running"] for found in seen["ddp as RETURNN has it"]] == [0.0, 0.0, 0.0, 0.0]


def test_the_epoch_end_averages_buffers_and_counts_the_longest_rank(seen):
    for name in ("psync3", "node gradients", "three levels"):
        assert [found["running"] for found in seen[name]] == [1.5] * 4
        assert [found["steps"] for found in seen[name]] == [103] * 4
        assert len({tuple(found["end"]) for found in seen[name]}) == 1


def test_as_is_leaves_the_epoch_end_to_returnn(seen):
    """Without a behavior_version RETURNN does nothing there."""
    assert [found["running"] for found in seen["psync3 as is"]] == [0.0, 1.0, 2.0, 3.0]
    assert [found["steps"] for found in seen["psync3 as is"]] == [100, 101, 102, 103]


def test_k06_returnn_itself_would_stop_at_the_word_node():
    """The fault that makes us write groups out; if this fails, RETURNN has mended it."""
    code = """
from returnn.torch.distributed import _parse_sync_levels
try:
    _parse_sync_levels([{"group": "node", "type": "grad"}], size=4, local_size=2, hostnames=["host"] * 4)
except AssertionError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "share a host, but local size is 2" in done.stdout
    assert "'node'" not in text_of(hierarchical(node="gradients", world_every=4), TWO_NODES)
