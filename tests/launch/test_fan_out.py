"""What the launcher in a batch script does before srun; the rest needs a SLURM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.fan_out import srun_command
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training


def training_in(folder: Path) -> Training:
    return Training(
        config_file=folder / "a.config",
        run_dir=folder / "run",
        work_dir=folder / "work",
        cluster=Cluster(num_nodes=3),
        python="python",
    )


@pytest.mark.parametrize(
    ("environ", "cpus"),
    [
        ({}, []),
        ({"SLURM_CPUS_ON_NODE": "48"}, ["--cpus-per-task=48"]),
        ({"SLURM_CPUS_ON_NODE": "48", "SLURM_CPUS_PER_TASK": "12"}, ["--cpus-per-task=12"]),
    ],
)
def test_one_launcher_per_node_with_all_that_the_job_has_there(
    tmp_path: Path, environ: dict[str, str], cpus: list[str]
) -> None:
    """Steps of newer SLURMs do not take over how many CPUs the job asked for."""
    assert srun_command("/bin/srun", training_in(tmp_path), Path("/run/training.json"), environ) == [
        "/bin/srun",
        "--nodes=3",
        "--ntasks=3",
        "--ntasks-per-node=1",
        *cpus,
        "--kill-on-bad-exit=0",
        "--wait=120",
        "--overlap",
        "--unbuffered",
        "--export=ALL",
        sys.executable,
        "-m",
        "syncopate.launch.node",
        "/run/training.json",
    ]


def test_a_batch_script_that_does_not_find_srun(tmp_path: Path) -> None:
    """As in a container."""
    finished: list[int] = []
    environ = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "gpu[07-09]",
        "SLURM_NODEID": "0",
        "PATH": str(tmp_path),
    }
    with pytest.raises(LaunchError) as caught:
        run_training(training_in(tmp_path), environ=environ, hooks=Hooks(finish=lambda: finished.append(1)))
    assert str(caught.value) == (
        f"srun is not on the PATH ({tmp_path}) of this launcher, which runs once in the batch script and has to start"
        " the other 2 nodes with it; add its folder to PATH in DEFAULT_ENVIRONMENT_SET of settings.py, and if the"
        " worker runs in a container, make it visible there"
    )
    assert "srun is not on the PATH" in (tmp_path / "run" / "attempts.jsonl").read_text()
    assert finished == []
