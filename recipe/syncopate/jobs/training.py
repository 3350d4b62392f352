"""One training on several nodes, as a Sisyphus job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import sisyphus.global_settings as gs
from sisyphus import Task, tk

from i6_core.returnn.config import ReturnnConfig
from i6_core.returnn.training import ReturnnTrainingJob
from syncopate.cluster import Cluster
from syncopate.errors import ConfigError, SweepError
from syncopate.jobs.config import as_returnn_config, job_argument, write_config
from syncopate.jobs.ranks import start_ranks
from syncopate.jobs.task import TrainingTask
from syncopate.launch.kept import kept_names
from syncopate.sweep.checks import check_options_trained_by_us, check_sequences


class SyncTrainingJob(ReturnnTrainingJob):
    """
    Trains a RETURNN config on the ranks of a cluster; outputs are those of ``ReturnnTrainingJob``.

    The config is what :func:`syncopate.with_scheme` gave. The job's id depends on the config, the numbers of nodes and
    of ranks per node, and on ``returnn_python_exe`` and ``returnn_root`` where they are given. It does not depend on
    ``num_epochs``, requirements and verbosity.

    :param returnn_config: a ``ReturnnConfig`` or a :class:`syncopate.TrainingConfig`, with its scheme
    :param cluster: where it runs
    :param num_epochs: epochs to train. More of them later continue a training that was interrupted; Sisyphus never
        runs a finished job again.
    :param log_verbosity: RETURNN's, 1 to 5; None for that of the config, else 5
    :param save_interval: a checkpoint every so many epochs; None for that of the config, else 1
    :param keep_epochs: checkpoints to keep, None for RETURNN's rule
    :param time_rqmt: hours
    :param mem_rqmt: GB of main memory per rank
    :param cpu_rqmt: CPUs per rank
    :param gpu_mem_rqmt: GB of memory that each GPU must have at least
    :param returnn_python_exe: python of the ranks; None for the setup's ``RETURNN_PYTHON_EXE``, else Sisyphus' own
    :param returnn_root: a checkout of RETURNN; None for the setup's ``RETURNN_ROOT``, else the one installed there
    :param statistics: JSON with ``"num_train_sequences"``, checked before ranks are started
    :raises DeclarationError: if the config cannot be trained, or a job with the same id wants other epochs
    :raises NotYetError: if its scheme cannot be trained yet
    """

    def __init__(
        self,
        returnn_config: Any,
        *,
        cluster: Cluster,
        num_epochs: int,
        log_verbosity: int | None = None,
        save_interval: int | None = None,
        keep_epochs: Iterable[int] | None = None,
        time_rqmt: float = 4,
        mem_rqmt: float = 4,
        cpu_rqmt: int = 2,
        gpu_mem_rqmt: float | None = None,
        returnn_python_exe: tk.Path | None = None,
        returnn_root: tk.Path | None = None,
        statistics: tk.Path | None = None,
    ):
        check_options_trained_by_us(returnn_config.config, cluster)
        python_exe = returnn_python_exe or tk.Path(getattr(gs, "RETURNN_PYTHON_EXE", None) or sys.executable)
        root = returnn_root or (tk.Path(gs.RETURNN_ROOT) if getattr(gs, "RETURNN_ROOT", None) else None)
        super().__init__(
            as_returnn_config(returnn_config),
            log_verbosity=log_verbosity or job_argument(returnn_config, "log_verbosity"),
            device=cluster.device,
            num_epochs=num_epochs,
            save_interval=save_interval or job_argument(returnn_config, "save_interval"),
            keep_epochs=keep_epochs,
            distributed_launch_cmd="torchrun",
            returnn_python_exe=python_exe,
            # The base class insists on a checkout; where there is none, RETURNN is started as the installed package.
            returnn_root=root or python_exe,
        )
        self.returnn_root = root
        self.cluster = cluster
        self.statistics = statistics
        ranks = cluster.num_gpus_per_node
        self.rqmt = {
            "gpu": ranks if cluster.device == "gpu" else 0,
            "cpu": cpu_rqmt * ranks,
            "mem": mem_rqmt * ranks,
            "time": time_rqmt,
        }
        if gpu_mem_rqmt:
            self.rqmt["gpu_mem"] = gpu_mem_rqmt
        if cluster.num_nodes > 1:
            self.rqmt["multi_node_slots"] = cluster.num_nodes
        self._sis_environment.keep(kept_names(os.environ))

    @classmethod
    def hash(cls, parsed_args: dict[str, Any]) -> str:
        """
        :param parsed_args: arguments of the constructor
        :return: the hash part of the job's id
        """
        cluster: Cluster = parsed_args["cluster"]
        config: ReturnnConfig = ReturnnTrainingJob.create_returnn_config(
            **{
                **{key: parsed_args[key] for key in ("log_verbosity", "num_epochs", "save_interval", "keep_epochs")},
                "returnn_config": as_returnn_config(parsed_args["returnn_config"]),
                "device": cluster.device,
                "horovod_num_processes": None,
            }
        )
        return str(
            super(ReturnnTrainingJob, cls).hash(
                {
                    "returnn_config": config,
                    "returnn_python_exe": parsed_args["returnn_python_exe"],
                    "returnn_root": parsed_args["returnn_root"],
                    "num_nodes": cluster.num_nodes,
                    "num_gpus_per_node": cluster.num_gpus_per_node,
                    **({"device": "cpu"} if cluster.device == "cpu" else {}),
                }
            )
        )

    def tasks(self) -> Iterator[Task]:
        """The training, then i6_core's plots."""
        yield TrainingTask("run", resume="run", rqmt=self.rqmt)
        yield Task("plot", resume="plot", mini_task=True)

    def create_files(self) -> None:
        """Writes the RETURNN config."""
        write_config(self.returnn_config, self.out_returnn_config_file.get_path())

    def run(self) -> None:
        """Starts the ranks and waits for them; a training that was interrupted goes on from its last checkpoint."""
        root = self.returnn_root.get_path() if self.returnn_root else None
        start_ranks(self, cluster=self.cluster, returnn_root=root, prepare=self._prepare)

    def _prepare(self) -> None:
        self.create_files()
        if self.statistics is not None:
            check_sequences(self.statistics.get_path(), self.returnn_config.config, num_ranks=self.cluster.world_size)


_wanted_epochs: dict[str, tuple[int, str]] = {}


def claim(job: Any, *, num_epochs: int, wanted_by: str) -> None:
    """
    Notes who wants how many epochs of a job. Sisyphus makes one job of equal ids, and the first constructor wins.

    :param job: a training
    :param num_epochs: what is wanted of it
    :param wanted_by: names the row in an error
    :raises SweepError: if another row wants another number
    """
    other_epochs, other = _wanted_epochs.setdefault(job.job_id(), (num_epochs, wanted_by))
    if other_epochs != num_epochs:
        raise SweepError(
            f"{other} wants {other_epochs} epochs and {wanted_by} wants {num_epochs} epochs of one and the same job"
            f" {job.job_id()}; the number of epochs is no part of its id. Train the longer one, or let them differ in"
            " an option"
        )


def python_path(python: str | None) -> tk.Path | None:
    """
    :param python: the python of the ranks, None for the setup's
    :return: it as an input of a job whose place does not enter the id
    :raises ConfigError: if there is no such file
    """
    if python is None:
        return None
    if not os.path.isfile(python):
        raise ConfigError(f"the training python {python!r} does not exist; give the path of an executable")
    return tk.Path(os.path.abspath(python), hash_overwrite="RETURNN_PYTHON_EXE")
