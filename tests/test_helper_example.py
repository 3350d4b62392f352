"""configs/helper_example.py: its graph is built in every test run, and trained in the whole matrix."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_sisyphus

ROWS = ["ddp", "psync10", "hierarchical", "single"]


def test_its_graph_is_built(setup_folder, python):
    """Each row has two trials, and the helper's jobs are i6_core's own."""
    done = python(
        f"""
import sys; sys.path.insert(0, "configs")
import sisyphus.toolkit as tk
import helper_example
helper_example.py()
from syncopate.jobs.register import _registered
(sweep,) = _registered
assert [run.row for run in sweep.runs] == [row for row in {ROWS!r} for _ in range(2)]
for run in sweep.runs:
    assert run.job.job_id().startswith("i6_core/returnn/training/ReturnnTrainingJob."), run.job
""",
        cwd=setup_folder,
    )
    assert done.returncode == 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_it_trains_to_the_table(setup_folder):
    done = subprocess.run(
        [sys.executable, "-m", "syncopate", "manage", "configs/helper_example.py"],
        cwd=setup_folder,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CI")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = csv.DictReader((setup_folder / "output/helper_example/table/table.csv").open(encoding="utf-8"))
    assert [(row["name"], row["state"], row["trials"]) for row in rows] == [(row, "finished", "2") for row in ROWS]
