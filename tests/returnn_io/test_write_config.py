"""The text of a config gives the values back in a clean interpreter, and a file is complete or as it was."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from syncopate import Cluster, ProducedFile, TrainingConfig, ddp, diloco, hierarchical, param_avg, with_scheme
from syncopate.errors import ConfigError
from syncopate.returnn_io.write import config_text, run_options, write_text
from syncopate.tasks.char_lm.text import prepare

VALUES = {
    "none": None,
    "yes": True,
    "integer": -(10**40),
    "small": 5e-324,
    "tenth": 0.1,
    "large": 1.7976931348623157e308,
    "minus_zero": -0.0,
    "text": "quotes ' \" and \\ and {braces} and % and $x",
    "lines": "one\ntwo\r\n\ttab\x00nul\x1b[0m",
    "unicode_é": "größe ␣ 😀 \u202e \ud800 \N{NO-BREAK SPACE}",
    "long": "words " * 100,
    "long_line": ["path/of/a/file" * 5] * 5,
    "binary": b"\x00\xff'",
    "empty": [[], (), {}, "", set(), frozenset()],
    "pair": (1, [2, (3,)]),
    "sets": {"a": {1, 2.5, "x", None, (1, "y")}, "b": frozenset({"f"})},
    "numbers": list(range(300)),
    "nested": {"class": {"lambda": {1: {None: {True: {0.5: {(1, 2): "deep"}}}}}}},
    "order": {"z": 1, "a": 2, "m": 3},
    "infinite": [math.inf, -math.inf, {"x": (math.inf, "inf")}],
    "numpy": [np.float32(0.5), np.int64(3), np.bool_(True)],
}


def executed(text, tmp_path):
    """The values of the text in an interpreter that has neither our package nor our folder."""
    path = tmp_path / "returnn.config"
    path.write_text(text, encoding="utf-8")
    code = """
import pickle, sys
values = {}
exec(compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec"), values, values)
del values["__builtins__"]
sys.stdout.buffer.write(pickle.dumps({key: value for key, value in values.items() if not hasattr(value, "__spec__")}))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(path)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def test_the_text_gives_the_values_back(tmp_path):
    config = TrainingConfig(config=VALUES, post_config={"log_verbosity": 3})
    text = config_text(config)
    assert text.startswith("#!")
    found = executed(text, tmp_path)
    assert repr(found.pop("log_verbosity")) == "3"
    assert found.keys() == VALUES.keys()
    sets = found.pop("sets")
    assert sets == VALUES["sets"]
    assert type(sets["b"]) is frozenset
    for key, value in found.items():
        assert repr(value) == repr(config.config[key]), key


def test_what_is_no_number_is_written_as_such(tmp_path):
    found = executed(config_text(TrainingConfig(config={"a": [math.nan, {"b": math.nan}], "c": {math.nan}})), tmp_path)
    assert math.isnan(found["a"][0])
    assert math.isnan(found["a"][1]["b"])
    assert math.isnan(next(iter(found["c"])))


def test_the_order_of_options_does_not_matter():
    one = TrainingConfig(config={"a": {3, 1, 2}, "b": "x"}, post_config={"c": 1})
    other = TrainingConfig(config={"b": "x", "a": {2, 3, 1}}, post_config={"c": 1})
    assert config_text(one) == config_text(other)


def test_the_text_is_the_same_in_every_process():
    code = """
from syncopate import TrainingConfig
from syncopate.returnn_io.write import config_text
print(config_text(TrainingConfig(config={"a": {"x", "y", "z", "u", 1, None}, "b": [frozenset("abcdef")]})))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": "recipe"},
        ).stdout
        for seed in range(3)
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    "scheme", [ddp(), param_avg(every=3), hierarchical(node="gradients", world_every=4), diloco()], ids=lambda s: s.text
)
def test_a_scheme_in_a_config_is_read_as_the_same_dict(scheme, tmp_path):
    config = with_scheme(
        TrainingConfig(config={"backend": "torch"}, imports=("import os", "from math import pi as PI")),
        scheme,
        Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"),
        torch_distributed={"dataset_distribution": "shard"},
    )
    found = executed(config_text(config), tmp_path)
    assert found.pop("PI") == math.pi
    assert found == config.config


def test_modules_are_found_in_the_folders_that_are_named(tmp_path, monkeypatch):
    """A relative folder is that of the declaration, wherever the training runs."""
    folder = tmp_path / "it's a \\ folder"
    folder.mkdir()
    (folder / "user_model.py").write_text("SIZE = 3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = TrainingConfig(config={"a": 1}, imports=("from user_model import SIZE",), python_path=(folder.name,))
    monkeypatch.chdir("/")
    assert config.updated({"b": 2}).python_path == (str(folder),)
    text = config_text(run_options(config, device="cpu", num_epochs=1, model="m"))
    assert executed(text, tmp_path)["SIZE"] == 3


def test_k05_a_run_has_the_device_and_the_epochs_it_was_given():
    config = TrainingConfig(
        config={"backend": "torch", "target": "data", "learning_rate": 0.5},
        post_config={"log_verbosity": 3, "save_interval": 2},
    )
    run = run_options(config, device="cpu", num_epochs=7, model="models/epoch")
    assert run.config == {
        "task": "train",
        "target": "data",
        "learning_rate_file": "learning_rates",
        "backend": "torch",
        "learning_rate": 0.5,
    }
    assert run.post_config == {
        "device": "cpu",
        "log": ["./returnn.log"],
        "log_verbosity": 3,
        "num_epochs": 7,
        "save_interval": 2,
        "model": "models/epoch",
        "stop_for_resubmission_when_low_time_left": True,
    }
    assert config.config["learning_rate"] == 0.5
    assert "device" not in config.post_config


def test_what_is_not_made_yet_cannot_be_written():
    config = TrainingConfig(config={"train": [ProducedFile(make=prepare, name="a.txt")]})
    with pytest.raises(
        ConfigError, match=r"^option train: ProducedFile\(.*was not made yet; resolve the config before"
    ):
        config_text(config)

    class Later:
        def get(self):
            return 1

    with pytest.raises(ConfigError, match=r"^option x: .*of type Later cannot be written into a config"):
        config_text(TrainingConfig(config={"x": Later()}))


# Files


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old ü\n")
    write_text(str(path), "new ␣\n")
    assert path.read_text(encoding="utf-8") == "new ␣\n"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_text_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "x" * 10**6 + "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_leaves_the_old_text(tmp_path):
    """A limit on the size of files stands for the disk."""
    path = tmp_path / "a.json"
    write_text(path, "old")
    code = f"""
import resource, signal
from syncopate.returnn_io.write import write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_text({str(path)!r}, "x" * 10**6)
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "recipe"}
    )
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_kill_leaves_a_complete_file(tmp_path):
    """Whatever moment it hits: either the old text or the new one, never a part."""
    path = tmp_path / "a.json"
    code = f"""
from syncopate.returnn_io.write import write_text
print("started", flush=True)
for number in range(10**6):
    write_text({str(path)!r}, f"{{number}}\\n" * 200_000 + "end\\n")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "recipe"}
    )
    assert process.stdout.readline() == "started\n"
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = path.read_text().splitlines()
    assert len(set(lines)) == 2
    assert len(lines) == 200_001
    assert lines[-1] == "end"
