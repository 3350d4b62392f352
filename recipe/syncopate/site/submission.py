"""What every task for SLURM needs, whatever the cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from syncopate.site.numbers import minutes_up
from syncopate.site.sbatch_args import SbatchArgs

CPUS_PER_TASK = "SRUN_CPUS_PER_TASK"
WAIT = "SLURM_WAIT"
WAIT_S = 120
"""How long srun lets the other nodes of a task run once one ended. All end together, unless one hangs."""
_OWN = re.compile(rf"(?:^|,)(?:{CPUS_PER_TASK}|{WAIT})=[^,]*")
_OWN_WAIT = re.compile(rf"(?:^|,){WAIT}=([^,]*)")


def as_submitted(rqmt: Mapping[str, Any]) -> dict[str, Any]:
    """
    What was done already stays as it is. In ``sbatch_args``, options that are there win over those that are added:

    - ``--export=ALL,SRUN_CPUS_PER_TASK=...``: since SLURM 22.05, ``srun`` does not take the number of CPUs from
      ``sbatch``, and Sisyphus starts a task by ``srun``. It is added to an ``--export`` that is there.
      There ``SLURM_WAIT`` makes srun end what still runs two minutes after the first node ended: a launcher that hangs
      would hold all nodes until the time limit.
    - ``--open-mode=append``: a task that SLURM starts again writes to the same log.
    - ``--requeue``: SLURM starts it again after a node failed, or another job needed the node more.

    :param rqmt: requirement
    :return: the same, with these options, and with a time that Sisyphus turns into whole minutes, rounded up
    """
    submitted = dict(rqmt)
    time_h = submitted.get("time")
    if isinstance(time_h, int | float):
        submitted["time"] = whole_minutes_h(time_h)
    args = SbatchArgs(submitted.get("sbatch_args"))
    cpus = args.value("cpus-per-task") or math.ceil(submitted.get("cpu", 1))
    defaults = ["--open-mode=append", *([] if "no-requeue" in args else ["--requeue"])]
    if "export" in args:
        args = args.with_value("export", _with_cpus(args.value("export") or "ALL", cpus))
    else:
        defaults.insert(0, f"--export={_with_cpus('ALL', cpus)}")
    submitted["sbatch_args"] = args.with_defaults(*defaults).words
    return submitted


def whole_minutes_h(time_h: float) -> float:
    """
    :param time_h: hours
    :return: hours of which ``int(hours * 60)`` is the time in minutes, rounded up, and at least 1: 0 is no limit
    """
    minutes = minutes_up(time_h)
    if int(time_h * 60) == minutes:
        return time_h
    hours = minutes / 60
    while int(hours * 60) < minutes:
        hours = math.nextafter(hours, math.inf)
    return hours


def _with_cpus(exported: str, cpus: str | int) -> str:
    own_wait = _OWN_WAIT.search(exported)
    others = _OWN.sub("", exported).strip(",")
    if others.upper() in ("NONE", "NIL"):
        # These can be said only alone; what is listed here is then all that is handed on.
        others = ""
    added = [f"{CPUS_PER_TASK}={cpus}", f"{WAIT}={own_wait[1] if own_wait else WAIT_S}"]
    return ",".join([*([others] if others else []), *added])
