"""The real RETURNN under the real torchrun: a tiny training, on two emulated nodes and alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.rank_record import read_records
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training
from tests.launch.trainings import records_now, running, wait_until_gone
from tests.returnn_wheels import returnn_checkout

CONFIG = """\
#!rnn.py
backend = "torch"
task = "train"
device = "cpu"
num_epochs = 1
batch_size = 100
max_seqs = 4
optimizer = {{"class": "sgd"}}
learning_rate = 0.01
learning_rate_file = "learning_rates"
behavior_version = 24
log = ["./returnn.log"]
log_verbosity = 4
model = "net/model"
extern_data = {{"data": {{"dim": 5}}, "classes": {{"dim": 3, "sparse": True}}}}
train = {train}
torch_distributed = {torch_distributed}


def get_model(**_kwargs):
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(5, 3)

    return Model()


def train_step(*, model, extern_data, **_kwargs):
    import time
    import torch
    import returnn.frontend as rf

    time.sleep({step_s})
    logits = model.linear(extern_data["data"].raw_tensor)
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), extern_data["classes"].raw_tensor.long())
    rf.get_run_ctx().mark_as_loss(name="ce", loss=rf.convert_to_tensor(loss))
"""
DUMMY = {"class": "DummyDataset", "input_dim": 5, "output_dim": 3, "num_seqs": 24, "seq_len": 6}
MULTI_PROC = {"class": "MultiProcDataset", "dataset": DUMMY, "num_workers": 2, "buffer_size": 2}
PARAM_SYNC = {"backend": "gloo", "reduce_type": "param", "param_sync_step": 2}


def train(folder: Path, cluster: Cluster, *, step_s: float = 0.0, returnn_root: Path | None = None, **options) -> None:
    arguments = {"train": DUMMY, "torch_distributed": None, "step_s": step_s}
    on_poll = options.pop("on_poll", None)
    config = folder / "tiny.config"
    config.write_text(CONFIG.format(**{**arguments, **options}))
    training = Training(
        config_file=config,
        run_dir=folder / "run",
        work_dir=folder / "work",
        cluster=cluster,
        python=sys.executable,
        returnn_root=returnn_root,
        distributed=options.get("torch_distributed") is not None,
    )
    run_training(training, environ={**os.environ, "SYNCOPATE_ENGINE": "local"}, hooks=Hooks(on_poll=on_poll))


def test_k12_installed_returnn_trains_on_two_nodes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """K12, K09: the wheel has no ``rnn.py``. With RETURNN's default data worker."""
    train(tmp_path, Cluster(num_nodes=2, device="cpu"), torch_distributed=PARAM_SYNC)
    assert sorted(path.name for path in (tmp_path / "work" / "net").glob("model.*.pt")) == [
        "model.001.opt.pt",
        "model.001.pt",
    ]
    rates = (tmp_path / "work" / "learning_rates").read_text()
    assert "':meta:distributed': '<DistributedContext size=2 reduce_type=param>'" in rates
    output = capfd.readouterr().out
    for rank in (0, 1):
        assert f"[rank {rank}] Finished training at epoch 1" in output
    (attempt,) = (tmp_path / "run" / "logs").iterdir()
    assert [r.outcome.kind for r in read_records(attempt / "ranks") if r.outcome] == ["finished", "finished"]


def test_k12_checkout_trains_through_its_rnn_py(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    """K12"""
    root = returnn_checkout(tmp_path_factory.getbasetemp())
    train(tmp_path, Cluster(device="cpu"), returnn_root=root)
    assert (tmp_path / "work" / "net" / "model.001.pt").exists()
    assert "Finished training at epoch 1" in capfd.readouterr().out


def test_k14_data_workers_do_not_outlive_a_killed_rank(tmp_path: Path) -> None:
    """K14: DataLoader's worker and the processes of MultiProcDataset inside and outside of it."""
    seen: dict[int, str] = {}

    def kill_while_training() -> None:
        log = tmp_path / "work" / "returnn.log"
        if not seen and log.exists() and "start epoch 1" in log.read_text():
            deadline = time.monotonic() + 30
            while len(running(tmp_path)) < 8 and time.monotonic() < deadline:
                time.sleep(0.1)
            seen.update(running(tmp_path))
            os.kill(records_now(tmp_path)[0].pid, signal.SIGKILL)

    with pytest.raises(LaunchError, match=r"^rank 0 .* was killed by SIGKILL \(signal 9\)"):
        train(tmp_path, Cluster(device="cpu"), step_s=0.5, train=MULTI_PROC, on_poll=kill_while_training)
    assert len([command for command in seen.values() if "spawn_main" in command]) >= 5
    assert wait_until_gone(tmp_path, 1) == {}
