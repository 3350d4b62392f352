"""The task that trains."""

from __future__ import annotations

import functools
from typing import Any

from sisyphus import Task, toolkit

from syncopate.jobs.memory import grow_memory

_LOCAL = "local"
"""LocalEngine's name in the submit log. Its queue ends with the manager, so what waited in it was not started."""


class TrainingTask(Task):
    """
    A task that Sisyphus takes for started once it was given to a cluster's queue, and that asks for more memory only
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
        return bool(history) and history[-1].get("engine_name") != _LOCAL and _is_accepted(history[-1])

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


def _is_accepted(submission: dict[str, Any]) -> bool:
    """:return: whether the queue gave it an id"""
    return any(job_id is not None for _, job_id in submission.get("engine_info") or [])
