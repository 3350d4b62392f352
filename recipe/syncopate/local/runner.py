"""
Trains a sweep on this machine, one training after the other.

Each training has a folder as a Sisyphus job has one: ``output`` with config, checkpoints and learning rates, ``work``
where its ranks run. A folder's name ends in a digest of what is trained, so a changed declaration never meets old
checkpoints; started again, finished trainings are kept and an interrupted one goes on from its last checkpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncopate.errors import ConfigError, LaunchError, ReadError, SweepError
from syncopate.launch.components import check_training_python, probe_training_python
from syncopate.launch.kept import ENGINE
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training
from syncopate.local.produce import Store
from syncopate.local.progress import Progress
from syncopate.returnn_io.learning_rates import read_learning_rates
from syncopate.returnn_io.training_config import TrainingConfig
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED
from syncopate.returnn_io.write import LEARNING_RATE_FILE, config_text, run_options, write_text
from syncopate.sweep.checks import check_sequences
from syncopate.sweep.record import SWEEP_FILE, SweepRecord

if TYPE_CHECKING:
    from syncopate.sweep.run import Run
    from syncopate.sweep.sweep import Sweep

MIN_SLOTS = 4


def default_slots() -> int:
    """:return: ranks that may train at once: as many as cores, but at least 4, so that a laptop can emulate nodes"""
    return max(MIN_SLOTS, os.cpu_count() or 1)


def run_sweep(
    sweep: Sweep,
    *,
    out: Path,
    environ: Mapping[str, str],
    slots: int | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """
    :param sweep: checked
    :param out: folder of all local results
    :param environ: the environment ranks start from
    :param slots: ranks that may train at once, see :func:`default_slots`
    :param say: takes each line of progress
    :return: the sweep's folder, with ``sweep.json`` in it; a training that failed has its reason in its ``status.json``
    :raises SyncopateError: if nothing can be trained: a missing component, bad data, another run in this folder
    """
    slots = default_slots() if slots is None else slots
    for run in sweep.runs:
        _check_slots(sweep, run, slots)
        _check_config(run)
    python = sweep.python or sys.executable
    found = probe_training_python(python, returnn_root=sweep.returnn_root)
    for device in sorted({run.cluster.device for run in sweep.runs}):
        check_training_python(found, device=device)
    folder = (out / sweep.prefix).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(out.absolute() / "data")
    with _only_run(folder):
        record = _write_record(sweep, folder, store)
        runs = {(run.row, run.trial, run.seed): run for run in sweep.runs}
        for run in sweep.runs:
            statistics = getattr(run.config, "statistics", None)
            if statistics is not None:
                options = _resolved(run, store).config
                check_sequences(store.path(statistics), options, num_ranks=run.cluster.world_size)
        progress = Progress(record, base=folder, out=say)
        for index, planned in enumerate(record.runs):
            if planned.existing:
                continue
            run = runs[(planned.row, planned.trial, planned.seed)]
            directory = folder / planned.directory
            label = f"[{index + 1}/{len(record.runs)}] {run.name}"
            if _is_finished(directory, num_epochs=run.num_epochs):
                say(f"{label}: trained before, in {directory}")
                continue
            say(f"{label}: {planned.scheme_text}, {run.cluster}, {run.num_epochs} epochs")
            try:
                _train(run, directory, store, python=python, sweep=sweep, environ=environ, poll=progress.poll)
            except LaunchError as exc:
                say(f"{label}: failed: {exc}")
            progress.poll()
    return folder


def _check_slots(sweep: Sweep, run: Run, slots: int) -> None:
    where = f"Sweep {sweep.prefix!r}, row {run.row!r}"
    if run.cluster.world_size > slots:
        raise SweepError(
            f"{where}: {run.cluster} needs {run.cluster.world_size} ranks on this host, which takes {slots};"
            " use fewer ranks, or allow more with --slots"
        )
    wanted = run.cluster.world_size * sweep.resources.cpus
    if wanted > slots:
        raise SweepError(
            f"{where}: {run.cluster} with {sweep.resources.cpus} CPUs per rank asks for {wanted} CPUs on this host,"
            f" which takes {slots}; ask for less in Resources(cpus=...), or allow more with --slots"
        )


def _check_config(run: Run) -> None:
    if not isinstance(run.config, TrainingConfig):
        raise ConfigError(
            f"row {run.row!r}: without Sisyphus a sweep needs its base as a TrainingConfig or a dict,"
            f" got {type(run.config).__name__}; use `python -m syncopate manage`, or `sis manager`"
        )


def _write_record(sweep: Sweep, folder: Path, store: Store) -> SweepRecord:
    references = getattr(sweep.base, "references", None)
    path = os.path.relpath(store.path(references), folder) if references else None
    record = sweep.record(lambda run: (f"{run.name}.{run.identity[:8]}", None), references=path)
    write_text(folder / SWEEP_FILE, record.to_json())
    return record


def _resolved(run: Run, store: Store) -> TrainingConfig:
    assert isinstance(run.config, TrainingConfig)
    return run.config.resolved(lambda wanted: str(store.path(wanted)))


def _train(
    run: Run,
    directory: Path,
    store: Store,
    *,
    python: str,
    sweep: Sweep,
    environ: Mapping[str, str],
    poll: Callable[[], None],
) -> None:
    work, output = directory / "work", directory / "output"
    for folder in (work, output / "models"):
        folder.mkdir(parents=True, exist_ok=True)
    config = run_options(
        _resolved(run, store),
        device=run.cluster.device,
        num_epochs=run.num_epochs,
        model=str(output / "models" / "epoch"),
    )
    config_file = output / "returnn.config"
    write_text(config_file, config_text(config))
    with _status(directory):
        training = Training(
            config_file=config_file,
            run_dir=directory,
            work_dir=work,
            cluster=run.cluster,
            python=python,
            returnn_root=Path(sweep.returnn_root) if sweep.returnn_root else None,
            distributed=config.config.get(TORCH_DISTRIBUTED) is not None,
            echo=False,
        )
        run_training(training, environ={**environ, ENGINE: "local"}, hooks=Hooks(on_poll=poll))
        rates = output / "learning_rates"
        write_text(rates, (work / LEARNING_RATE_FILE).read_text(encoding="utf-8"))


def _is_finished(directory: Path, *, num_epochs: int) -> bool:
    path = directory / "status.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))["state"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError) as exc:
        raise ReadError(f"{path}: is no status of a local run ({exc!r}); remove it to train again") from exc
    rates = directory / "output" / "learning_rates"
    return state == "finished" and rates.is_file() and _last_epoch(rates) >= num_epochs


def _last_epoch(rates: Path) -> int:
    last = read_learning_rates(rates).last_complete
    return last.epoch if last else 0


@contextmanager
def _status(directory: Path) -> Iterator[None]:
    """Keeps ``status.json`` true: running while the block runs, then finished, or failed with the reason."""
    status: dict[str, Any] = {
        "state": "running",
        "reason": None,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": _now(),
        "ended": None,
    }
    path = directory / "status.json"
    write_text(path, json.dumps(status))
    try:
        yield
    except Exception as exc:
        # An interrupt is no failure: the status says "running" of a process that is gone, and the next start goes on.
        reason = str(exc) or type(exc).__name__
        write_text(path, json.dumps({**status, "state": "failed", "reason": reason, "ended": _now()}))
        raise
    write_text(path, json.dumps({**status, "state": "finished", "ended": _now()}))


@contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SweepError(f"{folder}: another process trains this sweep; wait for it, or use another --out") from exc
        yield


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
