"""Sisyphus' engine for SLURM, where SLURM itself may be out of order for a while."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sisyphus.engine import DeferSubmission
from sisyphus.simple_linux_utility_for_resource_management_engine import (
    SimpleLinuxUtilityForResourceManagementEngine,
)

RETRY_S = 60.0


class SlurmEngine(SimpleLinuxUtilityForResourceManagementEngine):
    """
    What sbatch refuses is submitted again a minute later. Sisyphus' own engine tries again at once, for ever, and
    counts each try as a submission, so that an hour without the scheduler leaves jobs in a state that needs a hand.

    :param retry_s: after a refusal nothing is submitted for so long
    """

    def __init__(self, *args: Any, retry_s: float = RETRY_S, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._retry_s = retry_s
        self._is_asking = threading.Lock()

    def submit_helper(self, *args: Any, **kwargs: Any) -> Any:
        """
        :return: id of the job, see the base class
        :raises DeferSubmission: if sbatch refused it
        """
        job_id = super().submit_helper(*args, **kwargs)
        if job_id is None:
            self._submit_blocked_until = time.monotonic() + self._retry_s
            logging.warning("sbatch refused a job, see above; it is submitted again in %.0f s", self._retry_s)
            raise DeferSubmission("sbatch refused it")
        return job_id

    def queue_state(self) -> Any:
        """
        :return: states of the queue, see the base class. The manager looks at its jobs in 16 threads, which all find
            the last answer too old at the same time; one of them asks, the others take its answer
        """
        with self._is_asking:
            return super().queue_state()
