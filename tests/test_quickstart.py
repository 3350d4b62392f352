"""
The main job end to end: the quickstart sweep without Sisyphus, and through it as `make demo` does, to the table.
tests/slurm/test_quickstart.py has the same on SLURM.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.compare.cli import compare_main
from syncopate.compare.tables import measure_all
from syncopate.sweep.record import SweepRecord

ROWS = ["ddp", "psync10", "node-grads-world20", "node-params5-world20"]
PROGRESS = re.compile(r"\[(\d)/4\] (\S+): epoch (\d)/4, dev_loss_ce (\d+\.\d+), (\d+:)?\d+:\d\d left")


def run(command, folder, *, limit_s):
    """Runs it as a user with a fresh shell would; the log is shown if it fails."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CI")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def local(local_quickstart):
    """The sweep, trained without Sisyphus."""
    return local_quickstart


@pytest.fixture(scope="module")
def managed(tmp_path_factory, make_setup_folder):
    """The sweep, trained by the demo through Sisyphus."""
    folder = make_setup_folder(tmp_path_factory.mktemp("managed"))
    printed = run(["scripts/demo"], folder, limit_s=900)
    return {"root": folder, "folder": folder / "output" / "quickstart", "printed": printed}


def measured(trained):
    record = SweepRecord.read(trained["folder"] / "sweep.json")
    return {one.run.row: one for one in measure_all(record, base=trained["folder"])}


def config_text(trained, one):
    """Its config, with the places of its files left out: they are what a run may differ in."""
    text = (trained["folder"] / one.run.directory / "output" / "returnn.config").read_text(encoding="utf-8")
    assert text.startswith("#!")
    return re.sub(r"'/[^']*/((models|data/|[a-z]+\.[0-9a-f]{12}/)[^']*|[a-z.]+)'", _last_part, text)


def _last_part(found):
    return repr(Path(found.group(1)).name)


def check_table(trained):
    rows = list(csv.DictReader((trained["folder"] / "table" / "table.csv").open(encoding="utf-8")))
    assert [row["name"] for row in rows] == ROWS
    table = json.loads((trained["folder"] / "table" / "table.json").read_text(encoding="utf-8"))
    bigram = table["references"]["bigram"]["value"]
    for row in table["rows"]:
        assert row["state"] == "finished"
        assert row["score"] < bigram, f"{row['name']} learned no more than a bigram"
    assert table["rows"][0]["difference"] in (None, 0)
    for row in table["rows"][1:]:
        assert row["difference"] == pytest.approx(row["score"] - table["rows"][0]["score"])
    text = (trained["folder"] / "table" / "table.txt").read_text(encoding="utf-8")
    assert all(name in text for name in ROWS)
    assert "bigram" in text
    assert "nats/char" in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.strip() in trained["printed"]


def check_progress(trained):
    seen = [found.groups()[:3] for found in PROGRESS.finditer(trained["printed"])]
    assert {row for _, row, _ in seen} == set(ROWS), trained["printed"]
    for number, row, _ in seen:
        assert ROWS[int(number) - 1] == row


def test_the_local_runner_trains_four_schemes_to_the_table(local):
    check_table(local)
    check_progress(local)
    for name in ("table.txt", "table.md", "table.csv", "table.json"):
        assert f"{local['folder']}/table/{name}" in local["printed"]


@pytest.mark.full
@pytest.mark.needs_sisyphus
def test_the_demo_trains_four_schemes_through_sisyphus(managed):
    check_table(managed)
    check_progress(managed)
    for row in ROWS:
        assert (managed["root"] / "alias" / "quickstart" / row).is_symlink()
        assert (managed["folder"] / row / "results.json").is_file()
    live = (managed["folder"] / "live.txt").read_text(encoding="utf-8")
    assert live == (managed["folder"] / "table" / "table.txt").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.needs_sisyphus
def test_sisyphus_and_the_local_runner_train_the_same(managed, local):
    check_the_same(managed, local)


def check_the_same(managed, local):
    """The same sweep object, the same writer, the same launch: configs and scores are equal to the last digit."""
    ours, theirs = measured(local), measured(managed)
    assert list(ours) == list(theirs) == ROWS
    for row in ROWS:
        assert config_text(local, ours[row]) == config_text(managed, theirs[row])
        assert [epoch.scores for epoch in ours[row].epochs] == [epoch.scores for epoch in theirs[row].epochs]
        assert replace(ours[row].run, directory="", job_id=None) == replace(theirs[row].run, directory="", job_id=None)


@pytest.mark.full
@pytest.mark.needs_sisyphus
def test_the_demo_can_be_run_again(managed):
    """It asks nothing, trains nothing anew, and shows the same table."""
    table = (managed["folder"] / "table" / "table.txt").read_text(encoding="utf-8")
    jobs = managed["root"] / "work" / "syncopate" / "jobs" / "training"
    before = {path: path.stat().st_mtime_ns for path in jobs.glob("*/output/models/*.pt")}
    printed = run(["scripts/demo"], managed["root"], limit_s=120)
    assert table.strip() in printed
    assert {path: path.stat().st_mtime_ns for path in jobs.glob("*/output/models/*.pt")} == before


def test_the_table_can_be_asked_for_in_every_format(local, capsys):
    for format, start in (
        ("text", "quickstart: "),
        ("markdown", "**quickstart: "),
        ("csv", "score_name,"),
        ("json", "{"),
    ):
        assert compare_main([str(local["folder"]), "--format", format]) == 0
        assert capsys.readouterr().out.startswith(start)
    assert compare_main([str(local["folder"]), "--require-better-than", "bigram"]) == 0


def test_all_ranks_of_the_emulated_nodes_took_part(local):
    """K09: 2 nodes of 2 ranks each, every rank once."""
    for one in measured(local).values():
        assert one.world_size_seen == 4
        records = list((local["folder"] / one.run.directory / "logs").glob("*/ranks/rank*.json"))
        seen = sorted((json.loads(path.read_text(encoding="utf-8"))["rank"]) for path in records)
        assert seen == [0, 1, 2, 3]
