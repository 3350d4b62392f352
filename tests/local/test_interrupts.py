"""What is left when a local run is stopped, and what it refuses before it starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from syncopate import Cluster, ProducedFile, Resources, Sweep, param_avg
from syncopate.compare.measurement import measure
from syncopate.errors import LaunchError, ReadError, SweepError
from syncopate.local.produce import Store
from syncopate.local.runner import _is_finished, _status, run_sweep
from syncopate.sweep.record import RunRecord
from tests.local.small_task import write_lines


def status_of(directory):
    return json.loads((directory / "status.json").read_text(encoding="utf-8"))


def test_an_interrupt_is_no_failure(tmp_path):
    """Its score still counts as far as it came: the row is partial, not failed."""
    with pytest.raises(KeyboardInterrupt), _status(tmp_path):
        raise KeyboardInterrupt
    status = status_of(tmp_path)
    assert status["state"] == "running"
    (tmp_path / "status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}), encoding="utf-8")
    run = Sweep("s", base={"backend": "torch", "dev": {}}, num_epochs=3, score="dev_loss_ce", cluster=Cluster()).add(
        "psync", param_avg(every=2)
    )
    record: RunRecord = run.runs[0].record(directory=".")
    rates = "{1: EpochData(learningRate=0.1, error={'dev_loss_ce': 2.0, 'train_loss_ce': 2.5})}"
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "learning_rates").write_text(rates, encoding="utf-8")
    found = measure(record, base=tmp_path, score="dev_loss_ce", lower_is_better=True)
    assert (found.state, found.epochs_done, found.best.value) == ("partial", 1, 2.0)


def test_a_failure_is_kept_with_its_reason(tmp_path):
    with pytest.raises(LaunchError), _status(tmp_path):
        raise LaunchError("rank 3 is gone")
    assert (status_of(tmp_path)["state"], status_of(tmp_path)["reason"]) == ("failed", "rank 3 is gone")


def test_a_status_that_is_none_is_named(tmp_path):
    (tmp_path / "status.json").write_text("{", encoding="utf-8")
    with pytest.raises(ReadError, match="is no status of a local run"):
        _is_finished(tmp_path, num_epochs=1)


def test_more_cpus_than_the_host_takes_are_refused(tmp_path):
    sweep = Sweep(
        "s",
        base={"backend": "torch", "dev": {}},
        num_epochs=1,
        score="dev_loss_ce",
        cluster=Cluster(num_nodes=2, num_gpus_per_node=1, device="cpu"),
        resources=Resources(cpus=50),
        python=sys.executable,
    )
    sweep.add("psync", param_avg(every=2))
    with pytest.raises(SweepError) as caught:
        run_sweep(sweep, out=tmp_path, environ=os.environ, slots=4, say=lambda line: None)
    assert str(caught.value) == (
        "Sweep 's', row 'psync': 2x1 cpu with 50 CPUs per rank asks for 100 CPUs on this host, which takes 4; ask for"
        " less in Resources(cpus=...), or allow more with --slots"
    )
    assert not list(tmp_path.iterdir())


def test_files_are_made_once_also_if_another_run_was_faster(tmp_path, monkeypatch):
    wanted = ProducedFile(make=write_lines, name="train.txt")
    store = Store(tmp_path)
    path = store.path(wanted)
    made = path.stat().st_mtime_ns
    really = Path.is_dir
    first_look = iter([False])  # the other run had not ended yet
    monkeypatch.setattr(Path, "is_dir", lambda self: next(first_look, really(self)))
    assert Store(tmp_path).path(wanted).stat().st_mtime_ns == made
