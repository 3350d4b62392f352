"""Where ``Sweep.register`` goes: into Sisyphus' graph, or to whoever collects the sweeps of a config instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncopate.sweep.sweep import Sweep

_collected: ContextVar[list[Sweep] | None] = ContextVar("collected_sweeps", default=None)


@contextmanager
def collecting() -> Iterator[list[Sweep]]:
    """Inside of it sweeps that are registered land in the list, and no Sisyphus is needed."""
    sweeps: list[Sweep] = []
    token = _collected.set(sweeps)
    try:
        yield sweeps
    finally:
        _collected.reset(token)


def collected() -> list[Sweep] | None:
    """:return: the list of whoever collects, None where nobody does"""
    return _collected.get()
