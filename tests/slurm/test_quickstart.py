"""The main job on a real SLURM: the quickstart sweep on 2 nodes x 2 ranks each, through `sis manager` to the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.compare.tables import measure_all
from syncopate.sweep.record import SweepRecord
from tests.test_quickstart import ROWS, check_table, check_the_same

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(600)]


def run(folder: Path, cluster, *command: str) -> str:
    environ = {name: value for name, value in cluster.environ.items() if name not in ("PYTHONPATH", "CI")}
    path = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory, make_setup_folder, cluster):
    folder = make_setup_folder(tmp_path_factory.mktemp("slurm"))
    printed = run(folder, cluster, "python", "-m", "syncopate", "manage", "configs/quickstart.py")
    printed += run(folder, cluster, "python", "-m", "syncopate", "compare", "output/quickstart")
    return {"root": folder, "folder": folder / "output" / "quickstart", "printed": printed, "cluster": cluster}


def jobs(trained) -> dict[str, Path]:
    return {row: (trained["root"] / "alias" / "quickstart" / row).resolve() for row in ROWS}


def contents(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("output/models/*.pt")}


def test_four_schemes_are_trained_on_two_nodes_to_the_table(trained):
    check_table(trained)


def test_slurm_and_the_local_runner_train_the_same(trained, local_quickstart):
    check_the_same(trained, local_quickstart)


def test_k09_each_row_was_one_world_on_two_nodes(trained):
    record = SweepRecord.read(trained["folder"] / "sweep.json")
    for one in measure_all(record, base=trained["folder"]):
        assert one.world_size_seen == 4


def test_k15_what_slurm_was_asked_for(trained):
    """Per node: two ranks each."""
    asked = trained["cluster"].run(
        "sacct", "--noheader", "--parsable2", "--allocations", "--format=JobName%200,AllocNodes,ReqCPUS,State,Partition"
    )
    lines = [line.split("|") for line in asked.splitlines()]
    for row, folder in jobs(trained).items():
        own = [line[1:] for line in lines if folder.name in line[0] and line[0].endswith(".run")]
        assert own == [["2", "4", "COMPLETED", "main"]], (row, lines)


def test_a_second_manager_trains_nothing_again(trained):
    before = {row: contents(folder) for row, folder in jobs(trained).items()}
    count = len(trained["cluster"].run("sacct", "--noheader", "--allocations", "--parsable2").splitlines())
    table = json.loads((trained["folder"] / "table" / "table.json").read_text(encoding="utf-8"))
    run(trained["root"], trained["cluster"], "python", "-m", "syncopate", "manage", "configs/quickstart.py")
    assert {row: contents(folder) for row, folder in jobs(trained).items()} == before
    assert json.loads((trained["folder"] / "table" / "table.json").read_text(encoding="utf-8")) == table
    after = trained["cluster"].run("sacct", "--noheader", "--allocations", "--parsable2")
    assert len(after.splitlines()) == count
