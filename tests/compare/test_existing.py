"""Trainings that were there before: only their files are read, and what nobody wrote down is said."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.compare.cli import compare_main
from syncopate.compare.measurement import EpochValue, Measurement, measure
from syncopate.compare.read import load
from syncopate.compare.render import render
from syncopate.compare.report import live_table
from syncopate.compare.table import Table, build_table
from syncopate.compare.user_scores import UserScoreValue
from syncopate.errors import ReadError
from syncopate.sweep.record import RunRecord, UserScore
from tests.compare.helpers import (
    clean,
    dev,
    epoch,
    existing_record,
    finish,
    learning_rates,
    local_run,
    measured,
    run_record,
    sisyphus_job,
    sweep_record,
    write,
    write_sweep,
)

BASE = existing_record()
DDP = run_record(row="ddp")
PSYNC = run_record()
NOTHING_RECORDED = (
    "it was there before, and these are not recorded of it: what it synchronises, nodes, ranks, device, epochs asked"
    " for, data passes, sequences per update; whether they are the same as in other rows is not known"
)


def measure_in(base: Path, run: RunRecord = BASE) -> Measurement:
    return measure(run, base=base, score="dev_loss_ce", lower_is_better=True)


def bare(folder: Path, *values: float, **options: int | None) -> Path:
    """Writes what RETURNN leaves behind if it is started by hand."""
    write(folder / "learning_rates", learning_rates([dev(value, **options) for value in values]))
    return folder


def table_of(*found: Measurement, **changes: object) -> Table:
    return build_table(sweep_record(*(one.run for one in found), **changes), found)


def notes_of(table: Table, name: str) -> list[str]:
    (row,) = [row for row in table.rows if row.name == name]
    return [table.notes[letter] for letter in row.notes]


def test_a_bare_folder_is_partial_since_nothing_says_whether_it_has_ended(tmp_path: Path) -> None:
    bare(tmp_path / "base", 3.0, 2.0)
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", "nothing in its folder says whether it has ended")
    assert (found.source, found.epochs_done, found.best) == ("learning_rates", 2, EpochValue(epoch=2, value=2.0))


def test_a_bare_folder_with_all_epochs_asked_for_is_finished(tmp_path: Path) -> None:
    bare(tmp_path / "base", 3.0, 2.0, 2.5)
    for num_epochs, state in ((2, "finished"), (3, "finished"), (4, "partial")):
        assert measure_in(tmp_path, replace(BASE, num_epochs=num_epochs)).state == state


def test_what_is_not_recorded_is_not_computed(tmp_path: Path) -> None:
    """2 ranks, 500 micro-batches per epoch, 30 s: the time is in the file, updates and samples are not."""
    bare(tmp_path / "base", 3.0, 2.0, ranks=2)
    found = measure_in(tmp_path)
    assert (found.updates, found.samples_upper_bound, found.train_time_s, found.syncs) == (None, None, 60.0, ())
    assert (found.run.num_ranks, found.num_ranks, found.world_size_seen, found.warnings) == (None, 2, 2, ())
    known = measure_in(tmp_path, replace(BASE, accum_grad=1, max_seqs=8))
    assert (known.updates, known.samples_upper_bound) == (1000, 1000 * 2 * 8)


def test_k10_ranks_that_are_known_must_be_those_that_took_part(tmp_path: Path) -> None:
    bare(tmp_path / "base", 3.0, 2.0, ranks=2)
    found = measure_in(tmp_path, replace(BASE, num_nodes=1, num_ranks=4))
    assert (found.state, found.reason) == ("rejected", "epoch 1 was trained by 2 ranks, not by 4")


def test_ranks_that_changed_on_the_way_are_said(tmp_path: Path) -> None:
    text = learning_rates([dev(3.0, ranks=4), dev(2.0, ranks=2), dev(1.0, ranks=2)])
    write(tmp_path / "base" / "learning_rates", text)
    found = measure_in(tmp_path)
    assert (found.state, found.num_ranks) == ("partial", None)
    assert found.warnings == ("its epochs were trained by different numbers of ranks: 2, 4",)
    known = measure_in(tmp_path, replace(BASE, num_ranks=4))
    assert (known.state, known.world_size_seen, known.warnings) == ("rejected", 2, ())


def test_a_job_whose_marks_say_so_is_finished(tmp_path: Path) -> None:
    """K28: also after it was cleaned."""
    sisyphus_job(tmp_path / "base", [dev(3.0), dev(2.0)])
    finish(tmp_path / "base")
    found = measure_in(tmp_path)
    assert (found.state, found.reason, found.epochs_done) == ("finished", None, 2)
    clean(tmp_path / "base")
    assert measure_in(tmp_path) == found


def test_a_job_that_ended_without_an_epoch_is_not_finished(tmp_path: Path) -> None:
    sisyphus_job(tmp_path / "base")
    write(tmp_path / "base" / "finished.run.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", "it ended, but no epoch of it is complete")


def test_a_job_that_ended_too_early_is_partial(tmp_path: Path) -> None:
    sisyphus_job(tmp_path / "base", [dev(3.0), dev(2.0)])
    write(tmp_path / "base" / "finished.run.1")
    found = measure_in(tmp_path, replace(BASE, num_epochs=3))
    assert (found.state, found.reason) == ("partial", "it ended, but only 2 of 3 epochs are complete")


def test_marks_of_running_failed_and_diverged_trainings_count(tmp_path: Path) -> None:
    sisyphus_job(tmp_path / "base", [dev(3.0)], log="training\n")
    assert measure_in(tmp_path).state == "running"
    usage = f"{{'host': {socket.gethostname()!r}, 'pid': {2**30}}}\n"
    write(tmp_path / "base" / "usage.run.1", usage)
    assert (measure_in(tmp_path).state, measure_in(tmp_path).reason) == (
        "partial",
        f"the process {2**30} that trained it is gone",
    )
    write(tmp_path / "base" / "log.run.1", "LaunchError: rank 3 on node 1 died\n")
    write(tmp_path / "base" / "error.run.1")
    assert (measure_in(tmp_path).state, measure_in(tmp_path).reason) == (
        "failed",
        "LaunchError: rank 3 on node 1 died",
    )
    write(tmp_path / "base" / "work" / "learning_rates", learning_rates([dev(3.0), dev(float("nan"))]))
    assert measure_in(tmp_path).state == "diverged"


def test_nobody_waits_for_a_training_that_should_have_been_there(tmp_path: Path) -> None:
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("absent", f"its folder {tmp_path}/base is not there")
    sisyphus_job(tmp_path / "base", log=None)
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("absent", "its folder has no epoch of it, and no mark that it was started")
    assert not found.is_counted


def test_a_torn_file_makes_it_unreadable(tmp_path: Path) -> None:
    file = write(tmp_path / "base" / "learning_rates", "{\n1: EpochData(learn")
    found = measure_in(tmp_path)
    assert found.state == "unreadable"
    assert str(found.reason).startswith(f"{file}:2")


def test_a_file_in_the_folder_itself_is_the_last_choice(tmp_path: Path) -> None:
    bare(tmp_path / "base", 1.0)
    sisyphus_job(tmp_path / "base", [dev(3.0)])
    assert measure_in(tmp_path).source == "work/learning_rates"


def test_the_row_says_what_is_not_recorded() -> None:
    table = table_of(measured(DDP, [2.0]), measured(BASE, [2.5], updates=None, samples_upper_bound=None))
    row = table.rows[1]
    assert row.existing
    assert not table.rows[0].existing
    assert (row.score, row.train_time_s, row.state, row.syncs) == (2.5, 30.0, "finished", "not recorded")
    names = ("ranks", "epochs_asked", "data_passes", "updates", "samples_upper_bound", "syncs_observed")
    assert {getattr(row, name) for name in names} == {None}
    assert {row.missing[name] for name in names} == {"not recorded"}
    assert notes_of(table, "base") == [NOTHING_RECORDED]
    (line,) = [line for line in render(table, "markdown").splitlines() if line.startswith("| base")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "not recorded"
    assert cells[-7:] == ["not recorded", "1", *["not recorded"] * 4, "30.0"]


@pytest.mark.parametrize(
    ("changes", "seen", "text"),
    [
        ({"num_nodes": 2, "num_ranks": 8, "device": "gpu"}, None, "2x4 gpu"),
        ({"num_nodes": 2, "num_ranks": 8}, None, "2x4"),
        ({"num_ranks": 8, "device": "gpu"}, None, "8 ranks gpu"),
        ({}, 8, "8 ranks"),
        ({"num_nodes": 2, "device": "gpu"}, 8, "2x4 gpu"),
        ({"device": "gpu"}, None, None),
    ],
)
def test_ranks_are_shown_as_far_as_they_are_recorded(
    changes: dict[str, object], seen: int | None, text: str | None
) -> None:
    (row,) = table_of(measured(replace(BASE, **changes), [2.0], world_size_seen=seen)).rows
    assert (row.ranks, row.missing.get("ranks")) == (text, None if text else "not recorded")


def test_progress_without_a_number_of_epochs() -> None:
    rows = table_of(measured(BASE, [3.0, 2.0], "running"), measured(replace(BASE, row="b"), [3.0], "partial")).rows
    assert [row.state for row in rows] == ["running 2 epochs", "partial 1 epoch"]
    assert "| 2 |" in render(table_of(measured(BASE, [3.0, 2.0], "running")), "markdown")


def test_a_folder_that_does_not_say_whether_it_ended_is_not_called_unfinished() -> None:
    table = table_of(measured(BASE, [2.0], "partial", reason="r"))
    assert notes_of(table, "base")[1:] == [
        "not known to be finished: the score is that of the epochs so far",
        "'base': partial: r",
    ]
    table = table_of(measured(replace(BASE, num_epochs=3), [2.0], "partial", reason="r"))
    assert notes_of(table, "base")[1] == "not finished: the score is that of the epochs so far"


def test_unknown_facts_are_no_mismatch() -> None:
    table = table_of(measured(DDP, [2.0]), measured(BASE, [2.5], world_size_seen=4), baseline="ddp")
    assert table.footer[2:4] == (
        "Trained before, not by this sweep, and only read: base.",
        "The same in all rows, as far as recorded: data passes (3: ddp; not recorded: base), ranks (2x2 cpu: ddp; 4"
        " ranks: base), sequences per update of a rank (at most 16: ddp; not recorded: base), trials per row (1: ddp;"
        " not recorded: base).",
    )
    assert not any(sentence.startswith("NOT the same") for sentence in table.footer)
    assert not any("instead of" in note for note in table.notes.values())


def test_facts_that_are_recorded_are_compared() -> None:
    """K32: the ranks differ by their number, which RETURNN noted, the data passes by what the job says."""
    other = replace(BASE, data_passes=12.0)
    table = table_of(
        measured(BASE, [2.5]), measured(DDP, [2.0]), measured(replace(other, row="old"), [2.5], world_size_seen=8)
    )
    assert (
        "NOT the same in all rows: data passes (3: ddp; 12: old; not recorded: base), ranks (2x2 cpu: ddp; 8 ranks:"
        " old; not recorded: base)."
    ) in table.footer
    assert notes_of(table, "old")[1:] == ["trained on 12 data passes instead of 3: not the same budget"]


def test_the_difference_is_computed_and_noted() -> None:
    found = [measured(DDP, [2.0]), measured(PSYNC, [2.25]), measured(BASE, [2.5])]
    table = table_of(*found, baseline="ddp")
    assert [row.difference for row in table.rows] == [None, 0.25, 0.5]
    assert [notes_of(table, row.name) for row in table.rows] == [
        [],
        [],
        [NOTHING_RECORDED, "the difference may also come from what is not recorded of 'base'"],
    ]
    table = table_of(*found, baseline="base")
    assert [row.difference for row in table.rows] == [-0.5, -0.25, None]
    assert [notes_of(table, row.name) for row in table.rows] == [
        ["the difference may also come from what is not recorded of 'base'"],
        ["the difference may also come from what is not recorded of 'base'"],
        [NOTHING_RECORDED],
    ]


def test_a_training_of_which_all_is_known_needs_no_note() -> None:
    table = table_of(measured(DDP, [2.0]), measured(replace(DDP, row="old", existing=True), [2.5]), baseline="ddp")
    assert table.notes == {}
    assert table.rows[1].difference == 0.5
    assert "The same in all rows: data passes (3), ranks (2x2 cpu), sequences per update of a rank (at most 16)." in (
        table.footer
    )


def test_the_score_of_an_absent_training_is_shown() -> None:
    """Its folder is gone, but the recipe knows what its recognition gave."""
    run = replace(BASE, user_scores=(UserScore(name="WER", lower_is_better=True, value=5.6),))
    (row,) = table_of(measured(run, [], "absent", reason="r", user_scores={"WER": UserScoreValue(value=5.6)})).rows
    assert (row.state, row.missing["score"], row.user_scores) == ("absent", "absent", {"WER": 5.6})


def test_k31_rows_of_every_kind_in_every_format(tmp_path: Path) -> None:
    bare(tmp_path / "base", 2.5, 2.4)
    local_run(tmp_path / "ddp", [dev(2.0)] * 3)
    runs = [DDP, BASE, existing_record(row="gone")]
    write_sweep(tmp_path, sweep_record(*runs, baseline="ddp", target=2.4))
    table = live_table(tmp_path)
    assert [(row.name, row.state) for row in table.rows] == [
        ("ddp", "finished"),
        ("base", "partial 2 epochs"),
        ("gone", "absent"),
    ]
    assert table.rows[1].target_epoch == 2
    assert notes_of(table, "gone")[-1] == f"'gone': absent: its folder {tmp_path}/gone is not there"
    for format in ("text", "markdown", "csv", "json"):
        assert all(row.name in render(table, format) for row in table.rows)


def test_folders_that_no_sweep_has_made_are_compared(tmp_path: Path) -> None:
    bare(tmp_path / "by_hand", 3.0, 2.0)
    sisyphus_job(tmp_path / "ReturnnTrainingJob.abc", [dev(3.0), dev(2.5)])
    finish(tmp_path / "ReturnnTrainingJob.abc")
    table = live_table([tmp_path / "by_hand", tmp_path / "ReturnnTrainingJob.abc"])
    assert (table.title, table.score, table.lower_is_better) == ("single trainings", "dev_loss_ce", True)
    assert [(row.name, row.score, row.state) for row in table.rows] == [
        ("by_hand", 2.0, "partial 2 epochs"),
        ("ReturnnTrainingJob.abc", 2.5, "finished"),
    ]
    assert table.footer[-1] == (
        f"No score was named: dev_loss_ce is the first of a dev set in {tmp_path}/by_hand/learning_rates; --score names"
        " another."
    )
    named = live_table([tmp_path / "by_hand"], score="train_loss_ce", baseline="by_hand")
    assert (named.score, named.baseline, named.rows[0].score) == ("train_loss_ce", "by_hand", 2.5)
    assert not any("No score was named" in sentence for sentence in named.footer)


@pytest.mark.parametrize(
    ("names", "score"),
    [
        (["train_loss_x", "devtrain_loss_x", "dev_loss_z:exp", "dev_loss_z", "dev_loss_a"], "dev_loss_z"),
        (["dev_error", "dev_score_output/output_prob"], "dev_score_output/output_prob"),
        (["dev_score", "dev_loss_ce"], "dev_loss_ce"),
    ],
)
def test_the_first_dev_loss_is_the_score(tmp_path: Path, names: list[str], score: str) -> None:
    write(tmp_path / "learning_rates", learning_rates([epoch(dict.fromkeys(names, 1.0))]))
    assert load([tmp_path]).sweep.score == score


def test_a_score_that_cannot_be_guessed_must_be_named(tmp_path: Path) -> None:
    write(tmp_path / "learning_rates", learning_rates([epoch({"train_loss_ce": 1.0, "dev_error": 0.5})]))
    with pytest.raises(ReadError) as error:
        load([tmp_path])
    assert str(error.value) == (
        "no score was named, and there is none that starts with dev_loss or dev_score; name one with --score:"
        " ['dev_error', 'train_loss_ce']"
    )
    assert load([tmp_path], score="dev_error").measurements[0].best == EpochValue(epoch=1, value=0.5)


def test_a_job_before_its_first_epoch_is_a_row_too(tmp_path: Path) -> None:
    sisyphus_job(tmp_path / "job", log="training\n")
    write(tmp_path / "job" / "output" / "returnn.config")
    with pytest.raises(ReadError) as error:
        load([tmp_path / "job"])
    assert str(error.value) == "no training has a complete epoch yet to guess a score from; name one with --score"
    bare(tmp_path / "other", 2.0)
    table = live_table([tmp_path / "job", tmp_path / "other"])
    assert [(row.name, row.state) for row in table.rows] == [("job", "running 0 epochs"), ("other", "partial 1 epoch")]


def test_folders_of_one_name_are_told_apart_by_those_above(tmp_path: Path) -> None:
    paths = [bare(tmp_path / name / "train", 2.0) for name in ("a", "b")]
    assert [run.row for run in load(paths).sweep.runs] == ["a/train", "b/train"]
    assert [run.row for run in load([paths[0], paths[0] / "."]).sweep.runs] == ["train"]


def test_a_folder_is_called_like_the_link_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(tmp_path / "work" / "Job.abc", 2.0)
    (tmp_path / "alias").symlink_to(tmp_path / "work" / "Job.abc")
    assert [run.row for run in load([tmp_path / "alias", tmp_path / "work" / "Job.abc"]).sweep.runs] == ["alias"]
    monkeypatch.chdir(tmp_path / "work" / "Job.abc")
    (found,) = load(["."]).measurements
    assert (found.run.row, found.run.directory) == ("Job.abc", os.getcwd())


def test_results_and_sweeps_name_the_score_for_folders_beside_them(tmp_path: Path) -> None:
    local_run(tmp_path / "ddp", [dev(2.0)] * 3)
    found = measure(DDP, base=tmp_path, score="train_loss_ce", lower_is_better=True)
    results = write(tmp_path / "results" / "results.json", found.to_json())
    bare(tmp_path / "old" / "ddp", 3.0)
    loaded = load([tmp_path / "old" / "ddp", results])
    assert (loaded.sweep.score, loaded.remarks) == ("train_loss_ce", ())
    assert [run.row for run in loaded.sweep.runs] == ["ddp", "old/ddp"]
    write_sweep(tmp_path / "sweep", sweep_record(run_record(directory=str(tmp_path / "ddp")), score="train_loss_ce"))
    loaded = load([tmp_path / "sweep", tmp_path / "old" / "ddp"])
    assert (loaded.sweep.score, loaded.remarks) == ("train_loss_ce", ())
    assert [run.row for run in loaded.sweep.runs] == ["psync100", "ddp"]
    assert loaded.sweep.prefix == "demo/sync + single trainings"


def test_the_command_takes_such_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare(tmp_path / "old", 3.0, 2.0)
    assert compare_main([str(tmp_path / "old"), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["name"], row["score"], row["existing"], row["ranks"]) == ("old", 2.0, True, "4 ranks")
