"""The one function that puts a scheme into a config: it changes a copy, and refuses what could not be trained."""

from __future__ import annotations

import copy
import itertools
import types
from collections import OrderedDict

import numpy as np
import pytest

from syncopate import Cluster, TrainingConfig, ddp, diloco, hierarchical, param_avg, with_scheme
from syncopate.errors import ConfigError, DeclarationError
from syncopate.returnn_io.with_scheme import MAX_SEED, check_trainable, find_option, with_options, with_seed

CPU = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
GPU = Cluster(num_nodes=2, num_gpus_per_node=2)
SINGLE = Cluster()
BASE = {
    "backend": "torch",
    "train": {"class": "MetaDataset", "datasets": {"a": {"files": ["x"]}}},
    "learning_rate": 0.5,
}


def message(call, error=ConfigError):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, DeclarationError)
    return str(caught.value)


class Config:
    """What a ``ReturnnConfig`` of i6_core is to us; the real ones are in another test."""

    def __init__(self, config, post_config=None):
        self.config = config
        self.post_config = post_config


KINDS = {
    "dict": copy.deepcopy,
    "ordered dict": lambda options: OrderedDict(copy.deepcopy(options)),
    "TrainingConfig": lambda options: TrainingConfig(config=options),
    "ReturnnConfig": lambda options: Config(copy.deepcopy(options)),
}


def options_of(config):
    return config if isinstance(config, dict) else config.config


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("scheme", [ddp(), param_avg(every=3), hierarchical(node="gradients", world_every=4), diloco()])
def test_the_given_config_is_not_changed_and_not_shared(make, scheme):
    carried = {"dataset_distribution": "shard"}
    config = make({**BASE, "torch_distributed": {"timeout_sec": 60}})
    before = copy.deepcopy(config)
    result = with_scheme(config, scheme, CPU, torch_distributed=carried)
    assert type(result) is type(config)
    assert options_of(result)["torch_distributed"]["backend"] == "gloo"
    assert (
        options_of(result)["torch_distributed"].items() >= {"timeout_sec": 60, "dataset_distribution": "shard"}.items()
    )
    assert {**options_of(result), "torch_distributed": None} == {**options_of(before), "torch_distributed": None}
    options_of(result)["train"]["datasets"]["a"]["files"].append("y")
    options_of(result)["torch_distributed"]["timeout_sec"] = 61
    assert repr(options_of(config)) == repr(options_of(before))
    assert carried == {"dataset_distribution": "shard"}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_twice_is_as_good_as_once(make):
    for scheme in (ddp(), param_avg(every=3), hierarchical(node="parameters", world_every=4), diloco()):
        once = with_scheme(make(BASE), scheme, CPU, torch_distributed={"dataset_distribution": "shard"})
        for carried in (None, {}, {"dataset_distribution": "shard"}):
            twice = with_scheme(once, scheme, CPU, torch_distributed=carried)
            assert repr(options_of(twice)) == repr(options_of(once))


def test_options_beside_the_config_join_those_in_it():
    config = {**BASE, "torch_distributed": {"timeout_sec": 60, "backend": "mpi"}}
    assert with_scheme(config, ddp(), GPU, torch_distributed={"timeout_sec": 60.0})["torch_distributed"] == {
        "reduce_type": "grad",
        "options": {"broadcast_buffers": False},
        "timeout_sec": 60,
        "backend": "mpi",
    }
    assert message(lambda: with_scheme(config, ddp(), GPU, torch_distributed={"timeout_sec": 61})) == (
        "torch_distributed: the config says timeout_sec=60, torch_distributed= says 61; leave it out of one of them"
    )
    assert message(lambda: with_scheme(BASE, ddp(), GPU, torch_distributed="shard")) == (
        "torch_distributed = beside it must be a dict, got 'shard'"
    )
    assert message(lambda: with_scheme({**BASE, "torch_distributed": True}, ddp(), GPU)) == (
        "torch_distributed of the config must be a dict, got True"
    )


def test_an_empty_dict_is_returnn_s_own_default():
    assert with_scheme({**BASE, "torch_distributed": {}}, ddp(buffers=None), GPU)["torch_distributed"] == {
        "reduce_type": "grad"
    }


# A single process


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_single_process_has_no_options(make):
    config = make(BASE)
    result = with_scheme(config, None, SINGLE)
    assert result is not config
    assert options_of(result) == BASE
    assert options_of(result)["train"] is not options_of(config)["train"]


