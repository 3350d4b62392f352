"""What stands in for ``check_engine_limits``: the last function that sees a requirement before it is submitted."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from syncopate.errors import SiteError
from syncopate.site import Site
from syncopate.site.need import duration
from syncopate.site.sbatch_args import SbatchArgs
from syncopate.site.submission import CPUS_PER_TASK, WAIT, as_submitted

Limits = Callable[[dict[str, Any], Any], dict[str, Any]]

_PER_NODE = ("cpu", "gpu", "mem")


class AllNodesHere:
    """
    For an engine that knows no nodes: this host has to give what all of them need together.

    :param limits: the user's own, None if there is none
    """

    def __init__(self, limits: Limits | None) -> None:
        self.limits = limits

    def __call__(self, current_rqmt: dict[str, Any], task: Any) -> dict[str, Any]:
        rqmt = dict(current_rqmt)
        num_nodes = rqmt.pop("multi_node_slots", None) or 1
        rqmt.update({key: rqmt[key] * num_nodes for key in _PER_NODE if key in rqmt})
        return rqmt if self.limits is None else self.limits(rqmt, task)


class SlurmLimits:
    """
    For tasks that SLURM gets; what goes to another engine is left to the user's own function.

    :param settings: of Sisyphus
    :param site: None leaves partitions and accounts to the user
    :param limits: the user's own, None if there is none
    """

    def __init__(self, *, settings: Mapping[str, Any], site: Site | None, limits: Limits | None) -> None:
        self._settings = settings
        self._said: set[str] = set()
        self.site = site
        self.limits = limits

    def __call__(self, current_rqmt: dict[str, Any], task: Any) -> dict[str, Any]:
        rqmt = dict(current_rqmt)
        is_for_slurm = self._is_for_slurm(rqmt)
        if is_for_slurm and self._settings.get("active_engine") is None:
            # A value in the manager's own environment would win over the one that --export gives to a task; and of a
            # manager that is itself a job that SLURM started again, tasks would take the count for their own.
            for name in (CPUS_PER_TASK, WAIT, "SLURM_RESTART_COUNT"):
                os.environ.pop(name, None)
        if is_for_slurm and self.site is not None:
            rqmt = self._routed(self.site, rqmt, task)
        if self.limits is not None:
            rqmt = self.limits(rqmt, task)
        return as_submitted(rqmt) if is_for_slurm and isinstance(rqmt, dict) else rqmt

    def mem_cap_gb(self, rqmt: Mapping[str, Any]) -> float:
        """
        :param rqmt: requirement
        :return: GB per node that it may ask for at most, infinite if nobody knows
        :raises SiteError: if no partition gives the rest of it
        """
        return math.inf if self.site is None else self.site.mem_cap_gb(rqmt)

    def _is_for_slurm(self, rqmt: Mapping[str, Any]) -> bool:
        """In a task, Sisyphus knows the engine; before that, its toolkit does, which whoever submits has loaded."""
        engine = self._settings.get("active_engine")
        if engine is None:
            toolkit = sys.modules.get("sisyphus.toolkit")
            if toolkit is None:
                return True
            engine = toolkit.cached_engine()
        engines = getattr(engine, "engines", None)
        if engines is not None:
            engine = engines.get(rqmt.get("engine", engine.default_engine))
        return hasattr(engine, "options")

    def _routed(self, site: Site, rqmt: dict[str, Any], task: Any) -> dict[str, Any]:
        """What was declared may be refused. What grew since, after a failure, is cut to what there is."""
        declared = {} if task is None else task.rqmt()
        mem_gb, time_h = rqmt.get("mem", 0), rqmt.get("time", 0)
        resumes = task is None or task.resumeable() or time_h > declared.get("time", 0)
        try:
            if mem_gb > declared.get("mem", 0):
                rqmt["mem"] = min(mem_gb, max(site.mem_cap_gb(rqmt), declared.get("mem", 0)))
            routed = site.route(rqmt, resumes=resumes)
        except SiteError as exc:
            if task is None:
                raise
            raise SiteError(f"{task.task_name()}: {exc}") from exc
        if routed.get("time", 0) < time_h:
            partition = SbatchArgs(routed["sbatch_args"]).value("partition")
            self._say(
                f"{duration(time_h)} are more than the partition {partition!r} gives, and are cut to"
                f" {duration(routed['time'])}; a training goes on from its last checkpoint when it is submitted again"
            )
        return routed

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logging.warning("%s", text)
