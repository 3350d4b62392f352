"""One tier of synchronisation: a group of ranks, a period, and what is combined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncopate.cluster import Cluster, Group, normal_group
from syncopate.errors import SchemeError
from syncopate.scheme.declaration import Declaration, known_options
from syncopate.scheme.plain import period, thawed
from syncopate.scheme.sync import Average, Gradients, Outer, Sync

MAX_TEXT = 60
"""Characters in which a text for tables lists ranks."""


@known_options(SchemeError)
@dataclass(frozen=True)
class Level(Declaration):
    """
    :param group: who synchronises with whom: "node", "world", a number of ranks (contiguous blocks of that many), or
        lists of ranks that together name every rank once
    :param every: period in updates; 1 is after every update
    :param sync: what is combined: :class:`Gradients`, :class:`Average`, :class:`Outer`
    :raises SchemeError: on an unknown word, rank lists that are no partition, a period that is no whole number of at
        least 1, gradients with a period
    """

    group: Group
    every: int = 1
    sync: Sync = field(default_factory=Average)

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", normal_group(self.group, what="Level: group", error=SchemeError))
        object.__setattr__(self, "every", period(self.every, what="Level: every"))
        if not isinstance(self.sync, Gradients | Average | Outer):
            raise SchemeError(f"Level: sync must be Gradients(), Average() or Outer(), got {self.sync!r}")
        if isinstance(self.sync, Gradients) and self.every != 1:
            raise SchemeError(
                f"Level: gradients are combined in every update, got every={self.every};"
                " use sync=Average() for a period, or accum_grad_multiple_step for larger batches"
            )

    def as_dict(self) -> dict[str, Any]:
        """:return: the level as plain data; options at their default are left out"""
        sync = {key: thawed(value) for key, value in self.sync.__sis_state__().items()}
        return {"group": thawed(self.group), "every": self.every, "sync": {"class": type(self.sync).__name__, **sync}}

    @property
    def group_text(self) -> str:
        """The group in words."""
        if self.group == "world":
            return "all ranks"
        if self.group == "node":
            return "the ranks of a node"
        if isinstance(self.group, int):
            return f"blocks of {self.group} ranks"
        listed = "ranks " + " | ".join(",".join(map(str, ranks)) for ranks in self.group)
        return listed if len(listed) <= MAX_TEXT else f"{len(self.group)} lists of ranks"

    @property
    def text(self) -> str:
        """The level in words: what is combined, among whom, when."""
        when = "every update" if self.every == 1 else f"every {self.every} updates"
        return f"{self.sync.kind} of {self.group_text} {when}"


def check_nesting(levels: tuple[Level, ...], cluster: Cluster) -> None:
    """
    :param levels: inner to outer
    :param cluster: where they run
    :raises ClusterError: if a group does not fit the cluster
    :raises SchemeError: if the groups do not nest, or the outermost level leaves the ranks apart
    """
    groups = [cluster.groups(level.group) for level in levels]
    for inner, outer, inner_level, outer_level in zip(groups, groups[1:], levels, levels[1:], strict=False):
        wider = {rank: index for index, ranks in enumerate(outer) for rank in ranks}
        for ranks in inner:
            if len({wider[rank] for rank in ranks}) > 1:
                raise SchemeError(
                    f"groups do not nest on {cluster}: ranks {ranks} of the level {inner_level.text!r} are in no single"
                    f" group of the next level {outer_level.text!r}, whose groups are {outer};"
                    " every group must be a union of groups of the level inside it"
                )
    if len(groups[-1]) > 1:
        raise SchemeError(
            f"the scheme never synchronises the world: its outermost level, {levels[-1].text!r}, leaves the groups"
            f" {groups[-1]} of {cluster} apart for ever; add a Level with group 'world'"
        )