def test_a_single_process_on_several_ranks_or_with_options_is_refused():
    assert message(lambda: with_scheme(BASE, None, CPU)) == (
        "scheme None is a single process, but the cluster is 2x2 cpu with 4 ranks; use Cluster(num_nodes=1,"
        " num_gpus_per_node=1), or give a scheme"
    )
    expected = (
        "scheme None is a single process, but torch_distributed = {'dataset_distribution': 'shard'} is given; leave it"
        " out, or give a scheme. Options for the rows with a scheme alone go into Sweep(torch_distributed=...)"
    )
    carried = {"dataset_distribution": "shard"}
    assert message(lambda: with_scheme(BASE, None, SINGLE, torch_distributed=carried)) == expected
    assert message(lambda: with_scheme({**BASE, "torch_distributed": carried}, None, SINGLE)) == expected


# What is no config, scheme or cluster


@pytest.mark.parametrize(
    "config",
    [None, 3, "config.py", [("backend", "torch")], object(), Config(None), Config([1]), types.MappingProxyType(BASE)],
)
def test_what_is_no_config(config):
    assert message(lambda: with_scheme(config, ddp(), GPU)) == (
        "config must be a TrainingConfig, a dict of RETURNN options, or an i6_core ReturnnConfig, got"
        f" {type(config).__name__}: {config!r}"
    )


@pytest.mark.parametrize("scheme", ["ddp", ddp, {"reduce_type": "grad"}, False])
def test_what_is_no_scheme(scheme):
    assert message(lambda: with_scheme(BASE, scheme, GPU)) == (
        f"scheme must be a Scheme such as ddp(), or None for a single process, got {scheme!r}"
    )


@pytest.mark.parametrize("cluster", [None, 4, (2, 2), "2x2", Cluster])
def test_what_is_no_cluster(cluster):
    assert message(lambda: with_scheme(BASE, ddp(), cluster)) == (
        f"cluster must be a Cluster(num_nodes=..., num_gpus_per_node=...), got {cluster!r}"
    )


def test_unknown_options():
    assert message(lambda: with_scheme(BASE, ddp(), GPU, distributed={})) == (
        "with_scheme: unknown option 'distributed', allowed are ['config', 'scheme', 'cluster', 'torch_distributed']"
        " (did you mean 'torch_distributed'?)"
    )


# What cannot be trained


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"backend": None},
            "the config's backend must be 'torch', got None; parameter synchronisation is a feature of RETURNN's torch"
            ' engine, set backend="torch"',
        ),
        ({"backend": "tensorflow"}, "the config's backend must be 'torch', got 'tensorflow'"),
        ({"backend": "Torch"}, "the config's backend must be 'torch', got 'Torch'"),
        ({"device": "gpu"}, "the config sets device='gpu'; leave it out, it comes from Cluster(device=...)"),
        ({"num_epochs": 5}, "the config sets num_epochs=5; leave it out, it comes from num_epochs=..."),
        (
            {"model": "/x"},
            "the config sets model='/x'; leave it out, checkpoints are written to the training's own folder",
        ),
        (
            {"use_horovod": True},
            "the config sets use_horovod=True; leave it out, the ranks synchronise by a scheme, and RETURNN's torch"
            " engine does not know it",
        ),
        (
            {"log_verbosity": 5},
            "the config sets log_verbosity=5, which changes nothing that is trained; move it to post_config",
        ),
        ({"save_interval": 2}, "the config sets save_interval=2, which changes nothing that is trained"),
        ({"task": "search"}, "the config sets task='search', but in a training it is 'train'; leave it out"),
        (
            {"learning_rate_file": "lr.txt"},
            "the config sets learning_rate_file='lr.txt', but in a training it is 'learning_rates'; leave it out",
        ),
        (
            {"dataset_distribution": "shard"},
            "the config sets dataset_distribution='shard' outside of torch_distributed, where RETURNN ignores it; move"
            " it into torch_distributed",
        ),
    ],
)
def test_k02_k03_options_that_belong_elsewhere(change, text):
    for scheme, cluster in ((ddp(), GPU), (None, SINGLE)):
        assert message(lambda: with_scheme({**BASE, **change}, scheme, cluster)).startswith(text)  # noqa: B023


@pytest.mark.parametrize("key", ["device", "num_epochs", "model", "use_horovod"])
@pytest.mark.parametrize("make", [TrainingConfig, Config])
def test_k03_neither_are_they_in_post_config(make, key):
    assert message(lambda: with_scheme(make(config=BASE, post_config={key: 3}), ddp(), GPU)).startswith(
        f"the config sets {key}=3; leave it out, "
    )


