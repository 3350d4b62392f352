"""The local runner on real trainings of two processes, and what RETURNN does with the options that are written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from syncopate import Cluster, ProducedFile, Sweep, TrainingConfig, ddp, param_avg
from syncopate.compare.tables import live_text, measure_all
from syncopate.errors import ConfigError, SweepError
from syncopate.local.runner import run_sweep
from syncopate.returnn_io.learning_rates import read_learning_rates
from syncopate.sweep.record import SweepRecord
from tests.local.small_task import write_lines

REPOSITORY = Path(__file__).resolve().parents[2]
NODES = Cluster(num_nodes=2, num_gpus_per_node=1, device="cpu")
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def config(**kwargs):
    def file(name):
        return ProducedFile(make=write_lines, name=name, kwargs=kwargs)

    def data(name, order):
        return {
            "class": "LmDataset",
            "corpus_file": file(name),
            "orth_symbols_file": file("symbols.txt"),
            "seq_end_symbol": None,
            "seq_ordering": order,
        }

    return TrainingConfig(
        config={
            "backend": "torch",
            "behavior_version": 31,
            "train": data("train.txt", "random"),
            "dev": data("dev.txt", "default"),
            "extern_data": {"data": {"dim": 10, "sparse": True}},
            "batch_size": 10_000,
            "max_seqs": 2,
            "optimizer": {"class": "adam"},
            "learning_rate": 0.01,
        },
        imports=("from tests.local.small_task import get_model, train_step",),
        python_path=(str(REPOSITORY),),
        reports=("dev_loss_ce",),
        statistics=file("statistics.json"),
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One sweep whose rows are the cases; K21's plain baseline among them, which fails."""
    out = tmp_path_factory.mktemp("runs")
    sweep = Sweep(
        "cases",
        base=config(),
        cluster=NODES,
        num_epochs=2,
        baseline="ddp sharded",
        same_budget=False,
        python=sys.executable,
    )
    shard = {"dataset_distribution": "shard"}
    sweep.torch_distributed = shard
    sweep.add("ddp sharded", ddp())
    sweep.add("ddp plain", ddp(buffers=None))
    sweep.torch_distributed = {}
    sweep.add("psync100", param_avg(every=100))
    sweep.add("single", None, cluster=Cluster(device="cpu"))
    sweep.check()
    lines = []
    folder = run_sweep(sweep, out=out, environ=ENVIRON, say=lines.append)
    record = SweepRecord.read(folder / "sweep.json")
    measured = {one.run.row: one for one in measure_all(record, base=folder)}
    return {"sweep": sweep, "folder": folder, "record": record, "measured": measured, "lines": lines, "out": out}


def steps(trained, row):
    one = trained["measured"][row]
    rates = read_learning_rates(trained["folder"] / one.run.directory / "output" / "learning_rates")
    return [epoch.num_train_steps for epoch in rates.complete]


def text_of_config(trained, row):
    one = trained["measured"][row]
    return (trained["folder"] / one.run.directory / "output" / "returnn.config").read_text(encoding="utf-8")


def test_k02_each_option_acts_as_the_steps_show(trained):
    """26 micro-batches of 2 sequences: all of them on each rank, or half of them where the ranks share the data."""
    assert steps(trained, "single") == [26, 26]
    assert steps(trained, "psync100") == [26, 26]
    assert steps(trained, "ddp sharded") == [13, 13]


def test_k05_a_cpu_training_says_gloo_and_cpu(trained):
    text = text_of_config(trained, "psync100")
    assert "'backend': 'gloo'" in text
    assert "device = 'cpu'" in text
    assert "use_horovod" not in text
    assert "torch_distributed" not in text_of_config(trained, "single")


def test_k20_a_period_longer_than_an_epoch_is_warned_about(trained):
    one = trained["measured"]["psync100"]
    (level,) = one.syncs
    assert (level.every, level.planned, level.observed) == (100, 0, 0)
    assert any("100 updates" in warning and "26 updates" in warning for warning in one.warnings), one.warnings


def test_k21_ddp_with_batch_norm_trains_where_the_plain_baseline_aborts(trained):
    assert trained["measured"]["ddp sharded"].state == "finished"
    assert trained["measured"]["ddp sharded"].world_size_seen == 2
    plain = trained["measured"]["ddp plain"]
    assert plain.state == "failed"
    assert plain.reason is not None
    assert "rank" in plain.reason


