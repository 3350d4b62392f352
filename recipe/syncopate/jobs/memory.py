"""
More memory for a training whose host ran out of it: once, and within what the setup's partitions have.

A GPU that is out of memory is an error of the training, which asking for more of the host's memory does not cure; so
only what the kernel or SLURM's accounting says about the host counts here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sisyphus.global_settings as gs
from sisyphus import tools

GROWTH = 2.0


def grow_memory(
    last_rqmt: dict[str, Any], last_usage: dict[str, Any], *, declared: Mapping[str, Any]
) -> dict[str, Any]:
    """
    :param last_rqmt: what the last submission asked for, ``"mem"`` in GB per node
    :param last_usage: Sisyphus' own record of it, and what the engine says about its end
    :param declared: what the job asks for by itself
    :return: what to ask for now. The time stays as it is: a training that met its limit goes on from its checkpoint
    """
    mem_gb = _whole_gb(declared)
    if not last_usage.get("out_of_memory") or last_rqmt["mem"] > mem_gb:
        return last_rqmt
    return {**last_rqmt, "mem": max(last_rqmt["mem"], min(mem_gb * GROWTH, _cap_gb(last_rqmt)))}


def may_grow(declared: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """
    :param declared: what the task that ran out of memory asks for by itself, as Sisyphus gives it
    :param environ: of the task
    :return: whether it was given no more than it declares, and there is more
    """
    mem_gb = _whole_gb(declared)
    given = environ.get("SLURM_MEM_PER_NODE")
    given_gb = int(given) / 1024 if given and given.isdecimal() else mem_gb
    return given_gb < mem_gb + 1 and _cap_gb(declared) > mem_gb


def _whole_gb(rqmt: Mapping[str, Any]) -> float:
    """:return: what SLURM is asked for, which takes whole GB"""
    return float(math.ceil(tools.str_to_GB(rqmt["mem"])))


def _cap_gb(rqmt: Mapping[str, Any]) -> float:
    """:return: the most memory per node that the setup has for a training, as far as its settings say so"""
    cap = getattr(gs.check_engine_limits, "mem_cap_gb", None)
    return float(cap(dict(rqmt))) if cap is not None else float("inf")
