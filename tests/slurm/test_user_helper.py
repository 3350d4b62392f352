"""A user's own train helper, unmodified but for the sweep, on two nodes of a real SLURM; with their own settings."""

from __future__ import annotations

import csv
import json

import pytest

from tests.test_your_setup import SETTINGS, SWEEP, make_setup

__all__ = ["make_setup"]
pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(600)]

SLURM_SETTINGS = """
import os

from sisyphus import global_settings as _defaults


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine as Slurm,
    )

    rqmt = {"cpu": 1, "mem": 1, "gpu": 0, "time": 1}
    engines = {"short": LocalEngine(cpu=2), "long": Slurm(default_rqmt=rqmt)}
    return EngineSelector(engines=engines, default_engine="long")


# The nodes of this cluster are no host names.
DEFAULT_ENVIRONMENT_SET = {**_defaults.DEFAULT_ENVIRONMENT_SET, "SYNCOPATE_MEETING_HOST": "127.0.0.1"}
"""


@pytest.fixture(scope="module")
def trained(make_setup, cluster):
    setup = make_setup("slurm")
    with open(setup.folder / "settings.py", "a", encoding="utf-8") as settings:
        settings.write(SLURM_SETTINGS + SETTINGS.replace('engine="local"', 'engine="slurm"'))
    sweep = SWEEP.replace("(0.005, 0.01)", "(0.005,)").replace("num_nodes=1, num_gpus", "num_nodes=2, num_gpus")
    sweep = "\n".join(line for line in sweep.splitlines() if "add_existing" not in line and "add_score" not in line)
    (setup.folder / "config" / "sync_sweep.py").write_text(f"{sweep}\n", encoding="utf-8")
    environ = setup.environ()
    setup.environ = lambda: {**environ, "SLURM_CONF": cluster.environ["SLURM_CONF"]}
    return {"setup": setup, "log": setup.sis("config/sync_sweep.py")}


def test_the_helpers_jobs_train_on_two_nodes(trained):
    folder = trained["setup"].folder
    path = folder / "output/our_asr/sync/table/table.csv"
    assert path.exists(), trained["log"][-4000:]
    rows = {row["name"]: row for row in csv.DictReader(path.open(encoding="utf-8"))}
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        ("ddp", "psync10", "hierarchical", "single"), "finished"
    )
    for name in ("ddp", "psync10"):
        job = (folder / "alias/our_asr/sync" / f"{name},base_lr=0.005").resolve()
        assert job.name.startswith("ReturnnTrainingJob.")
        records = [json.loads(path.read_text()) for path in job.glob("logs/*/ranks/rank*.json")]
        assert sorted((record["rank"], record["world_size"]) for record in records) == [(rank, 4) for rank in range(4)]
        assert {record["agent"] for record in records} == {0, 1}


def test_k01_the_ids_are_those_of_the_same_jobs_elsewhere(trained, make_setup):
    """How a job is launched is in no id: the page's own settings, on one host, give the same."""
    local = make_setup("local")
    local.adopt()
    sweep = (trained["setup"].folder / "config" / "sync_sweep.py").read_text(encoding="utf-8")
    listing = "print('IDS', [run.job.job_id() for run in sweep.runs])"
    (local.folder / "config" / "sync_sweep.py").write_text(sweep.replace("sweep.register()", listing), encoding="utf-8")
    printed = local.sis("config/sync_sweep.py")
    assert trained["setup"].trainings()
    assert all(name in printed for name in trained["setup"].trainings())
