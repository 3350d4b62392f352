"""A synchronisation scheme: nested levels, or one hook of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import SchemeError, did_you_mean
from syncopate.scheme.declaration import Declaration, known_options
from syncopate.scheme.function import FunctionReference
from syncopate.scheme.level import Level, check_nesting
from syncopate.scheme.plain import period, python_value
from syncopate.scheme.sync import Gradients, Outer

EPOCH_ENDS = ("average", "outer", "view", "as_is")


@dataclass(frozen=True, kw_only=True)
class Hook(Declaration):
    """
    A function of the user's own, called by every rank after the optimizer update.

    :param function: where it is found and what it does
    :param every: period of the calls in updates
    """

    function: FunctionReference
    every: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", period(self.every, what="custom: every"))

    def as_dict(self) -> dict[str, Any]:
        """:return: the hook as plain data"""
        return {"function": self.function.as_dict(), "every": self.every}


@known_options(SchemeError)
@dataclass(frozen=True, kw_only=True)
class Scheme(Declaration):
    """
    When the ranks synchronise, with whom, and what they combine.

    :param levels: inner to outer. Every group is a union of groups of the level inside it, every period a multiple of
        the one inside it, and the outermost level holds all ranks.
    :param epoch_end: what happens at an epoch end, where RETURNN evaluates and saves. "average": parameters, buffers
        and optimizer state become the mean. "outer": the round is closed by an outer step. "view": the consensus is
        evaluated and saved, the ranks go on with their own. "as_is": nothing is written, RETURNN decides by its
        behavior_version. Default: "outer" with an :class:`Outer` level, else "average"; None where ranks never differ.
    :param hook: instead of levels, a function of the user's own, see :func:`syncopate.custom`
    :raises SchemeError: on levels that make no sense together
    """

    levels: tuple[Level, ...] = ()
    epoch_end: str | None = None
    hook: Hook | None = None

    def __post_init__(self) -> None:
        if isinstance(self.levels, Level):
            raise SchemeError(
                "Scheme: levels must be a sequence of Level, got a single one; write levels=(Level(...),)"
            )
        if not isinstance(self.levels, Iterable):
            raise SchemeError(f"Scheme: levels must be a sequence of Level, got {self.levels!r}")
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            if not isinstance(level, Level):
                raise SchemeError(f"Scheme: levels must be a sequence of Level, got {level!r}")
        if self.hook is not None and not isinstance(self.hook, Hook):
            raise SchemeError(f"Scheme: hook must come from custom(function, every=...), got {self.hook!r}")
        if bool(self.levels) == bool(self.hook):
            raise SchemeError(
                "Scheme: needs either levels or a hook; for a single process use None instead of a scheme"
            )
        _check_levels(self.levels)
        object.__setattr__(self, "epoch_end", python_value(self.epoch_end))
        object.__setattr__(self, "epoch_end", self._checked_epoch_end())

    @property
    def ranks_differ(self) -> bool:
        """Whether ranks hold different parameters between syncs."""
        return self.hook is not None or any(not isinstance(level.sync, Gradients) for level in self.levels)

    def check(self, cluster: Cluster) -> None:
        """
        :param cluster: where the scheme is to run
        :raises ClusterError: if a group does not fit the cluster
        :raises SchemeError: if the groups do not nest or never hold the world
        """
        if self.levels:
            check_nesting(self.levels, cluster)

    def as_dict(self) -> dict[str, Any]:
        """:return: the scheme as plain data in one normal form; equal schemes give equal dicts"""
        plain: dict[str, Any] = {}
        if self.levels:
            plain["levels"] = [level.as_dict() for level in self.levels]
        if self.hook:
            plain["hook"] = self.hook.as_dict()
        if self.epoch_end is not None:
            plain["epoch_end"] = self.epoch_end
        return plain

    @property
    def text(self) -> str:
        """The scheme in words, for tables."""
        if self.hook:
            when = "every update" if self.hook.every == 1 else f"every {self.hook.every} updates"
            return f"{self.hook.function.module}.{self.hook.function.name} {when}"
        (only, *others) = self.levels
        if not others and isinstance(only.sync, Gradients):
            return f"{only.text} ({'after the backward pass' if only.sync.explicit else 'DDP'})"
        return " + ".join(level.text for level in self.levels)

    def _checked_epoch_end(self) -> str | None:
        outer = any(isinstance(level.sync, Outer) for level in self.levels)
        if self.epoch_end is None:
            return ("outer" if outer else "average") if self.ranks_differ else None
        if self.epoch_end not in EPOCH_ENDS:
            raise SchemeError(
                f"Scheme: epoch_end must be one of {list(EPOCH_ENDS)}, got {self.epoch_end!r}"
                f"{did_you_mean(self.epoch_end, EPOCH_ENDS)}"
            )
        if not self.ranks_differ:
            raise SchemeError(
                f"Scheme: epoch_end={self.epoch_end!r}, but with gradients in every update the ranks never differ;"
                " leave it out"
            )
        if self.epoch_end == "outer" and not outer:
            raise SchemeError("Scheme: epoch_end='outer' needs a level with sync=Outer(...); use 'average'")
        if self.epoch_end == "as_is" and outer:
            raise SchemeError(
                "Scheme: epoch_end='as_is' leaves the epoch end to RETURNN, which knows no outer step;"
                " use 'outer', 'view' or 'average'"
            )
        return self.epoch_end


def _check_levels(levels: tuple[Level, ...]) -> None:
    for inner, outer in pairwise(levels):
        if isinstance(outer.sync, Gradients):
            raise SchemeError(
                f"Scheme: gradients are combined before the optimizer update, so their level comes first and there is"
                f" one of them; got {outer.text!r} outside of {inner.text!r}"
            )
        if outer.every % inner.every:
            raise SchemeError(
                f"Scheme: the period of {outer.text!r} is no multiple of that of {inner.text!r} inside it;"
                f" use a multiple of {inner.every}"
            )
        if inner.group == "world" and outer.group == "node":
            raise SchemeError("Scheme: levels go from inner to outer, got group 'world' inside of group 'node'")
        if isinstance(inner.group, int) and isinstance(outer.group, int) and outer.group % inner.group:
            raise SchemeError(
                f"Scheme: levels go from inner to outer, and blocks of {outer.group} ranks are not made of blocks of"
                f" {inner.group}; use a multiple of {inner.group}"
            )
        if isinstance(inner.sync, Gradients) and inner.sync.options:
            raise SchemeError(
                f"Scheme: options {dict(inner.sync.options)} are for DDP, which runs only where gradients of the world"
                " are the only level; leave them out"
            )
    apart = levels[-1].group if levels else "world"
    if apart == "node" or (isinstance(apart, tuple) and len(apart) > 1):
        raise SchemeError(
            f"Scheme: it never synchronises the world: its outermost level is {levels[-1].text!r}, which leaves"
            " these groups apart for ever; add a Level with group 'world'"
        )
