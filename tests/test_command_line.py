"""The command line as a user meets it: exit codes, and errors of one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from syncopate.__main__ import main
from syncopate.errors import SweepError
from syncopate.local.load import load_sweeps

CONFIG = """
from syncopate import Cluster, Sweep, param_avg

def py():
    sweep = Sweep("s", base={{"backend": "torch", "dev": {{}}}}, num_epochs=1, score="dev_loss_ce",
                  cluster=Cluster(num_nodes=2, num_gpus_per_node={ranks}, device="cpu"), {options})
    sweep.add("psync", param_avg(every=10))
    sweep.register()
"""


def write_config(folder, *, ranks=1, options=""):
    path = folder / "experiment.py"
    path.write_text(CONFIG.format(ranks=ranks, options=options), encoding="utf-8")
    return path


def error_of(capsys, *argv):
    code = main([str(word) for word in argv])
    return code, capsys.readouterr().err.strip()


def test_doctor_says_what_is_there(capsys):
    assert main(["doctor", "--no-torch", "--python", sys.executable]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok       python: 3.")
    said = {line[9:].split(":")[0]: line for line in lines}
    assert {"Sisyphus", "i6_core", "settings.py", "training python"} <= set(said)
    assert said["training python"].startswith("ok       training python: Python 3.")
    assert "RETURNN" in said["training python"]


def test_doctor_fails_for_a_python_that_cannot_train(capsys):
    assert main(["doctor", "--python", "/no/such/python"]) == 1
    assert "training python '/no/such/python': does not exist" in capsys.readouterr().out


def test_a_wrong_declaration_is_an_error_of_one_line(tmp_path, capsys):
    config = write_config(tmp_path, options='baseline="dpp"')
    code, error = error_of(capsys, "run", config, "--out", tmp_path / "runs")
    assert code == 2
    assert error == "syncopate: Sweep 's': the baseline 'dpp' is no row; rows are ['psync']"
    assert not (tmp_path / "runs").exists()


def test_more_ranks_than_this_host_takes_are_refused(tmp_path, capsys):
    config = write_config(tmp_path, ranks=3)
    code, error = error_of(capsys, "run", config, "--out", tmp_path / "runs", "--slots", "4")
    assert code == 2
    assert error == (
        "syncopate: Sweep 's', row 'psync': 2x3 cpu needs 6 ranks on this host, which takes 4; use fewer ranks, or"
        " allow more with --slots"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1\n", "has no function py()"),
        ("def py():\n    pass\n", "py() registers no sweep; end it with sweep.register()"),
    ],
)
def test_a_config_without_a_sweep(tmp_path, text, error):
    path = tmp_path / "experiment.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SweepError, match=error.replace("(", r"\(").replace(")", r"\)")):
        load_sweeps(path)


def test_a_config_that_does_not_exist():
    with pytest.raises(
        SweepError, match=r"^no/such\.py is no Python file; give a config such as configs/quickstart\.py$"
    ):
        load_sweeps("no/such.py")


def test_interrupting_a_run_leaves_a_line_and_no_traceback(tmp_path):
    """A config that blocks, so that the signal finds the command at work."""
    path = tmp_path / "experiment.py"
    path.write_text("import time\nprint('loaded', flush=True)\ndef py():\n    time.sleep(60)\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "syncopate", "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ),
    )
    assert process.stdout.readline() == "loaded\n"
    process.send_signal(2)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.strip() == "syncopate: interrupted"
