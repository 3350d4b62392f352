"""char_lm trained by RETURNN."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from syncopate import Cluster, with_scheme
from syncopate.returnn_io.learning_rates import read_learning_rates
from syncopate.returnn_io.write import config_text, run_options
from syncopate.tasks.char_lm import char_lm
from syncopate.tasks.char_lm.model import CharLm, ModelOpts

NUM_TRAIN_SEQUENCES = 480
MAX_SEQS = 8
CONFIG = char_lm(
    max_train_sequences=NUM_TRAIN_SEQUENCES,
    max_seqs=MAX_SEQS,
    dropout=0.1,
    learning_rate=2e-2,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which RETURNN trained one epoch on few windows, in a single process."""
    folder = tmp_path_factory.mktemp("training")
    (file, *_) = CONFIG.produced_files()
    file.make(folder / "text", **file.kwargs)
    train(folder, text=folder / "text", num_epochs=1)
    return folder


def train(folder, *, text, num_epochs):
    config = run_options(
        with_scheme(CONFIG, None, Cluster(device="cpu")),
        device="cpu",
        num_epochs=num_epochs,
        model=str(folder / "epoch"),
    )
    config = config.resolved(lambda file: str(text / file.name))
    (folder / "returnn.config").write_text(config_text(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "returnn", "returnn.config"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reported_score_is_the_cross_entropy_of_every_dev_character(trained):
    """So it compares with the entropies in references.json, which are over the same characters."""
    epochs = read_learning_rates(trained / "learning_rates").epochs
    (reported,) = [epochs[1].scores[name] for name in CONFIG.reports]

    vocab = {char: index for index, char in enumerate(lines(trained / "text" / "vocab"))}
    chars = torch.tensor([[vocab[char] for char in window] for window in lines(trained / "text" / "dev.txt")])
    model = CharLm(vocab_size=len(vocab), opts=ModelOpts())
    model.load_state_dict(torch.load(trained / "epoch.001.pt")["model"])
    model.eval()
    with torch.no_grad():
        by_hand = torch.nn.functional.cross_entropy(model(chars).flatten(0, 1), chars.flatten())
    assert reported == pytest.approx(float(by_hand), rel=1e-4)
    # 60 updates are enough to know more than how often each character occurs.
    assert reported < json.loads((trained / "text" / "references.json").read_text())["unigram"]["value"]


def test_an_epoch_is_one_pass(trained):
    assert read_learning_rates(trained / "learning_rates").epochs[1].num_train_steps == NUM_TRAIN_SEQUENCES // MAX_SEQS


def test_a_training_that_is_resumed_is_the_one_that_went_on(trained, tmp_path):
    """With dropout, bit for bit: no data loader draws random numbers of its own."""
    shutil.copytree(trained, tmp_path / "resumed")
    (tmp_path / "went_on").mkdir()
    for name in ("resumed", "went_on"):
        train(tmp_path / name, text=trained / "text", num_epochs=2)
    resumed, went_on = (torch.load(tmp_path / name / "epoch.002.pt")["model"] for name in ("resumed", "went_on"))
    assert all(torch.equal(resumed[name], went_on[name]) for name in went_on)


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]
