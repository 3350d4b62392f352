"""
A training job that somebody else made gets our launch, and stays the job it is.

The object is given a class derived from its own. Its Sisyphus id is stored in the object, so the id, the outputs and
``isinstance`` stay; what is overridden is how files are written and how the ranks are started. The derived class exists
only in memory: such an object is pickled as its original class plus the order to adapt it, so that a worker, which
loads the job from its folder, adapts it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from i6_core.returnn.training import ReturnnTrainingJob
from i6_core.util import create_executable
from syncopate.cluster import Cluster
from syncopate.errors import SweepError
from syncopate.jobs.config import write_config
from syncopate.jobs.ranks import TASK, start_ranks
from syncopate.jobs.task import as_training_task
from syncopate.launch.kept import kept_names
from syncopate.launch.rank import __name__ as RANK_MODULE

OVERRIDDEN = ("run", "create_files", "_get_run_cmd")
"""What an adapted job does in another way; a class that overrides one of them itself cannot be adapted."""

_adapted: dict[type, type] = {}


class AdaptedTraining:
    """What an adapted job does in another way than ``ReturnnTrainingJob``."""

    job_id: Any
    syncopate_cluster: Cluster
    out_returnn_config_file: Any
    returnn_config: Any
    returnn_python_exe: Any
    returnn_root: Any

    def create_files(self) -> None:
        """Writes config and start script."""
        write_config(self.returnn_config, self.out_returnn_config_file.get_path())
        create_executable("rnn.sh", self._get_run_cmd())

    def tasks(self) -> Iterator[Any]:
        """Those of its class; the one that trains counts its starts."""
        for task in super().tasks():  # type: ignore[misc]
            yield as_training_task(task) if task.name() == TASK else task

    def run(self) -> None:
        """Writes the files anew, as they may be from before the job was adapted, and starts the ranks."""
        root = checkout(self.returnn_root.get_path())
        start_ranks(self, cluster=self.syncopate_cluster, returnn_root=root, prepare=self.create_files)

    def _get_run_cmd(self) -> list[str]:
        """For the start script alone, which starts one rank by hand; the job starts all of them itself."""
        root = checkout(self.returnn_root.get_path())
        options = ["--returnn-root", root] if root else []
        config = self.out_returnn_config_file.get_path()
        return [self.returnn_python_exe.get_path(), "-m", RANK_MODULE, *options, config]

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        (base,) = type(self).__bases__[1:]
        return _restore, (base, self._sis_id()), self.__getstate__()


def checkout(root: str) -> str | None:
    """
    :param root: what a job has as its RETURNN root
    :return: it; None where it is a folder of installed packages, which holds RETURNN without a rnn.py
    """
    is_installed = not os.path.exists(os.path.join(root, "rnn.py")) and os.path.isdir(os.path.join(root, "returnn"))
    return None if is_installed else root


def adapt(job: Any, cluster: Cluster, *, where: str) -> None:
    """
    :param job: a ``ReturnnTrainingJob`` or one of a derived class
    :param cluster: where it runs
    :param where: names the row in an error
    :raises SweepError: if it is no such job, starts its training in its own way, or is wanted on two clusters
    """
    if not isinstance(job, ReturnnTrainingJob):
        raise SweepError(
            f"{where}: the training job is a {type(job).__module__}.{type(job).__qualname__}; it must be a"
            " ReturnnTrainingJob of i6_core, or of a class derived from it"
        )
    if isinstance(job, AdaptedTraining):
        if job.syncopate_cluster != cluster:
            raise SweepError(
                f"{where}: the job {job.job_id()} is to run on {cluster}, another row runs it on"
                f" {job.syncopate_cluster}; let them differ in an option"
            )
        return
    for name in OVERRIDDEN:
        if getattr(type(job), name) is not getattr(ReturnnTrainingJob, name):
            raise SweepError(
                f"{where}: the class {type(job).__module__}.{type(job).__qualname__} has a {name}() of its own, which"
                " would be lost if Syncopate started the training; use ReturnnTrainingJob, or move what it does into a"
                " job of its own"
            )
    job.__class__ = _adapted_class(type(job))
    job.syncopate_cluster = cluster
    job._sis_environment.keep(kept_names(os.environ))


def _adapted_class(base: type) -> type:
    if base not in _adapted:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
        _adapted[base] = type(base)(base.__name__, (AdaptedTraining, base), names)
    return _adapted[base]


def _restore(base: type, sis_id: str) -> Any:
    cls = _adapted_class(base)
    return cls.__new__(cls, sis_id)
