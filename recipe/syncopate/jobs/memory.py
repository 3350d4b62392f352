"""
More memory for a training whose host ran out of it: once, and within what the setup's partitions have.

A GPU that is out of memory is an error of the training, which asking for more of the host's memory does not cure; so
only what the kernel or SLURM's accounting says about the host counts here.
"""

from __future__ import annotations

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
    mem_gb = tools.str_to_GB(declared["mem"])
    if not last_usage.get("out_of_memory") or last_rqmt["mem"] > mem_gb:
        return last_rqmt
    return {**last_rqmt, "mem": max(last_rqmt["mem"], min(mem_gb * GROWTH, _cap_gb(last_rqmt)))}


def may_grow(job: Any, environ: Mapping[str, str]) -> bool:
    """
    :param job: whose task ran out of memory
    :param environ: of the task
    :return: whether it asked for no more than the job declares, and there is more
    """
    mem_gb = float(tools.str_to_GB(job.rqmt["mem"]))
    given = environ.get("SLURM_MEM_PER_NODE")
    given_gb = int(given) / 1024 if given and given.isdecimal() else mem_gb
    return given_gb < mem_gb + 1 and _cap_gb(job.rqmt) > mem_gb


def _cap_gb(rqmt: Mapping[str, Any]) -> float:
    """:return: the most memory per node that the setup has for a training, as far as its settings say so"""
    cap = getattr(gs.check_engine_limits, "mem_cap_gb", None)
    return float(cap(dict(rqmt))) if cap is not None else float("inf")
