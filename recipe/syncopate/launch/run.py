"""Starts one training and waits for it, wherever its nodes are."""

from __future__ import annotations

from collections.abc import Mapping

from syncopate.launch.fan_out import run_from_batch_script
from syncopate.launch.here import run_here
from syncopate.launch.node import run_node
from syncopate.launch.place import find_place
from syncopate.launch.training import Hooks, Training


def run_training(training: Training, *, environ: Mapping[str, str], hooks: Hooks | None = None) -> None:
    """
    Returns when every rank on every node is done, and ``hooks.finish`` ran. A training that fails is not started again.

    :param training: what is to be started
    :param environ: of this process
    :param hooks: what is done around it
    :raises LaunchError: if ranks could not be started, one of them died on any node, they were not one world of the
        right size, or there were too many starts
    :raises HostMemoryError: if a host ran out of memory
    :raises Interruption: if it is to be started again: told to stop, as RETURNN does to itself when little time is
        left; a node is gone; or a newer start took over
    """
    hooks = hooks or Hooks()
    place = find_place(training.cluster, environ, key=training.key)
    if place.allocation is None:
        run_here(training, place, environ=environ, hooks=hooks)
    elif place.allocation.index is None:
        run_from_batch_script(training, place.allocation, environ=environ, hooks=hooks)
    else:
        run_node(training, place.allocation, environ=environ, hooks=hooks)