def test_the_other_rows_are_trained_although_one_failed(trained):
    assert {row: one.state for row, one in trained["measured"].items()} == {
        "ddp sharded": "finished",
        "ddp plain": "failed",
        "psync100": "finished",
        "single": "finished",
    }
    assert all(one.best.value < 2.3 for one in trained["measured"].values() if one.state == "finished")
    text = live_text(trained["record"], base=trained["folder"])
    assert all(row in text for row in trained["measured"])
    assert any(line.startswith("[3/4] psync100: epoch 2/2, dev_loss_ce ") for line in trained["lines"]), trained[
        "lines"
    ]


def test_started_again_what_is_finished_is_kept(trained):
    """The failed row is tried again and fails again; the others are not touched."""
    before = {
        row: (trained["folder"] / one.run.directory / "output" / "learning_rates").stat().st_mtime_ns
        for row, one in trained["measured"].items()
        if one.state == "finished"
    }
    sweep = Sweep("cases", base=config(), cluster=NODES, num_epochs=2, same_budget=False, python=sys.executable)
    sweep.torch_distributed = {"dataset_distribution": "shard"}
    sweep.add("ddp sharded", ddp())
    sweep.torch_distributed = {}
    sweep.add("psync100", param_avg(every=100))
    lines = []
    run_sweep(sweep, out=trained["out"], environ=ENVIRON, say=lines.append)
    assert [line.split(", in ")[0] for line in lines] == [
        "[1/2] ddp sharded: trained before",
        "[2/2] psync100: trained before",
    ]
    for row in ("ddp sharded", "psync100"):
        directory = trained["folder"] / trained["measured"][row].run.directory
        assert (directory / "output" / "learning_rates").stat().st_mtime_ns == before[row]


def test_more_epochs_continue_a_training(trained):
    """num_epochs is no part of what is trained: the third epoch starts from the second's checkpoint."""
    sweep = Sweep("cases", base=config(), cluster=NODES, num_epochs=3, python=sys.executable)
    sweep.add("single", None, cluster=Cluster(device="cpu"))
    folder = run_sweep(sweep, out=trained["out"], environ=ENVIRON, say=lambda line: None)
    (one,) = measure_all(SweepRecord.read(folder / "sweep.json"), base=folder)
    assert one.run.directory == trained["measured"]["single"].run.directory
    assert [epoch.epoch for epoch in one.epochs] == [1, 2, 3]
    old = trained["measured"]["single"].epochs
    assert [epoch.scores for epoch in one.epochs[:2]] == [epoch.scores for epoch in old]


def test_more_ranks_than_sequences_are_refused_before_anything_is_trained(tmp_path):
    sweep = Sweep(
        "few",
        base=config(num_sequences=3),
        cluster=Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"),
        num_epochs=1,
        torch_distributed={"dataset_distribution": "shard"},
        python=sys.executable,
    )
    sweep.add("ddp", ddp())
    with pytest.raises(ConfigError) as caught:
        run_sweep(sweep, out=tmp_path, environ=ENVIRON, say=lambda line: None)
    assert str(caught.value) == (
        "the train data has 3 sequences, but it is to be split into 4 parts (4 ranks, partition_epoch 1), so that some"
        " ranks would have nothing to train on; use at most 3 parts, or more data"
    )
    assert not list(tmp_path.rglob("returnn.config"))


def test_two_runs_in_one_folder_are_refused(tmp_path):
    import fcntl

    sweep = Sweep("held", base=config(), cluster=NODES, num_epochs=1, python=sys.executable)
    sweep.add("ddp", ddp())
    (tmp_path / "held").mkdir()
    with open(tmp_path / "held" / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SweepError, match="another process trains this sweep; wait for it, or use another --out"):
            run_sweep(sweep, out=tmp_path, environ=ENVIRON, say=lambda line: None)


def test_the_status_of_a_failed_training_names_the_reason(trained):
    directory = trained["folder"] / trained["measured"]["ddp plain"].run.directory
    status = json.loads((directory / "status.json").read_text(encoding="utf-8"))
    assert status["state"] == "failed"
    assert status["reason"]
    assert status["ended"] >= status["started"]
