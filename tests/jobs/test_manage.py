"""`python -m syncopate manage`: one manager per folder, and a start in the right folder."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_sisyphus


def manage(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "syncopate", "manage", config],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_second_manager_in_a_folder_is_refused(setup_folder):
    """Two would train the same jobs twice. The lock is held by `sis manager` itself, also when `manage` was killed."""
    (setup_folder / "work").mkdir()
    with open(setup_folder / "work" / ".syncopate_manage.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = manage(setup_folder, "configs/quickstart.py")
    assert done.returncode == 2
    assert done.stderr.startswith(f"syncopate: another manager works in {setup_folder}")
    assert not list(setup_folder.glob("work/syncopate"))


def test_a_folder_without_settings_is_refused_and_left_alone(tmp_path):
    done = manage(tmp_path, "configs/quickstart.py")
    assert done.returncode == 2
    assert done.stderr == (
        f"syncopate: there is no settings.py in {tmp_path}; start in the folder of your Sisyphus setup\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_config_outside_of_the_folder_is_refused(setup_folder):
    done = manage(setup_folder, "/somewhere/else.py")
    assert done.returncode == 2
    assert "must be a path inside" in done.stderr


def test_more_epochs_of_a_finished_job_are_refused(setup_folder, python):
    """Sisyphus would never run it again, and the table would show the old epochs."""
    here = str(Path(__file__).parent)
    done = python(
        f"""
import os, sys; sys.path.insert(0, {here!r})
import graph
from syncopate import Sweep, param_avg
sweep = Sweep("s", base=graph.base(), cluster=graph.CLUSTER, num_epochs=3, score="train_loss_ce")
trial = sweep.add("psync", param_avg(every=10))
path = trial.job.out_learning_rates.get_path()
os.makedirs(os.path.dirname(path))
open(path, "w").write("{{1: EpochData(learningRate=0.1, error={{'train_loss_ce': 1.0}})}}")
sweep.register()
""",
        cwd=setup_folder,
        check=False,
    )
    error = done.stderr.strip().splitlines()[-1]
    assert "is finished with 1 epochs, 3 are asked for, and Sisyphus never runs a finished job again" in error


def test_an_i6_core_that_is_too_old_is_named_before_it_is_imported(setup_folder, python, tmp_path):
    old = tmp_path / "old" / "i6_core" / "returnn"
    old.mkdir(parents=True)
    for folder in (old, old.parent):
        (folder / "__init__.py").touch()
    (old / "training.py").write_text("class ReturnnTrainingJob:\n    def __init__(self, returnn_config): pass\n")
    done = python(
        """
from syncopate import Cluster, Sweep, ddp
sweep = Sweep("s", base={"backend": "torch", "dev": {}}, cluster=Cluster(), num_epochs=1, score="dev_loss_ce")
sweep.add("ddp", ddp())
sweep.register()
""",
        cwd=setup_folder,
        env={"PYTHONPATH": str(old.parents[1])},
        check=False,
    )
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith("syncopate.errors.ComponentError: ")
    assert "i6_core" in error
    assert "horovod_num_processes" in error
