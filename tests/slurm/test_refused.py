"""What SLURM does not take is said at once, and ends `manage` where another try will not help."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_sisyphus

SETTINGS = """
_file = "setups/loopback_slurm/settings.py"
exec(compile(open(_file, encoding="utf-8").read(), _file, "exec"))
_limits = check_engine_limits


def check_engine_limits(current_rqmt, task):
    rqmt = _limits(current_rqmt, task)
    args = [arg for arg in rqmt.get("sbatch_args", []) if not arg.startswith("--partition")]
    return {**rqmt, "sbatch_args": [*args, "--partition=nosuch"]}
"""


def test_a_partition_that_slurm_does_not_have(setup_folder, no_jobs):
    (setup_folder / "settings.py").unlink()
    (setup_folder / "settings.py").write_text(SETTINGS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "syncopate", "manage", "configs/quickstart.py"],
        cwd=setup_folder,
        env={name: value for name, value in no_jobs.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("syncopate: ")]
    assert line.startswith("syncopate: SLURM does not take a training: invalid partition specified: nosuch.")
    assert no_jobs.squeue() == {}