def test_what_decides_the_training_is_not_in_post_config():
    for make in (TrainingConfig, Config):
        config = make(config=BASE, post_config={"torch_distributed": {"backend": "gloo"}})
        assert message(lambda: with_scheme(config, ddp(), GPU)) == (  # noqa: B023
            "post_config sets torch_distributed={'backend': 'gloo'}, which decides what is trained and belongs into the"
            " id of a training; move it to config"
        )
    assert "stand in config and in post_config" in message(
        lambda: with_scheme(Config(BASE, {"learning_rate": 1}), ddp(), GPU)
    )


def test_what_may_be_in_post_config():
    post_config = {"log_verbosity": 3, "save_interval": 2, "log": ["x"], "cleanup_old_models": True}
    for make in (TrainingConfig, Config):
        result = with_scheme(make(config=BASE, post_config=post_config), ddp(), GPU)
        assert result.post_config == post_config
    options = {key: value for key, value in BASE.items() if key != "backend"}
    check_trainable(Config(options, {"backend": "torch"}))
    check_trainable({**BASE, "task": "train", "learning_rate_file": "learning_rates", "device": None})


# Seeds


def test_a_seed_sets_random_numbers_and_a_far_apart_data_order():
    """RETURNN adds the epoch, and 16127 times the rank, to the offset: seeds must not meet within any of these."""
    offsets = []
    for seed in range(MAX_SEED + 1):
        config = with_seed(BASE, seed)
        assert {key: value for key, value in config.items() if key in BASE} == BASE
        assert config["random_seed"] == seed
        offsets.append(config["dataset_random_seed_offset"])
    orders = [offset + 16127 * rank for offset in (0, *offsets) for rank in range(64)]
    orders.sort()
    assert min(after - before for before, after in itertools.pairwise(orders)) > 1000
    assert orders[-1] + 10**6 < 2**32, "numpy takes seeds of 32 bits"


def test_no_seed_writes_nothing():
    assert with_seed(BASE, None) == BASE
    assert with_seed(BASE, None) is not BASE
    config = {**BASE, "random_seed": 7}
    assert with_seed(config, None)["random_seed"] == 7
    assert with_seed(config, 3)["random_seed"] == 3
    assert config["random_seed"] == 7


def test_numpy_seeds():
    assert with_seed(BASE, np.int64(3)) == with_seed(BASE, 3)
    assert type(with_seed(BASE, np.int64(3))["random_seed"]) is int


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, True, 1.0, "1", float("nan"), [1]])
def test_seeds_that_are_none(seed):
    assert message(lambda: with_seed(BASE, seed)) == (
        f"a seed must be an int from 0 to {MAX_SEED}, or None for the config's own, got {seed!r}"
    )


@pytest.mark.parametrize("key", ["random_seed_offset", "fixed_random_seed"])
def test_data_that_would_not_follow_the_seed(key):
    for train in ({key: 0}, {"dataset": {"datasets": [{"x": ({key: 0},)}]}}):
        assert message(lambda: with_seed({**BASE, "train": train}, 3)) == (  # noqa: B023
            f"seed 3: the train data set says {key}=0, which fixes its order for every seed; leave {key!r} out of it"
        )
        assert with_seed({**BASE, "train": train}, None)["train"] == train
    assert with_seed({**BASE, "train": {key: None}}, 3)["random_seed"] == 3
    assert with_seed({**BASE, "train": lambda: {key: 3}}, 3)["random_seed"] == 3


def test_a_seed_in_post_config_is_refused():
    for make in (TrainingConfig, Config):
        config = make(config=BASE, post_config={"random_seed": 1})
        assert message(lambda: with_seed(config, 3)) == (  # noqa: B023
            "random_seed is to be set to 3, but post_config says 1; leave 'random_seed' out of post_config"
        )


# Parts


def test_options_replace_those_of_a_copy():
    for make in KINDS.values():
        config, changes = make(BASE), {"train": {"a": [1]}, "learning_rate": 1}
        result = with_options(config, changes)
        changes["train"]["a"].append(2)
        assert options_of(result) == {**BASE, "train": {"a": [1]}, "learning_rate": 1}
        assert options_of(config) == BASE


def test_outer_options_are_found_first():
    nested = {"a": {"key": 1, "b": {"key": 2}}, "key": None}
    assert find_option(nested, "key") == 1
    assert find_option({**nested, "key": 0}, "key") == 0
    assert find_option([{"x": 1}, ({"key": 3},)], "key") == 3
    assert find_option(nested, "other") is None
    assert find_option(None, "key") is None
    assert find_option(lambda: nested, "key") is None
