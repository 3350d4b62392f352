"""How often the whole corpus is trained on."""

from __future__ import annotations

import numpy as np
import pytest

from syncopate.errors import ConfigError
from syncopate.sweep.budget import budget

SHARD = {"dataset_distribution": "shard"}


def passes(train, *, num_epochs=6, num_ranks=4, distributed=None):
    options = {"train": train, "torch_distributed": distributed}
    return budget(options, num_epochs=num_epochs, num_ranks=num_ranks).data_passes


@pytest.mark.parametrize(
    ("train", "distributed", "expected"),
    [
        ({}, SHARD, 6),
        ({}, {}, 24),
        ({}, {"reduce_type": "grad"}, 24),
        ({}, {"dataset_distribution": "random_seed_offset"}, 24),
        ({}, None, 6),
        ({"partition_epoch": 3}, SHARD, 2),
        ({"partition_epoch": 3}, {}, 8),
        ({"partition_epoch": np.int64(3)}, SHARD, 2),
        ({"partition_epoch": 1}, SHARD, 6),
        ({"partition_epoch": None}, SHARD, 6),
        ({"repeat_epoch": 2}, SHARD, 12),
        ({"class": "DistributeFilesDataset", "distrib_shard_files": True, "partition_epoch": 3}, {}, 2),
        ({"class": "DistributeFilesDataset", "distrib_shard_files": False, "partition_epoch": 3}, {}, 8),
    ],
)
def test_passes(train, distributed, expected):
    assert passes(train, distributed=distributed) == expected


@pytest.mark.parametrize(
    "train",
    [
        {"class": "MetaDataset", "datasets": {"a": {"partition_epoch": 3}, "b": {}}, "seq_order_control_dataset": "a"},
        {"class": "MetaDataset", "datasets": {"a": {"partition_epoch": 1}}, "partition_epoch": 3},
        {"class": "MultiProcDataset", "dataset": {"class": "MetaDataset", "datasets": {"a": {"partition_epoch": 3}}}},
        {"class": "ConcatSeqsDataset", "dataset": {"partition_epoch": 3, "dataset": {"partition_epoch": 3}}},
        {"class": "X", "parts": [{"partition_epoch": 3}, ({"partition_epoch": None},)]},
    ],
)
def test_inner_data_sets_may_split_the_data(train):
    assert passes(train, distributed=SHARD) == 2


def test_parts_of_a_combination_may_be_repeated():
    train = {"class": "CombinedDataset", "datasets": {"a": {"repeat_epoch": 5}, "b": {}}, "partition_epoch": 3}
    assert passes(train, distributed=SHARD) == 2


@pytest.mark.parametrize("train", [None, "config:train_set", lambda: {"partition_epoch": 3}, []])
def test_a_data_set_that_cannot_be_looked_into_counts_as_one_pass_per_epoch(train):
    assert passes(train, distributed=SHARD) == 6
    assert budget({}, num_epochs=6, num_ranks=1).data_passes == 6


def test_data_sets_that_disagree():
    train = {"partition_epoch": 10, "dataset": {"partition_epoch": 2}}
    with pytest.raises(ConfigError) as caught:
        passes(train)
    assert str(caught.value) == (
        "the train data set has several values of partition_epoch, [2, 10], so that its data passes are unclear; set it"
        " in one data set alone"
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True, [2]])
def test_parts_that_are_none(value):
    with pytest.raises(ConfigError) as caught:
        passes({"partition_epoch": value})
    assert str(caught.value) == f"the train data set says partition_epoch={value!r}, which must be an int of at least 1"


def test_equal_budgets_are_equal_floats():
    """Whatever the number of parts: one division, correctly rounded."""
    for parts in (3, 7, 49, 20, 33):
        for ranks in (3, 7, 12):
            one = passes({"partition_epoch": parts}, num_epochs=parts, num_ranks=ranks, distributed={})
            assert one == ranks
            assert one == passes({"partition_epoch": parts}, num_epochs=parts * ranks, distributed=None)


def test_a_budget_in_words():
    given = budget({"train": {"partition_epoch": 4}, "torch_distributed": {}}, num_epochs=6, num_ranks=2)
    assert str(given) == "6 epochs x 2 ranks / partition_epoch 4 = 3 passes"
    assert given.num_epochs_for(1.5) == 3
    given = budget({"train": {"repeat_epoch": 2}, "torch_distributed": SHARD}, num_epochs=3, num_ranks=2)
    assert str(given) == "3 epochs x repeat_epoch 2 / partition_epoch 1 = 6 passes"
    assert str(budget({}, num_epochs=1, num_ranks=1)) == "1 epochs / partition_epoch 1 = 1 pass"
