"""Puts a sweep into Sisyphus' graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sisyphus import tk

from syncopate.compare.tables import live_text
from syncopate.errors import SweepError
from syncopate.jobs.adapt import adapt, checkout
from syncopate.jobs.collect import CollectJob, without_paths
from syncopate.jobs.config import as_returnn_config, job_argument
from syncopate.jobs.engine import check_engine
from syncopate.jobs.produce import ProduceJob
from syncopate.jobs.table import TableJob
from syncopate.jobs.training import SyncTrainingJob, claim, python_path
from syncopate.launch.components import check_training_python, probe_training_python
from syncopate.returnn_io.learning_rates import read_learning_rates
from syncopate.returnn_io.training_config import ProducedFile
from syncopate.sweep.checks import check_apart
from syncopate.sweep.existing import Existing
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
    jobs = {run.name: training_job(sweep, run) for run in sweep.runs}
    _check_training_python(sweep, jobs)
    check_engine(list(jobs.values()), names=[_where(sweep, run) for run in sweep.runs])
    base: Any = sweep.base
    references = _files.path(base.references) if getattr(base, "references", None) else None
    results = []
    for run in sweep.runs:
        job = jobs[run.name]
        job.add_alias(f"{sweep.prefix}/{run.name}")
        record = run.record(directory="", job_id=job.job_id(), user_scores=sweep.user_scores(run))
        collect = CollectJob(
            learning_rates=job.out_learning_rates,
            record=without_paths(record.as_dict()),
            score=sweep.score,
            lower_is_better=sweep.lower_is_better,
            user_scores=variables(sweep.score_values(run)),
        )
        tk.register_output(f"{sweep.prefix}/{run.name}/results.json", collect.out_results)
        results.append(collect.out_results)

    def live() -> SweepRecord:
        path = os.path.abspath(references.get_path()) if references else None
        return sweep.record(lambda run: _place(jobs[run.name]), references=path)

    table = TableJob(
        results=results,
        existing=[without_paths(record.as_dict()) for record in live().runs if record.existing],
        user_scores={
            entry.row: variables(sweep.score_values(entry)) for entry in sweep.entries if isinstance(entry, Existing)
        },
        sweep={**asdict(live()), "runs": [], "references": None},
        rows=[entry.row for entry in sweep.entries],
        references=references,
    )
    table.add_alias(f"{sweep.prefix}/{TABLE_DIRECTORY}")
    tk.register_output(f"{sweep.prefix}/{TABLE_DIRECTORY}", table.out_directory)
    _report(f"{sweep.prefix}/{SWEEP_FILE}", lambda: live().to_json(), until=table.out_directory)
    _report(f"{sweep.prefix}/{LIVE_TABLE}", lambda: live_text(live(), base=Path.cwd()), until=table.out_directory)


def training_job(sweep: Sweep, run: Run) -> Any:
    """
    :param sweep: it belongs to
    :param run: what is to be trained
    :return: its job: the one that the user's helper made, adapted, or one of ours
    :raises DeclarationError: if the job cannot be what was declared
    """
    where = _where(sweep, run)
    if run.job is not None:
        adapt(run.job, run.cluster, where=where)
        job = run.job
    else:
        job = _made_job(sweep, run)
    claim(job, num_epochs=run.num_epochs, wanted_by=where)
    _check_not_finished_short(job, run, where=where)
    return job


def _check_not_finished_short(job: Any, run: Run, *, where: str) -> None:
    """The number of epochs is in no id, so that a finished job may be asked for more of them: it would not be run."""
    path = Path(job.out_learning_rates.get_path())
    if not path.is_file():
        return
    trained = read_learning_rates(path).trained
    done = trained[-1].epoch if trained else 0
    if done < run.num_epochs:
        raise SweepError(
            f"{where}: its job {job.job_id()} is finished with {done} epochs, {run.num_epochs} are asked for, and"
            f" Sisyphus never runs a finished job again. Ask for {done}; or, to train on from its last checkpoint, in"
            f" {os.path.abspath(path.parent.parent)}: unpack finished.tar.gz if it is there and remove it,"
            f" mkdir -p work, mv output/{path.name} work/{path.name}, and remove finished and finished.*.1"
        )


def _where(sweep: Sweep, run: Run) -> str:
    return f"sweep {sweep.prefix!r}, row {run.row!r}"


def variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """:return: the values that a job has to wait for; numbers are in the records"""
    return {name: value for name, value in values.items() if hasattr(value, "get_path")}


def _place(job: Any) -> tuple[str, str]:
    return os.path.abspath(job._sis_path()), job.job_id()


class _Files:
    """Produced files as outputs of their jobs. Sisyphus would hash the arguments anew each time one is named."""

    def __init__(self) -> None:
        self._paths: dict[Any, tk.Path] = {}

    def path(self, wanted: ProducedFile) -> tk.Path:
        key = (wanted.source, wanted.name)
        if key not in self._paths:
            self._paths[key] = ProduceJob.file(wanted)
        return self._paths[key]


_files = _Files()


def _made_job(sweep: Sweep, run: Run) -> SyncTrainingJob:
    statistics = getattr(run.config, "statistics", None)
    return SyncTrainingJob(
        as_returnn_config(run.config, path_of=_files.path),
        cluster=run.cluster,
        num_epochs=run.num_epochs,
        log_verbosity=job_argument(run.config, "log_verbosity"),
        save_interval=job_argument(run.config, "save_interval"),
        time_rqmt=sweep.resources.time_h,
        mem_rqmt=sweep.resources.mem_gb,
        cpu_rqmt=sweep.resources.cpus,
        gpu_mem_rqmt=sweep.resources.gpu_mem_gb,
        returnn_python_exe=python_path(sweep.python),
        returnn_root=tk.Path(sweep.returnn_root) if sweep.returnn_root else None,
        statistics=_files.path(statistics) if statistics else None,
    )


def _report(name: str, text: Callable[[], str], *, until: tk.Path) -> None:
    # A report that requires nothing counts as done and is never written again; the table is the last to be finished.
    tk.register_report(name, text, required=[until], update_frequency=UPDATE_EVERY_S)


def _check_training_python(sweep: Sweep, jobs: Mapping[str, Any]) -> None:
    asked = {}
    for run in sweep.runs:
        job = jobs[run.name]
        python, root = job.returnn_python_exe, job.returnn_root
        # What a job of the graph makes is not there yet: then the rank looks, in its first second.
        if python.creator is None and (root is None or root.creator is None):
            asked[(python.get_path(), checkout(root.get_path()) if root else None, run.cluster.device)] = run
    for python_exe, returnn_root, device in asked:
        check_training_python(probe_training_python(python_exe, returnn_root=returnn_root), device=device)
