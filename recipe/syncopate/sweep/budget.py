"""How much data a training sees: its data passes, so that rows can be compared at an equal budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from syncopate.errors import ConfigError
from syncopate.scheme.plain import whole

DEFAULT_DISTRIBUTION = "random_seed_offset"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """
    :param num_epochs: epochs of RETURNN, each ``1 / partition_epoch`` of the data
    :param partition_epoch: into how many epochs the train data set splits one pass
    :param num_ranks: ranks of all nodes together
    :param distribution: "shard": the ranks share the data; "random_seed_offset": each rank goes through all of it;
        None: a single process
    :param repeat_epoch: how often an epoch goes through its part of the data
    """

    num_epochs: int
    partition_epoch: int
    num_ranks: int
    distribution: str | None
    repeat_epoch: int = 1

    @property
    def data_passes(self) -> float:
        """How often the whole corpus is trained on, over all ranks and epochs."""
        # One division at the end: rows with equal passes have equal floats.
        return self.num_epochs * self._parts_per_epoch / self.partition_epoch

    def num_epochs_for(self, data_passes: float) -> float:
        """
        :param data_passes: a budget
        :return: the epochs that need it; not always a whole number
        """
        return data_passes * self.partition_epoch / self._parts_per_epoch

    def __str__(self) -> str:
        ranks = f" x {self.num_ranks} ranks" if self.distribution == DEFAULT_DISTRIBUTION else ""
        repeated = f" x repeat_epoch {self.repeat_epoch}" if self.repeat_epoch > 1 else ""
        passes = "1 pass" if self.data_passes == 1 else f"{self.data_passes:g} passes"
        return f"{self.num_epochs} epochs{ranks}{repeated} / partition_epoch {self.partition_epoch} = {passes}"

    @property
    def _parts_per_epoch(self) -> int:
        return (self.num_ranks if self.distribution == DEFAULT_DISTRIBUTION else 1) * self.repeat_epoch


def budget(options: Mapping[str, Any], *, num_epochs: int, num_ranks: int) -> Budget:
    """
    :param options: a complete RETURNN config. A train data set that cannot be looked into (a function, a name, one from
        the config's prolog) counts as one pass per epoch, in every row alike.
    :param num_epochs: epochs to train
    :param num_ranks: ranks of all nodes together
    :raises ConfigError: if the train data sets disagree on ``partition_epoch``
    """
    train = options.get("train")
    distributed = options.get("torch_distributed")
    distribution: str | None = None
    if distributed is not None:
        distribution = distributed.get("dataset_distribution", DEFAULT_DISTRIBUTION)
        if any(_values(train, "distrib_shard_files")):
            distribution = "shard"  # DistributeFilesDataset shares its files among the ranks by itself
    return Budget(
        num_epochs=num_epochs,
        partition_epoch=_one_count(_values(train, "partition_epoch"), key="partition_epoch"),
        num_ranks=num_ranks,
        distribution=distribution,
        # Inside of a CombinedDataset it makes one part of the data more frequent than the others.
        repeat_epoch=_one_count(_values(train, "repeat_epoch", leave_out="datasets"), key="repeat_epoch"),
    )


def _one_count(values: Iterator[Any], *, key: str) -> int:
    found = set()
    for value in values:
        count = 1 if value is None else whole(value)
        if count is None or count < 1:
            raise ConfigError(f"the train data set says {key}={value!r}, which must be an int of at least 1")
        found.add(count)
    found.discard(1)
    if len(found) > 1:
        raise ConfigError(
            f"the train data set has several values of {key}, {sorted(found)}, so that its data passes are unclear;"
            " set it in one data set alone"
        )
    return found.pop() if found else 1


def _values(value: Any, key: str, *, leave_out: str | None = None) -> Iterator[Any]:
    if isinstance(value, Mapping):
        if key in value:
            yield value[key]
        for name, item in value.items():
            if name != leave_out:
                yield from _values(item, key, leave_out=leave_out)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item, key, leave_out=leave_out)
