"""
A test job that starts ranks as a training does, and trains nothing: what ``python -m syncopate doctor --slurm`` runs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sisyphus.global_settings as gs
from sisyphus import Job, Task, tk

from syncopate.cluster import Cluster
from syncopate.doctor.ask import ask
from syncopate.doctor.training import LOOK_LIMIT_S, check_sees_syncopate
from syncopate.errors import ComponentError, LaunchError, SyncopateError
from syncopate.jobs.engine import check_engine, engine_of
from syncopate.jobs.ranks import link_log
from syncopate.jobs.task import TrainingTask
from syncopate.launch.check_record import CheckFolder, WorkerCheck, WorkerFailure
from syncopate.launch.command import RANK_MODULE
from syncopate.launch.kept import kept_names
from syncopate.launch.place import find_place
from syncopate.launch.probe import MARK
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training

CHECKS = "checks"
"""Folder inside of that of the job."""
TIME_H = 5 / 60
JOIN_LIMIT_S = 120
RANK_LIMIT_S = 120
"""As for the agents to meet: importing torch from a busy file server can take a minute."""
_MIN_CPUS = 4
"""Of a node: enough to tell a step that has them from one that has a single core, which may be two CPUs."""
_MEM_GB = {"gpu": 4, "cpu": 2}
"""For each rank: torch alone, and what its libraries for GPUs take."""
_NAME = "the test job"
_ANSWER = f"print('\\n{MARK}{{}}')"


class ClusterCheckJob(Job):
    """
    Starts ranks that look around instead of training. Needs no data and no config.

    :param cluster: nodes, and ranks per node
    :param python: the python of the trainings
    :param returnn_root: their checkout of RETURNN, None for the one that is installed there
    :param token: makes its name one of its own in SLURM's queue
    """

    def __init__(self, *, cluster: Cluster, python: str, returnn_root: str | None, token: str):
        self.cluster = cluster
        self.python = python
        self.returnn_root = returnn_root
        self.token = token
        self.out_results = self.output_path("results.json")
        ranks = cluster.num_gpus_per_node
        self.rqmt: dict[str, Any] = {
            "gpu": ranks if cluster.device == "gpu" else 0,
            "cpu": max(_MIN_CPUS, 2 * ranks),
            "mem": _MEM_GB[cluster.device] * ranks,
            "time": TIME_H,
        }
        if cluster.num_nodes > 1:
            self.rqmt["multi_node_slots"] = cluster.num_nodes
        self._sis_environment.keep(kept_names(os.environ))

    def tasks(self) -> Iterator[Task]:
        """One, like that of a training."""
        yield TrainingTask("run", resume="run", rqmt=self.rqmt)

    def run(self) -> None:
        """On each node, or once in the batch script."""
        link_log(self)
        number = int(os.environ.get("SLURM_PROCID") or 0)
        folder = CheckFolder(path=Path(self._sis_path(CHECKS, abspath=True)))
        folder.path.mkdir(exist_ok=True)
        self._look(number).write(folder.file_of_worker(number))
        try:
            run_training(self._training(folder), environ=os.environ, hooks=Hooks(finish=self._finish, max_starts=1))
        except BaseException as exc:
            WorkerFailure(number=number, message=str(exc) or type(exc).__name__).write(folder.file_of_failure(number))
            raise

    def _training(self, folder: CheckFolder) -> Training:
        job_dir = Path(self._sis_path(abspath=True))
        modules = [RANK_MODULE, "syncopate.runtime"]
        found = [name for name in modules if importlib.util.find_spec(name) is not None]
        tail = ["-m", "syncopate.launch.rank_check", str(folder.path), "--limit-s", str(RANK_LIMIT_S)]
        tail += [word for name in found for word in ("--module", name)]
        tail += ["--sees", str(job_dir / f"{gs.JOB_LOG}.run.1")]
        return Training(
            config_file=Path(self.out_results.get_path()),  # no rank reads a config
            run_dir=job_dir,
            work_dir=Path.cwd(),
            cluster=self.cluster,
            python=self.python,
            returnn_root=Path(self.returnn_root) if self.returnn_root else None,
            tail=tuple(tail),
            cpus_per_node=int(self.rqmt["cpu"]),
            join_limit_s=JOIN_LIMIT_S,
        )

    def _look(self, number: int) -> WorkerCheck:
        try:
            allocation = find_place(self.cluster, os.environ).allocation
            on_each_node = None if allocation is None else allocation.index is not None
        except LaunchError:
            on_each_node = None  # run_training says why
        python_error, syncopate_error = self._python_errors()
        return WorkerCheck(
            number=number,
            node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            on_each_node=on_each_node,
            names=tuple(sorted(kept_names(os.environ) & set(os.environ))),
            has_squeue=shutil.which("squeue") is not None,
            python_error=python_error,
            syncopate_error=syncopate_error,
        )

    def _python_errors(self) -> tuple[str | None, str | None]:
        """:return: why the training python does not answer here, and why it would not run our syncopate"""
        if shutil.which(self.python) is None:
            return f"{self.python} does not exist, or is no program that may be executed", None
        folder = Path(self._sis_path(abspath=True))
        try:
            ask([self.python, "-c", _ANSWER], cwd=folder, timeout_s=LOOK_LIMIT_S)
        except ComponentError as exc:
            return str(exc), None
        try:
            check_sees_syncopate(self.python, folder=folder)
        except ComponentError as exc:
            return None, str(exc)
        return None, None

    def _finish(self) -> None:
        """What all ranks found is an output, so that Sisyphus takes the job for finished only with it."""
        folder = CheckFolder(path=Path(self._sis_path(CHECKS, abspath=True)))
        files = [folder.file_of_rank(rank) for rank in range(self.cluster.world_size)]
        texts = [file.read_text(encoding="utf-8").strip() for file in files]
        Path(self.out_results.get_path()).write_text(f"[{','.join(texts)}]\n", encoding="utf-8")


def register(
    num_nodes: int, num_gpus_per_node: int, device: str, python: str, returnn_root: str | None, token: str
) -> None:
    """
    What a config does: ``sis manager -r "syncopate.jobs.cluster_check.register(2, 1, 'cpu', ...)"``.

    :param num_nodes: of the cluster
    :param num_gpus_per_node: of the cluster
    :param device: of the cluster
    :param python: see :class:`ClusterCheckJob`
    :param returnn_root: see :class:`ClusterCheckJob`
    :param token: see :class:`ClusterCheckJob`
    """
    cluster = Cluster(num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node, device=device)
    job = ClusterCheckJob(cluster=cluster, python=python, returnn_root=returnn_root, token=token)
    tk.register_output(f"cluster_check_{token}.json", job.out_results)


def submission(num_nodes: int, num_gpus_per_node: int, device: str) -> dict[str, Any]:
    """
    :param num_nodes: of the cluster
    :param num_gpus_per_node: of the cluster
    :param device: of the cluster
    :return: how the settings would submit the test job: ``error`` if they would not, the name of the ``engine``,
        whether that ``is_slurm``, its ``gateway``, how many ``cpus`` are asked for, ``work_dir`` of the settings, and
        what of the ``environ`` SLURM's commands need, which settings may set
    """
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine,
    )

    cluster = Cluster(num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node, device=device)
    job = ClusterCheckJob(cluster=cluster, python="python", returnn_root=None, token="")
    (task,) = job.tasks()
    answer: dict[str, Any] = {"error": None, "engine": None, "is_slurm": False, "gateway": None, "cpus": None}
    answer["work_dir"] = gs.WORK_DIR
    answer["environ"] = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
    try:
        engine = engine_of(task, task.rqmt(), name=_NAME)
        is_slurm = isinstance(engine, SimpleLinuxUtilityForResourceManagementEngine)
        answer |= {"engine": type(engine).__name__, "is_slurm": is_slurm, "gateway": getattr(engine, "gateway", None)}
        check_engine([job], names=[_NAME])
        task.set_job(job)
        answer["cpus"] = engine.get_rqmt(task, 1, update=False).get("cpu", 1)
    except SyncopateError as exc:
        answer["error"] = str(exc)
    except Exception as exc:
        answer["error"] = f"engine() of settings.py fails: {type(exc).__name__}: {exc}"
    return answer
