"""Folders of trainings as RETURNN, Sisyphus and the local runner leave them, for the tests of this package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncopate.compare.measurement import EpochResult, EpochValue, Measurement
from syncopate.sweep.record import NOT_RECORDED, SWEEP_FILE, LevelRecord, RunRecord, SweepRecord

AVERAGE_100 = LevelRecord(group="all ranks", kind="parameters", every=100)
GRADIENTS = LevelRecord(group="all ranks", kind="gradients", every=1)

RUN = RunRecord(
    row="psync100",
    trial=0,
    seed=None,
    options={},
    scheme={"levels": [{"group": "world", "every": 100}]},
    scheme_text="parameters of all ranks every 100 updates",
    levels=(AVERAGE_100,),
    epoch_end="average",
    num_nodes=2,
    num_ranks=4,
    device="cpu",
    num_epochs=3,
    data_passes=3.0,
    dataset_distribution="shard",
    accum_grad=2,
    max_seqs=8,
    directory="psync100",
)
"""A training of 4 ranks on 2 nodes, 3 epochs."""


def run_record(**changes: Any) -> RunRecord:
    """:return: :data:`RUN` with changes; the folder is named like row, trial and seed if those change"""
    run = replace(RUN, **changes)
    if "directory" in changes:
        return run
    parts = [run.row] + ([f"trial{run.trial}"] if run.trial else []) + ([f"seed{run.seed}"] if run.seed else [])
    return replace(run, directory="-".join(parts))


def existing_record(**changes: Any) -> RunRecord:
    """:return: a training that was there before, of which nothing is recorded but its folder"""
    unknown: dict[str, Any] = {
        "row": "base",
        "scheme": None,
        "scheme_text": NOT_RECORDED,
        "levels": (),
        "existing": True,
        **dict.fromkeys(("epoch_end", "num_nodes", "num_ranks", "device", "num_epochs", "data_passes")),
        **dict.fromkeys(("dataset_distribution", "accum_grad", "max_seqs")),
    }
    return run_record(**{**unknown, **changes})


def sweep_record(*runs: RunRecord, **changes: Any) -> SweepRecord:
    """:return: a sweep of these runs, compared by dev_loss_ce"""
    values: dict[str, Any] = {
        "prefix": "demo/sync",
        "score": "dev_loss_ce",
        "lower_is_better": True,
        "baseline": None,
        "target": None,
        "same_budget": True,
        "references": None,
        "runs": runs,
    }
    return SweepRecord(**{**values, **changes})


def epoch(
    scores: Mapping[str, float], *, steps: int | None = 500, time_s: int | None = 30, ranks: int | None = 4
) -> dict[str, Any]:
    """:return: scores and notes of one epoch, as RETURNN keeps them"""
    meta: dict[str, Any] = {}
    if ranks is not None:
        context = f"<DistributedContext size={ranks} reduce_type=param>" if ranks > 1 else None
        meta[":meta:distributed"] = context
    if steps is not None:
        meta[":meta:epoch_num_train_steps"] = steps
    if time_s is not None:
        meta[":meta:epoch_train_time_secs"] = time_s
    return {**meta, **scores}


def dev(value: float, **options: Any) -> dict[str, Any]:
    """:return: an epoch with train and dev loss"""
    return epoch({"train_loss_ce": value + 0.5, "dev_loss_ce": value}, **options)


def learning_rates(epochs: Sequence[Mapping[str, Any]], *, learning_rate: float = 0.01) -> str:
    """:return: text of RETURNN's learning-rate file"""
    lines = ["{"]
    for number, values in enumerate(epochs, start=1):
        lines.append(f"{number}: EpochData(learningRate={learning_rate}, error={{")
        lines += [f"{key!r}: {value!r}," for key, value in values.items()]
        lines.append("}),")
    return "\n".join([*lines, "}", ""])


def write(path: Path, text: str = "") -> Path:
    """:return: the file, written with its folders"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_sweep(folder: Path, sweep: SweepRecord) -> Path:
    """:return: its sweep.json"""
    return write(folder / SWEEP_FILE, sweep.to_json())


def status(directory: Path, state: str, **values: Any) -> None:
    """Writes the status of a local run."""
    plain = {"state": state, "reason": None, "pid": 1, "host": "h", "started": "2025-01-01", "ended": None, **values}
    write(directory / "status.json", json.dumps(plain))


def local_run(directory: Path, epochs: Sequence[Mapping[str, Any]], state: str = "finished", **values: Any) -> None:
    """Writes the folder of a local run, in ``work`` while it is not finished."""
    status(directory, state, **values)
    if epochs:
        write(directory / ("output" if state == "finished" else "work") / "learning_rates", learning_rates(epochs))


def sisyphus_job(directory: Path, epochs: Sequence[Mapping[str, Any]] = (), *, log: str | None = "") -> None:
    """Writes the folder of a Sisyphus job that was set up, and started if there is a log."""
    for name in ("job.save", "info", "log.create_files.1", "finished.create_files.1"):
        write(directory / name)
    for name in ("work", "output", "input"):
        (directory / name).mkdir()
    if log is not None:
        write(directory / "log.run.1", log)
    if epochs:
        write(directory / "work" / "learning_rates", learning_rates(epochs))


def finish(directory: Path) -> None:
    """What the job does at its end, and Sisyphus after it."""
    (directory / "output" / "learning_rates").hardlink_to(directory / "work" / "learning_rates")
    for name in ("finished.run.1", "finished.plot.1", "finished"):
        write(directory / name)


def clean(directory: Path) -> None:
    """What Sisyphus' cleaner does with a finished job: ``work`` is deleted, everything but the output is packed."""
    subprocess.run(["rm", "-r", "work"], cwd=directory, check=True)
    names = [path.name for path in directory.iterdir() if path.name not in ("output", "info", "input")]
    subprocess.run(["tar", "-czf", "finished.tar.gz", *names], cwd=directory, check=True)
    subprocess.run(["rm", "-r", *names], cwd=directory, check=True)


def measured(run: RunRecord, values: Sequence[float], state: str = "finished", **changes: Any) -> Measurement:
    """:return: a training with these dev losses, 250 updates and 30 s per epoch"""
    epochs = tuple(
        EpochResult(
            epoch=number,
            learning_rate=0.01,
            scores={"train_loss_ce": value + 0.5, "dev_loss_ce": value},
            train_steps=500,
            train_time_s=30.0,
        )
        for number, value in enumerate(values, start=1)
    )
    best = min(epochs, key=lambda item: item.scores["dev_loss_ce"], default=None)
    values_by_field: dict[str, Any] = {
        "epochs_done": len(epochs),
        "epochs": epochs,
        "best": EpochValue(epoch=best.epoch, value=best.scores["dev_loss_ce"]) if best else None,
        "last": EpochValue(epoch=len(epochs), value=values[-1]) if epochs else None,
        "updates": 250 * len(epochs) if epochs else None,
        "samples_upper_bound": 16000 * len(epochs) if epochs else None,
        "train_time_s": 30.0 * len(epochs) if epochs else None,
    }
    found = Measurement(run=run, score="dev_loss_ce", lower_is_better=True, state=state)
    return replace(found, **{**values_by_field, **changes})
