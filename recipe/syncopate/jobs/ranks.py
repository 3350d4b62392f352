"""Starts the ranks of a training job, made by us or by others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sisyphus.global_settings as gs

from syncopate.cluster import Cluster
from syncopate.errors import HostMemoryError
from syncopate.jobs.memory import may_grow
from syncopate.launch.failure import log_end
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training
from syncopate.returnn_io.learning_rates import read_learning_rates
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED

TASK = "run"
_KILLED = 137
"""Exit code of a command that was killed. Sisyphus takes it for a lack of memory, and submits the task again."""


def start_ranks(job: Any, *, cluster: Cluster, returnn_root: str | None, prepare: Callable[[], None]) -> None:
    """
    Called in the work folder of a job, on each of its nodes. Returns when the training is done on all of them and its
    learning-rate file is an output.

    :param job: a ``ReturnnTrainingJob``
    :param cluster: where it runs
    :param returnn_root: a checkout of RETURNN, None for the one installed for the job's python
    :param prepare: writes the config; called on one node
    :raises LaunchError: if the ranks could not be started, one of them died, or there were too many starts in vain
    :raises CalledProcessError: if a host ran out of memory, and more may be asked for
    """
    link_log(job)
    training = Training(
        config_file=Path(job.out_returnn_config_file.get_path()),
        run_dir=Path(job._sis_path(abspath=True)),
        work_dir=Path.cwd(),
        cluster=cluster,
        python=job.returnn_python_exe.get_path(),
        returnn_root=Path(returnn_root) if returnn_root else None,
        cpus_per_node=int(job.rqmt["cpu"]),
        distributed=job.returnn_config.get(TORCH_DISTRIBUTED) is not None,
    )
    hooks = Hooks(
        prepare=prepare,
        finish=lambda: job._relink(_learning_rates(job), job.out_learning_rates.get_path()),
        progress=lambda: _epochs_done(job),
        max_starts=gs.MAX_SUBMIT_RETRIES,
        absent=lambda node: _ended_before_it_started(job, node),
    )
    try:
        run_training(training, environ=os.environ, hooks=hooks)
    except HostMemoryError as exc:
        if not may_grow(_declared(job), os.environ):
            raise
        print(f"syncopate: {exc}\nThe task will be submitted again, asking for more memory.", flush=True)
        raise subprocess.CalledProcessError(_KILLED, "the ranks of the training") from exc


def _declared(job: Any) -> dict[str, Any]:
    """:return: what the task asks for by itself, with all that the recipe said about it"""
    rqmt: dict[str, Any] = next(task for task in job._sis_tasks() if task.name() == TASK).rqmt()
    return rqmt


def link_log(job: Any) -> None:
    """
    Sisyphus looks for ``log.run.1`` to know that the task was started, and shows it when the task fails. Where SLURM
    runs the task on several nodes it makes only ``log.run.1.0`` and so on.

    :param job: whose task runs in this process
    """
    tasks, number = (int(os.environ.get(name) or default) for name, default in _SLURM_TASK)
    path = Path(job._sis_path(f"{gs.JOB_LOG}.{TASK}", 1, abspath=True))
    own = path.with_name(f"{path.name}.{number}")
    if tasks < 2 or number != 0 or not own.exists():
        return
    path.unlink(missing_ok=True)
    os.link(own.resolve(), path)


_SLURM_TASK = (("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0"))


def _ended_before_it_started(job: Any, node: int) -> str | None:
    """:return: what a node's worker said if it ended before our code ran there: an input is not mounted, say"""
    if not os.path.exists(job._sis_path(f"{gs.STATE_ERROR}.{TASK}", 1, abspath=True)):
        return None
    name = ".".join(os.environ.get(part, "") for part in _ENGINE_LOG)
    path = Path(job._sis_path(gs.JOB_LOG_ENGINE, abspath=True)) / f"{name}.{node}"
    said = log_end(path).strip().splitlines()[-_SAID_LINES:]
    return "\n    ".join(["its worker marked the task as an error", *said, f"All of it: {path}"])


_ENGINE_LOG = ("SLURM_JOB_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
_SAID_LINES = 10


def _epochs_done(job: Any) -> float:
    """As Sisyphus counts progress, but from inside the job's work folder, where its own count finds no file."""
    path = Path(_learning_rates(job))
    trained = read_learning_rates(path).trained if path.exists() else ()
    return trained[-1].epoch if trained else 0


def _learning_rates(job: Any) -> str:
    return str(job.returnn_config.get("learning_rate_file", "learning_rates"))
