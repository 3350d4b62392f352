"""What char_lm tells RETURNN."""

from __future__ import annotations

import json

import pytest

from syncopate import Cluster, param_avg, with_scheme
from syncopate.errors import ConfigError
from syncopate.tasks.char_lm import char_lm
from syncopate.tasks.char_lm.text import prepare


def test_declaring_it_needs_the_standard_library_alone(python, tmp_path):
    done = python(
        "import sys\n"
        "from syncopate.tasks.char_lm import char_lm\n"
        "char_lm()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'returnn', 'numpy', 'sisyphus'}))",
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "[]"


def test_the_model_is_found_without_the_config(python, tmp_path):
    done = python(
        "import sys\n"
        "from syncopate.tasks.char_lm.model import get_model, train_step\n"
        "print(sorted(name for name in sys.modules if name.startswith(('sisyphus', 'i6_core', 'syncopate.'))))",
        cwd=tmp_path,
    )
    names = "'syncopate.errors', 'syncopate.tasks', 'syncopate.tasks.char_lm', 'syncopate.tasks.char_lm.model'"
    assert done.stdout.strip() == f"[{names}]"


def test_all_files_are_made_by_one_call_and_there_afterwards(tmp_path):
    config = char_lm(max_train_sequences=20)
    produced = config.produced_files()
    assert len({file.source for file in produced}) == 1
    produced[0].make(tmp_path, **produced[0].kwargs)
    assert {file.name for file in produced} == {path.name for path in tmp_path.iterdir()}
    assert json.loads((tmp_path / config.statistics.name).read_text())["num_train_sequences"] == 20
    assert set(json.loads((tmp_path / config.references.name).read_text())) == {"unigram", "bigram"}


def test_the_whole_text_is_the_one_made_without_arguments():
    (file, *_) = char_lm(max_train_sequences=None).produced_files()
    assert (file.make, file.kwargs) == (prepare, {})


def test_it_leaves_the_ranks_to_the_sweep():
    """K02: how the ranks share the data stands inside of torch_distributed, which a single process must not have."""
    single = with_scheme(char_lm(), None, Cluster(device="cpu"))
    assert "torch_distributed" not in single.config
    cluster = Cluster(num_gpus_per_node=4, device="cpu")
    shared = with_scheme(
        char_lm(), param_avg(every=10), cluster, torch_distributed={"dataset_distribution": "shard"}
    ).config
    assert shared["torch_distributed"]["dataset_distribution"] == "shard"
    assert shared["torch_distributed"]["param_sync_step"] == 10
    assert "dataset_distribution" not in shared


def test_a_batch_is_as_many_windows_as_asked_for():
    config = char_lm(max_seqs=7).config
    assert (config["max_seqs"], config["batch_size"]) == (7, 7 * 65)


def test_its_numbers_reach_the_config():
    config = char_lm(learning_rate=0.5, num_layers=3, dim=8, num_heads=2, dropout=0.25).config
    assert config["learning_rate"] == 0.5
    assert config["model_opts"] == {"num_layers": 3, "dim": 8, "num_heads": 2, "dropout": 0.25}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_seqs": 0}, "char_lm: max_seqs must be an int of at least 1, got 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(kwargs, message):
    with pytest.raises(ConfigError) as error:
        char_lm(**kwargs)
    assert str(error.value) == message
