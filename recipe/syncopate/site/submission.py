"""What every task for SLURM needs, whatever the cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from syncopate.site.numbers import minutes_up
from syncopate.site.sbatch_args import SbatchArgs

CPUS_PER_TASK = "SRUN_CPUS_PER_TASK"
_OWN_CPUS = re.compile(rf"(?:^|,){CPUS_PER_TASK}=[^,]*")


def as_submitted(rqmt: Mapping[str, Any]) -> dict[str, Any]:
    """
    What was done already stays as it is. In ``sbatch_args``, options that are there win over those that are added:

    - ``--export=ALL,SRUN_CPUS_PER_TASK=...``: since SLURM 22.05, ``srun`` does not take the number of CPUs from
      ``sbatch``, and Sisyphus starts a task by ``srun``. It is added to an ``--export`` that is there.
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
    others = _OWN_CPUS.sub("", exported).strip(",")
    if others.upper() in ("NONE", "NIL"):
        # These can be said only alone; what is listed here is then all that is handed on.
        others = ""
    return ",".join([*([others] if others else []), f"{CPUS_PER_TASK}={cpus}"])
