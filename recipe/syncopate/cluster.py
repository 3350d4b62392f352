"""
Which ranks there are, and how they are numbered: pure arithmetic, nothing is started or asked here.

A *rank* is one training process, the *world* is all of them. A *node* is the ranks that one launcher agent starts;
torchrun numbers the ranks of a node consecutively, so node ``n`` holds ranks ``n * g`` to ``n * g + g - 1`` for ``g``
ranks per node. Which machine becomes which node is decided when they meet: never equate rank 0 with the first machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncopate.errors import ClusterError, DeclarationError, did_you_mean
from syncopate.scheme.declaration import Declaration, known_options
from syncopate.scheme.plain import python_value, whole

Group = str | int | Sequence[Sequence[int]]
"""How a level names its groups: "node", "world", a number of ranks (contiguous blocks), or lists of ranks."""

GROUP_WORDS = ("node", "world")
DEVICES = ("gpu", "cpu")


@known_options(ClusterError)
@dataclass(frozen=True, kw_only=True)
class Cluster(Declaration):
    """
    The shape of one training: how many nodes, how many ranks on each, and what they compute on.

    :param num_nodes: nodes, at least 1
    :param num_gpus_per_node: ranks per node, one per GPU; on device "cpu" simply the ranks per node
    :param device: "gpu" or "cpu"
    :raises ClusterError: on anything that is no positive int, or an unknown device
    """

    num_nodes: int = 1
    num_gpus_per_node: int = 1
    device: str = "gpu"

    def __post_init__(self) -> None:
        for name in ("num_nodes", "num_gpus_per_node"):
            object.__setattr__(self, name, _checked_number(getattr(self, name), what=name))
        object.__setattr__(self, "device", python_value(self.device))
        if self.device not in DEVICES:
            raise ClusterError(
                f"Cluster: device must be one of {list(DEVICES)}, got {self.device!r}"
                f"{did_you_mean(self.device, DEVICES)}"
            )

    @classmethod
    def from_num_ranks(cls, num_ranks: int, *, num_nodes: int = 1, device: str = "gpu") -> Cluster:
        """
        :param num_ranks: ranks of all nodes together
        :param num_nodes: nodes, each gets the same number of ranks
        :param device: as in the class
        :raises ClusterError: if the ranks cannot be shared equally
        """
        num_ranks = _checked_number(num_ranks, what="num_ranks")
        num_nodes = _checked_number(num_nodes, what="num_nodes")
        if num_ranks % num_nodes:
            raise ClusterError(
                f"Cluster: {num_ranks} ranks cannot be shared equally by {num_nodes} nodes;"
                f" use a multiple of {num_nodes}, or another number of nodes"
            )
        return cls(num_nodes=num_nodes, num_gpus_per_node=num_ranks // num_nodes, device=device)

    @property
    def world_size(self) -> int:
        """Number of ranks on all nodes together."""
        return self.num_nodes * self.num_gpus_per_node

    def ranks_of_node(self, node: int) -> list[int]:
        """
        :param node: 0 to ``num_nodes`` - 1
        :return: its ranks, ascending
        """
        first = node * self.num_gpus_per_node
        return list(range(first, first + self.num_gpus_per_node))

    def node_of_rank(self, rank: int) -> int:
        """
        :param rank: 0 to ``world_size`` - 1
        :return: the node it is on
        """
        return rank // self.num_gpus_per_node

    def groups(self, group: Group) -> list[list[int]]:
        """
        :param group: how a level names its groups, see :data:`Group`
        :return: the groups as sorted lists of ranks, ordered by their first rank; together they hold every rank once
        :raises ClusterError: if the group does not fit this cluster
        """
        group = normal_group(group)
        if group == "world":
            return [list(range(self.world_size))]
        if group == "node":
            return [self.ranks_of_node(node) for node in range(self.num_nodes)]
        if isinstance(group, int):
            if self.world_size % group:
                raise ClusterError(
                    f"groups of {group} ranks do not divide the {self.world_size} ranks of {self};"
                    f" use a divisor of {self.world_size}, or lists of ranks"
                )
            return [list(range(start, start + group)) for start in range(0, self.world_size, group)]
        groups = [list(ranks) for ranks in group if not isinstance(ranks, str)]
        num_ranks = sum(map(len, groups))
        if num_ranks != self.world_size:
            raise ClusterError(
                f"the rank lists {groups} hold the ranks 0..{num_ranks - 1}, but {self} has the ranks"
                f" 0..{self.world_size - 1}; name every rank exactly once"
            )
        return groups

    def __str__(self) -> str:
        return f"{self.num_nodes}x{self.num_gpus_per_node} {self.device}"


def normal_group(group: Any, *, what: str = "group", error: type[DeclarationError] = ClusterError) -> Group:
    """
    :param group: how a level names its groups, see :data:`Group`
    :param what: names it in an error
    :param error: what is raised
    :return: it in one normal form: a word, an int, or a tuple of tuples of ranks, sorted
    :raises DeclarationError: on an unknown word, no ranks, or rank lists that are no partition of some number of ranks
    """
    group = python_value(group)
    if isinstance(group, str) and group in GROUP_WORDS:
        return group
    num_ranks = whole(group)
    if num_ranks is not None:
        if num_ranks < 1:
            raise error(f"{what}: a group of ranks must have at least 1 rank, got {num_ranks}")
        return num_ranks
    lists = isinstance(group, list | tuple) and len(group) > 0
    if lists and all(isinstance(ranks, list | tuple | range) and len(ranks) > 0 for ranks in group):
        return _partition(group, what=what, error=error)
    raise error(
        f"{what} must be one of {list(GROUP_WORDS)}, a number of ranks, or lists of ranks such as [[0, 1], [2, 3]],"
        f" got {group!r}{did_you_mean(group, GROUP_WORDS) if isinstance(group, str) else ''}"
    )


def _partition(
    group: Sequence[Sequence[Any]], *, what: str, error: type[DeclarationError]
) -> tuple[tuple[int, ...], ...]:
    groups = []
    for ranks in group:
        numbers = []
        for rank in ranks:
            number = whole(rank)
            if number is None or number < 0:
                raise error(f"{what}: ranks are numbers from 0, got {rank!r} in {group!r}")
            numbers.append(number)
        groups.append(tuple(sorted(numbers)))
    found = [rank for ranks in groups for rank in ranks]
    times = Counter(found)
    wanted = range(len(times))
    faults = {
        "missing": sorted(set(wanted) - set(times)),
        "out of range": sorted(set(times) - set(wanted)),
        "named twice": sorted(rank for rank, count in times.items() if count > 1),
    }
    if any(faults.values()):
        listed = ", ".join(f"{fault} {ranks}" for fault, ranks in faults.items() if ranks)
        raise error(
            f"{what}: the rank lists {[list(ranks) for ranks in groups]} are no partition of the ranks"
            f" 0..{len(wanted) - 1}: {listed}; name every rank exactly once"
        )
    return tuple(sorted(groups))


def _checked_number(value: Any, *, what: str) -> int:
    number = python_value(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ClusterError(f"Cluster: {what} must be an int of at least 1, got {value!r}")
    return number
