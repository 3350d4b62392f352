"""Puts a sweep into Sisyphus' graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sisyphus.global_settings as gs
from sisyphus import tk

from syncopate.compare.tables import live_text
from syncopate.errors import SweepError
from syncopate.jobs.collect import CollectJob
from syncopate.jobs.config import as_returnn_config, job_argument
from syncopate.jobs.produce import ProduceJob
from syncopate.jobs.table import TableJob
from syncopate.jobs.training import SyncTrainingJob, claim, python_path
from syncopate.launch.components import check_training_python, probe_training_python
from syncopate.returnn_io.training_config import ProducedFile
from syncopate.sweep.checks import check_apart
from syncopate.sweep.record import SWEEP_FILE, TABLE_DIRECTORY, SweepRecord

if TYPE_CHECKING:
    from syncopate.sweep.run import Run
    from syncopate.sweep.sweep import Sweep

LIVE_TABLE = "live.txt"
UPDATE_EVERY_S = 10

_registered: list[Sweep] = []
"""The sweeps of this process, whose results must not land in one place."""


def register(sweep: Sweep) -> None:
    """
    :param sweep: checked
    :raises SyncopateError: if the training python lacks something, or the local engine is too small
    """
    check_apart(sweep, _registered)
    _registered.append(sweep)
    files = _Files()
    jobs = [_training(sweep, run, files) for run in sweep.runs]
    _check_training_python(jobs)
    _check_local_engine(sweep, jobs)
    base: Any = sweep.base
    references = files.path(base.references) if getattr(base, "references", None) else None
    results = []
    for run, job in zip(sweep.runs, jobs, strict=True):
        job.add_alias(f"{sweep.prefix}/{run.name}")
        collect = CollectJob(
            learning_rates=job.out_learning_rates,
            record=asdict(run.record(directory="", job_id=job.job_id())),
            score=sweep.score,
            lower_is_better=sweep.lower_is_better,
        )
        tk.register_output(f"{sweep.prefix}/{run.name}/results.json", collect.out_results)
        results.append(collect.out_results)
    declared = sweep.record((), references=None)
    table = TableJob(results=results, sweep=asdict(declared), references=references)
    table.add_alias(f"{sweep.prefix}/{TABLE_DIRECTORY}")
    tk.register_output(f"{sweep.prefix}/{TABLE_DIRECTORY}", table.out_directory)

    def live() -> SweepRecord:
        return _live_record(sweep, jobs, references)

    _report(f"{sweep.prefix}/{SWEEP_FILE}", lambda: live().to_json(), until=table.out_directory)
    _report(f"{sweep.prefix}/{LIVE_TABLE}", lambda: live_text(live(), base=Path.cwd()), until=table.out_directory)


class _Files:
    """Produced files as outputs of their jobs. Sisyphus would hash the arguments anew each time one is named."""

    def __init__(self) -> None:
        self._paths: dict[Any, tk.Path] = {}

    def path(self, wanted: ProducedFile) -> tk.Path:
        key = (wanted.source, wanted.name)
        if key not in self._paths:
            self._paths[key] = ProduceJob.file(wanted)
        return self._paths[key]


def _training(sweep: Sweep, run: Run, files: _Files) -> SyncTrainingJob:
    statistics = getattr(run.config, "statistics", None)
    job = SyncTrainingJob(
        as_returnn_config(run.config, path_of=files.path),
        cluster=run.cluster,
        num_epochs=run.num_epochs,
        log_verbosity=job_argument(run.config, "log_verbosity"),
        save_interval=job_argument(run.config, "save_interval"),
        time_rqmt=sweep.resources.time_h,
        mem_rqmt=sweep.resources.mem_gb,
        cpu_rqmt=sweep.resources.cpus,
        returnn_python_exe=python_path(sweep.python),
        returnn_root=tk.Path(sweep.returnn_root) if sweep.returnn_root else None,
        statistics=files.path(statistics) if statistics else None,
    )
    claim(job, num_epochs=run.num_epochs, wanted_by=f"sweep {sweep.prefix!r}, row {run.row!r}")
    return job


def _live_record(sweep: Sweep, jobs: list[SyncTrainingJob], references: tk.Path | None) -> SweepRecord:
    runs = [
        run.record(directory=os.path.abspath(job._sis_path()), job_id=job.job_id())
        for run, job in zip(sweep.runs, jobs, strict=True)
    ]
    path = os.path.abspath(references.get_path()) if references else None
    return replace(sweep.record((), references=None), runs=tuple(runs), references=path)


def _report(name: str, text: Callable[[], str], *, until: tk.Path) -> None:
    # A report that requires nothing counts as done and is never written again; the table is the last to be finished.
    tk.register_report(name, text, required=[until], update_frequency=UPDATE_EVERY_S)


def _check_training_python(jobs: list[SyncTrainingJob]) -> None:
    for python, root, device in sorted(
        {
            (
                job.returnn_python_exe.get_path(),
                job.returnn_root.get_path() if job.returnn_root else None,
                job.cluster.device,
            )
            for job in jobs
        },
        key=str,
    ):
        check_training_python(probe_training_python(python, returnn_root=root), device=device)


def _check_local_engine(sweep: Sweep, jobs: list[SyncTrainingJob]) -> None:
    limits: dict[str, float] | None = getattr(gs, "SYNCOPATE_LOCAL_ENGINE", None)
    if limits is None:
        return
    for run, job in zip(sweep.runs, jobs, strict=True):
        for key, limit in limits.items():
            wanted = job.rqmt.get(key, 0) * run.cluster.num_nodes
            if wanted > limit:
                raise SweepError(
                    f"Sweep {sweep.prefix!r}, row {run.row!r}: {run.cluster} asks for {wanted:g} of {key!r} on this"
                    f" host, but the local engine has {limit:g} and the training would wait for ever; use fewer ranks,"
                    f" ask for less per rank in Resources(...), or give the engine more in setups/local/settings.py"
                )
