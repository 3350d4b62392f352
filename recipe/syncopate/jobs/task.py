"""The task that trains."""

from __future__ import annotations

import functools
import os
from typing import Any

import sisyphus.global_settings as gs
from sisyphus import Task, toolkit

from syncopate.jobs.memory import grow_memory

_LOCAL = "local"
"""LocalEngine's name in the submit log. Its queue ends with the manager, so what waited in it was not started."""


class TrainingTask(Task):
    """
    A task that Sisyphus takes for started once a cluster started it, and that asks for more memory only
    where the host ran out of it.

    Sisyphus itself looks for the task's log. A task that dies before it has one, or that runs on several nodes, would
    be submitted again for ever; now ``MAX_SUBMIT_RETRIES`` counts it.
    """

    def started(self, task_id: int | None = None) -> bool:
        """
        :param task_id: number of the task
        :return: whether it was started
        """
        if super().started(task_id):
            return True
        history = toolkit.cached_engine().get_submit_history(self)[task_id or 1]
        return bool(history) and self._wrote_a_log(history[-1], task_id or 1)

    def _wrote_a_log(self, submission: dict[str, Any], task_id: int) -> bool:
        """:return: whether SLURM started it: then there is a log, of the batch script at least"""
        if submission.get("engine_name") == _LOCAL:
            return False
        ids = [job_id for tasks, job_id in submission.get("engine_info") or [] if task_id in tasks and job_id]
        folder = self.path(gs.JOB_LOG_ENGINE)
        names = os.listdir(folder) if ids and os.path.isdir(folder) else []
        return any(f".{job_id}.{task_id}" in name for job_id in ids for name in names)

    def update_rqmt(
        self, last_rqmt: dict[str, Any], task_id: int, additional_usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """
        :param last_rqmt: what the last submission asked for
        :param task_id: number of the task
        :param additional_usage: what the engine says about the end of that
        :return: what to ask for now
        """
        self._update_rqmt = functools.partial(grow_memory, declared=self.rqmt())
        updated: dict[str, Any] = super().update_rqmt(last_rqmt, task_id, additional_usage)
        return updated


def as_training_task(task: Task) -> Task:
    """
    :param task: which starts the ranks
    :return: the same task, as a :class:`TrainingTask`
    """
    task.__class__ = TrainingTask
    return task
