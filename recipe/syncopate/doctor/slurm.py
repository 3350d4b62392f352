"""
``python -m syncopate doctor --slurm``: SLURM is asked, and runs a test job that looks around on its nodes.

Nothing is imitated: the user's own settings and engine, the real manager, and the launcher of the trainings.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from syncopate.cluster import Cluster
from syncopate.doctor.ask import ask
from syncopate.doctor.finding import Note
from syncopate.doctor.slurm_commands import Slurm
from syncopate.doctor.slurm_findings import TestJob
from syncopate.doctor.slurm_job import Seen, run_test_job
from syncopate.errors import ComponentError
from syncopate.launch.probe import MARK

DEFAULT_LIMIT_S = 600
_ENGINE_LIMIT_S = 60

_SUBMISSION = f"""
import json, sys
import sisyphus.toolkit  # finds recipes as `sis` does
from syncopate.jobs.cluster_check import submission
print("\\n{MARK}" + json.dumps(submission(*json.loads(sys.argv[1]))))
"""

Check = Callable[[], str | Note]


class SlurmChecks:
    """
    :param setup: folder of the user's settings
    :param cluster: that the test job asks for
    :param python: of the trainings
    :param returnn_root: their checkout of RETURNN, None for the one that is installed there
    :param limit_s: how long the test job may take, most of which may be the queue
    """

    def __init__(self, *, setup: Path, cluster: Cluster, python: str, returnn_root: str | None, limit_s: float) -> None:
        self._setup = setup.resolve()
        self._cluster = cluster
        self._python = python
        self._returnn_root = returnn_root
        self._limit_s = limit_s
        self._submission: dict[str, Any] | None = None
        self._slurm = Slurm()
        self._seen = Seen()

    def all(self) -> Iterator[tuple[str, Check]]:
        """:return: names and checks, in order; what depends on an earlier one is left out where that one failed"""
        yield "SLURM engine", self._check_engine
        if self._submission is None:
            return
        answered: list[bool] = []
        for name, check in (
            ("SLURM programs", self._slurm.check_programs),
            ("SLURM version", self._slurm.version),
            ("SLURM controller", self._slurm.check_controller),
        ):
            yield name, _noting(check, answered)
        if len(answered) < 3:
            return
        yield "SLURM accounting", self._slurm.check_accounting
        yield "test job", self._run
        yield from self._findings()

    def _check_engine(self) -> str:
        """
        :raises ComponentError: if the settings would not give a training to SLURM
        """
        cluster = self._cluster
        arguments = f'[{cluster.num_nodes}, {cluster.num_gpus_per_node}, "{cluster.device}"]'
        answer = ask(
            # -P: not the folder itself, which sis does not look into either.
            [sys.executable, "-P", "-c", _SUBMISSION, arguments],
            cwd=self._setup,
            timeout_s=_ENGINE_LIMIT_S,
        )
        if answer["engine"] is not None and not answer["is_slurm"]:
            raise ComponentError(
                f"{answer['engine']} would run the trainings, and not SLURM, so there is no test job; let engine() in"
                " settings.py give them a SLURM engine (setups/slurm/settings.py is an example), and end it with"
                ' configure(globals(), engine="slurm") of syncopate.settings'
            )
        if answer["error"] is not None:
            raise ComponentError(answer["error"])
        self._submission = answer
        self._slurm = Slurm(gateway=answer["gateway"], environ=answer["environ"])
        return f"{answer['engine']} gets {cluster.num_nodes} nodes, {answer['cpus']:g} CPUs each, for the test job"

    def _run(self) -> str:
        assert self._submission is not None
        _say(f"a test job on {self._cluster} is submitted; it may take {self._limit_s:g} s, most of it in the queue")
        return run_test_job(
            self._seen,
            setup=self._setup,
            work_dir=self._setup / self._submission["work_dir"],
            slurm=self._slurm,
            cluster=self._cluster,
            python=os.path.abspath(shutil.which(self._python) or self._python),
            returnn_root=self._returnn_root and str(self._setup / self._returnn_root),
            limit_s=self._limit_s,
            say=_say,
        )

    def _findings(self) -> Iterator[tuple[str, Check]]:
        assert self._submission is not None
        seen = self._seen
        job = TestJob(
            cluster=self._cluster,
            cpus=int(self._submission["cpus"]),
            python=self._python,
            environ=os.environ,
            workers=tuple(seen.workers),
            ranks=tuple(seen.ranks),
        )
        if job.workers:
            yield "worker", job.check_worker
            yield "python on nodes", job.check_python
            if not any(worker.python_error for worker in job.workers):
                yield "syncopate on nodes", job.check_syncopate
        if not job.ranks:
            return
        yield "RETURNN on nodes", job.check_returnn
        yield "environment of ranks", job.check_environment
        yield "CPUs", job.check_cpus
        if self._cluster.device == "gpu":
            yield "GPUs", job.check_gpus
        yield "time left", job.check_time_left
        yield "rendezvous", job.check_rendezvous
        if any(rank.exchange is None for rank in job.ranks):
            return
        yield "shared folder", job.check_shared_folder
        if self._cluster.num_nodes > 1:
            yield "clocks", job.check_clocks
            yield "network", job.check_network


def no_settings(folder: Path) -> str:
    """
    :param folder: whose settings could not be loaded
    :raises ComponentError: always
    """
    raise ComponentError(
        f"there are no settings in {folder} that say how to use SLURM, see the line of settings.py above; start in the"
        " folder of your Sisyphus setup"
    )


def _noting(check: Check, passed: list[bool]) -> Check:
    def run() -> str | Note:
        found = check()
        passed.append(True)
        return found

    return run


def _say(text: str) -> None:
    print(f"syncopate: {text}", file=sys.stderr, flush=True)
