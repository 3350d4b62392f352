"""A training that was there before: a row of which files are read, and nothing is ever scheduled."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from syncopate.errors import SweepError
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED
from syncopate.sweep.budget import budget
from syncopate.sweep.record import RunRecord, UserScore


@dataclass(frozen=True, kw_only=True)
class Existing:
    """
    :param row: name of the row
    :param directory: folder of a Sisyphus job or of a training without Sisyphus, absolute
    :param job: the job it is, if the recipe holds it
    """

    row: str
    directory: str
    job: Any = None

    @classmethod
    def of(cls, row: str, training: Any, *, where: str) -> Existing:
        """
        :param row: name of the row
        :param training: a training job, an object with ``get_training_job()``, or the path of a folder
        :param where: names the row in an error
        :raises SweepError: if it is none of these, or the folder does not exist
        """
        if isinstance(training, str | os.PathLike):
            directory = os.path.abspath(training)
            if not os.path.isdir(directory):
                raise SweepError(f"{where}: there is no folder {directory}; give that of a training, or its job")
            return cls(row=row, directory=directory)
        job = training.get_training_job() if hasattr(training, "get_training_job") else training
        if not hasattr(job, "returnn_config") or not hasattr(job, "job_id"):
            raise SweepError(
                f"{where}: add_existing takes a training job, an object with get_training_job(), or the path of a"
                f" folder, got {training!r}"
            )
        return cls(row=row, directory=os.path.abspath(job._sis_path()), job=job)

    @property
    def name(self) -> str:
        """As a run has one."""
        return self.row

    @property
    def seed(self) -> None:
        """A training that was there before has the seed of its config."""
        return None

    def record(self, *, user_scores: tuple[UserScore, ...]) -> RunRecord:
        """
        :param user_scores: the recipe's own
        :return: what is known of it
        """
        known: dict[str, Any] = {
            "scheme_text": "not recorded",
            "num_nodes": None,
            "num_ranks": None,
            "device": None,
            "num_epochs": None,
            "data_passes": None,
            "dataset_distribution": None,
            "accum_grad": None,
            "max_seqs": None,
            "job_id": None,
        }
        if self.job is not None:
            known |= _known_of_job(self.job)
        return RunRecord(
            row=self.row,
            trial=0,
            seed=None,
            options={},
            scheme=None,
            levels=(),
            epoch_end=None,
            directory=self.directory,
            existing=True,
            user_scores=user_scores,
            **known,
        )


def _known_of_job(job: Any) -> dict[str, Any]:
    config = job.returnn_config
    num_ranks = getattr(job, "horovod_num_processes", None) or 1
    num_epochs = config.get("num_epochs")
    options = {**config.config, TORCH_DISTRIBUTED: config.get(TORCH_DISTRIBUTED)}
    data = budget(options, num_epochs=num_epochs, num_ranks=num_ranks) if isinstance(num_epochs, int) else None
    accum_grad = config.get("accum_grad_multiple_step", 1)
    distributed = config.get(TORCH_DISTRIBUTED)
    return {
        "scheme_text": "single process" if distributed is None else f"{TORCH_DISTRIBUTED}={distributed!r}",
        "num_nodes": getattr(job, "multi_node_slots", None) or 1,
        "num_ranks": num_ranks,
        "device": config.get("device"),
        "num_epochs": num_epochs,
        "data_passes": data.data_passes if data else None,
        "dataset_distribution": data.distribution if data else None,
        "accum_grad": accum_grad if isinstance(accum_grad, int) else None,
        "max_seqs": config.get("max_seqs") if isinstance(config.get("max_seqs"), int) else None,
        "job_id": job.job_id(),
    }
