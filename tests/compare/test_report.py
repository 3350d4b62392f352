from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.compare.cli import compare_main
from syncopate.compare.render import FORMATS, render
from syncopate.compare.report import live_table, require_better_than
from syncopate.compare.tables import FILES, live_text, measure_all, write_tables
from syncopate.errors import NotBetterError, ReadError
from syncopate.sweep.record import SweepRecord
from tests.compare.helpers import (
    dev,
    epoch,
    finish,
    local_run,
    run_record,
    sisyphus_job,
    sweep_record,
    write,
    write_sweep,
)

BIGRAM = {"bigram": {"value": 2.45, "unit": "nats/char"}}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """K31: one training of every kind."""
    names = ("ddp", "running", "failed", "nodev", "extra", "torn", "vanished", "nan", "small")
    sisyphus_job(tmp_path / "ddp", [dev(3.0), dev(2.0), dev(2.5)])
    finish(tmp_path / "ddp")
    sisyphus_job(tmp_path / "running", [dev(2.9)], log="training\n")
    sisyphus_job(tmp_path / "failed", [dev(2.8)], log="LaunchError: rank 3 on node 1 died\n")
    write(tmp_path / "failed" / "error.run.1")
    local_run(tmp_path / "nodev", [epoch({"train_loss_ce": value}) for value in (3.0, 2.0, 1.0)])
    local_run(tmp_path / "extra", [epoch({"dev_loss_ce": 2.2, "devother_loss_ce": 4.0}) for _ in range(3)])
    sisyphus_job(tmp_path / "torn", log="training\n")
    write(tmp_path / "torn" / "work" / "learning_rates", "{\n1: EpochData(learningRate=0.01, err")
    local_run(tmp_path / "vanished", [dev(1.0)] * 3)
    local_run(tmp_path / "nan", [dev(2.0), dev(float("nan")), dev(0.1)])
    local_run(tmp_path / "small", [dev(0.1, ranks=2)] * 3)
    write(tmp_path / "scores.json", json.dumps(BIGRAM))
    runs = [run_record(row=name) for name in names]
    write_sweep(tmp_path, sweep_record(*runs, baseline="ddp", target=2.1, references="scores.json"))
    shutil.rmtree(tmp_path / "vanished")
    return tmp_path


def test_k31_the_report_is_complete_and_marked(mixed: Path) -> None:
    table = live_table(mixed / "sweep.json")
    assert {row.name: (row.state, row.score or row.missing["score"]) for row in table.rows} == {
        "ddp": ("finished", 2.0),
        "running": ("running 1/3 epochs", 2.9),
        "failed": ("failed", "failed"),
        "nodev": ("finished", "no dev set"),
        "extra": ("finished", 2.2),
        "torn": ("unreadable", "unreadable"),
        "vanished": ("waiting", "no epoch yet"),
        "nan": ("diverged", "diverged"),
        "small": ("rejected", "rejected"),
    }
    notes = {row.name: [table.notes[letter] for letter in row.notes] for row in table.rows}
    assert notes["failed"] == ["'failed': failed: LaunchError: rank 3 on node 1 died"]
    assert notes["torn"][0].startswith(f"'torn': unreadable: {mixed}/torn/work/learning_rates:2")
    assert notes["nan"] == ["'nan': diverged: epoch 2: train_loss_ce is nan"]
    assert notes["small"] == ["'small': rejected: epoch 1 was trained by 2 ranks, not by 4"]
    for format in FORMATS:
        text = render(table, format)
        assert all(row.name in text for row in table.rows)


def test_k31_a_report_says_what_is_wrong_instead_of_raising(mixed: Path) -> None:
    sweep = SweepRecord.read(mixed / "sweep.json")
    assert live_text(sweep, base=mixed) == render(live_table(mixed))
    for changes, message in (
        ({"score": "dev_loss_ec"}, "no training reports the score 'dev_loss_ec' (did you mean 'dev_loss_ce'?)"),
        ({"baseline": "dpd"}, "the baseline 'dpd' is no row"),
    ):
        wrong = sweep_record(*sweep.runs, **changes)
        assert live_text(wrong, base=mixed).startswith(f"There is no table of demo/sync: {message}")
    missing = sweep_record(*sweep.runs, references="none.json")
    assert "References: " in live_text(missing, base=mixed)


def test_measurements_are_one_per_training_in_order(mixed: Path) -> None:
    sweep = SweepRecord.read(mixed / "sweep.json")
    assert [found.run for found in measure_all(sweep, base=mixed)] == list(sweep.runs)


def test_tables_are_written_in_every_format(mixed: Path) -> None:
    sweep = SweepRecord.read(mixed / "sweep.json")
    files = write_tables(sweep, measure_all(sweep, base=mixed), base=mixed, directory=mixed / "new" / "tables")
    assert files == {format: mixed / "new" / "tables" / FILES[format] for format in FORMATS}
    table = live_table(mixed)
    assert all(path.read_text(encoding="utf-8") == render(table, format) for format, path in files.items())
    assert "bigram 2.45 nats/char" in files["text"].read_text(encoding="utf-8")


def finished(base: Path, **best: float) -> Path:
    """Writes a sweep of finished trainings with these scores."""
    for name, value in best.items():
        local_run(base / name, [dev(value)] * 3)
    write(base / "scores.json", json.dumps(BIGRAM))
    write_sweep(base, sweep_record(*(run_record(row=name) for name in best), references="scores.json"))
    return base


def test_every_row_must_beat_the_reference(tmp_path: Path) -> None:
    require_better_than(live_table(finished(tmp_path / "good", ddp=2.0, psync=2.44)), "bigram")
    table = live_table(finished(tmp_path / "bad", ddp=2.0, same=2.45, worse=3.0))
    with pytest.raises(NotBetterError) as error:
        require_better_than(table, "bigram")
    assert str(error.value) == (
        "not better than 'bigram' (2.4500 nats/char) in dev_loss_ce: 'same' (2.4500), 'worse' (3.0000)"
    )


def test_a_row_without_score_does_not_beat_the_reference(mixed: Path) -> None:
    with pytest.raises(NotBetterError) as error:
        require_better_than(live_table(mixed), "bigram")
    assert str(error.value).endswith(
        "in dev_loss_ce: 'running' (2.9000), 'failed' (failed), 'nodev' (finished), 'torn' (unreadable),"
        " 'vanished' (waiting), 'nan' (diverged), 'small' (rejected)"
    )


def test_where_higher_is_better_the_reference_is_beaten_from_above(tmp_path: Path) -> None:
    table = live_table(finished(tmp_path, low=2.0, high=3.0), lower_is_better=False)
    with pytest.raises(NotBetterError, match=r": 'low' \(2\.0000\)$"):
        require_better_than(table, "bigram")


def test_a_reference_that_is_not_there_is_named(tmp_path: Path) -> None:
    finished(tmp_path, ddp=2.0)
    with pytest.raises(
        ReadError, match=r"no reference 'bigam' \(did you mean 'bigram'\?\); references are \['bigram'\]$"
    ):
        require_better_than(live_table(tmp_path), "bigam")
    (tmp_path / "scores.json").unlink()
    with pytest.raises(
        ReadError, match=r"references are \[\]\. References: .*: the references cannot be read: No such"
    ):
        require_better_than(live_table(tmp_path), "bigram")


def test_command_prints_the_table(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_main([str(mixed)]) == 0
    assert capsys.readouterr().out == render(live_table(mixed))


def test_command_takes_other_baseline_target_score_and_format(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--format", "json", "--baseline", "extra", "--target", "1.5", "--score", "train_loss_ce"]
    assert compare_main([str(mixed / "sweep.json"), *options, "--higher-is-better"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["baseline"], plain["target"], plain["score"]) == ("extra", 1.5, "train_loss_ce")
    assert plain["lower_is_better"] is False
    assert plain["rows"][0]["score"] == 3.5


def test_command_writes_a_file(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_main([str(mixed), "--format", "csv", "--output", str(mixed / "t.csv")]) == 0
    assert (mixed / "t.csv").read_text(encoding="utf-8") == render(live_table(mixed), "csv")
    assert capsys.readouterr().out == ""


def test_command_ends_with_2_and_one_line_on_errors(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(mixed / "none")], f"compare: {mixed}/none: there is no such file or folder\n"),
        (
            [str(mixed), "--output", str(mixed / "no" / "t")],
            f"compare: {mixed}/no/t: the table cannot be written: No such file or directory\n",
        ),
        ([str(mixed), "--baseline", "x"], "compare: the baseline 'x' is no row; rows are ['ddp', 'running', 'failed',"),
    ):
        assert compare_main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(message)
        assert err.count("\n") == 1


def test_command_ends_with_1_if_a_row_does_not_beat_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = finished(tmp_path / "good", ddp=2.0), finished(tmp_path / "bad", ddp=2.0, worse=3.0)
    assert compare_main([str(good), "--require-better-than", "bigram"]) == 0
    assert capsys.readouterr().err == ""
    assert compare_main([str(bad), "--require-better-than", "bigram"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("demo/sync: dev_loss_ce")
    assert err == "compare: not better than 'bigram' (2.4500 nats/char) in dev_loss_ce: 'worse' (3.0000)\n"
    assert compare_main([str(good), "--require-better-than", "trigram"]) == 2


def test_comparing_needs_neither_torch_nor_sisyphus(mixed: Path) -> None:
    """The manager must load in a second."""
    code = (
        "import sys\n"
        "from syncopate.compare.cli import compare_main\n"
        f"assert compare_main([{str(mixed)!r}]) == 0\n"
        "found = {'torch', 'returnn', 'sisyphus', 'i6_core', 'numpy', 'scipy'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
