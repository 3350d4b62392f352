from __future__ import annotations

from dataclasses import fields, replace
from statistics import stdev

import pytest

from syncopate.compare.columns import COLUMNS
from syncopate.compare.measurement import EpochResult, Measurement
from syncopate.compare.references import Reference
from syncopate.compare.row import Row
from syncopate.compare.syncs import SyncCount
from syncopate.compare.table import Table, build_table
from syncopate.errors import ReadError
from tests.compare.helpers import GRADIENTS, measured, run_record, sweep_record

DDP = run_record(row="ddp", levels=(GRADIENTS,), epoch_end=None, scheme_text="gradients of all ranks (DDP)")
SINGLE = run_record(
    row="single", num_nodes=1, num_ranks=1, levels=(), epoch_end=None, scheme=None, scheme_text="single process"
)
PSYNC = run_record(row="psync100")


def table_of(*found: Measurement, **changes: object) -> Table:
    return build_table(sweep_record(*(one.run for one in found), **changes), found)


def row_of(table: Table, name: str) -> Row:
    (row,) = [row for row in table.rows if row.name == name]
    return row


def with_scores(found: Measurement, scores: list[dict[str, float]]) -> Measurement:
    epochs = tuple(
        EpochResult(epoch=number, learning_rate=0.01, scores=values, train_steps=500, train_time_s=30.0)
        for number, values in enumerate(scores, start=1)
    )
    return replace(found, epochs=epochs, epochs_done=len(epochs)).rescored(found.score, lower_is_better=True)


def test_every_column_of_a_worked_example() -> None:
    """Two seeds: best scores 2.0 and 2.2, last ones 2.1 and 2.2; both reach the target 2.6 at epoch 2."""
    syncs = (SyncCount(group="all ranks", kind="gradients", every=1, planned=750, observed=749),)
    table = table_of(
        measured(replace(DDP, seed=1), [3.0, 2.0, 2.1], syncs=syncs),
        measured(replace(DDP, seed=2), [3.0, 2.6, 2.2], train_time_s=96.0, updates=751, syncs=syncs),
        measured(PSYNC, [3.0, 2.4, 2.5]),
        baseline="ddp",
        target=2.6,
    )
    ddp = row_of(table, "ddp")
    assert (ddp.syncs, ddp.ranks) == ("gradients of all ranks (DDP)", "2x2 cpu")
    assert (ddp.trials, ddp.seeds, ddp.best_trial, ddp.score_seeds) == (1, 2, "0", 2)
    assert ddp.score == pytest.approx(2.1)
    assert ddp.score_sd == pytest.approx(stdev([2.0, 2.2]))
    assert ddp.score_sd == pytest.approx(0.2 / 2**0.5)
    assert ddp.last_score == pytest.approx((2.1 + 2.2) / 2)
    assert (ddp.difference, ddp.missing["difference"]) == (None, "baseline")
    assert (ddp.epochs_done, ddp.epochs_asked, ddp.data_passes) == (3, 3, 3.0)
    assert ddp.updates == 750.5
    assert ddp.samples_upper_bound == 48000
    assert (ddp.syncs_observed, ddp.syncs_planned) == ((749,), (750,))
    assert ddp.train_time_s == (90 + 96) / 2
    assert (ddp.target_epoch, ddp.target_train_time_s) == (2, 60.0)
    assert (ddp.state, ddp.notes) == ("finished", ())
    psync = row_of(table, "psync100")
    assert psync.difference == pytest.approx(2.4 - 2.1)
    assert (psync.score_sd, psync.missing["score_sd"]) == (None, "one seed")
    assert (psync.updates, psync.target_epoch) == (750, 2)


def test_the_difference_is_score_minus_baseline_also_where_higher_is_better() -> None:
    table = table_of(measured(DDP, [3.0]), measured(PSYNC, [2.5]), baseline="ddp", lower_is_better=False)
    assert row_of(table, "psync100").difference == -0.5


def test_rows_stay_in_the_order_of_the_sweep_and_none_vanishes() -> None:
    runs = [replace(PSYNC, row=name) for name in ("z", "a", "m")]
    found = [measured(runs[2], [2.0]), measured(runs[0], [], "failed"), measured(runs[1], [], "waiting")]
    table = build_table(sweep_record(*runs), found)
    assert [row.name for row in table.rows] == ["z", "a", "m"]
    assert [row.score for row in table.rows] == [None, None, 2.0]
    assert [row.missing.get("score") for row in table.rows] == ["failed", "no epoch yet", None]


def test_the_best_trial_is_the_one_with_the_best_mean_over_its_seeds() -> None:
    """Trial 0 has the best single seed (1.0), trial 1 the better mean: 1.5 against 2.0."""
    runs = [
        run_record(trial=trial, seed=seed, options={"lr": lr}) for trial, lr in ((0, 1.0), (1, 0.5)) for seed in (1, 2)
    ]
    found = [measured(run, [value]) for run, value in zip(runs, (1.0, 3.0, 1.4, 1.6), strict=True)]
    (row,) = table_of(*found).rows
    assert (row.trials, row.seeds, row.best_trial, row.score) == (2, 2, "1 (lr=0.5)", 1.5)


def test_failed_and_diverged_trainings_enter_no_mean() -> None:
    runs = [run_record(seed=seed) for seed in (1, 2, 3, 4)]
    table = table_of(
        measured(runs[0], [2.0]),
        measured(runs[1], [0.1], "failed", reason="LaunchError: rank 3 died"),
        measured(runs[2], [0.1], "diverged", reason="epoch 2: dev_loss_ce is nan"),
        measured(runs[3], [0.1], "rejected", reason="epoch 1 was trained by 2 ranks, not by 4"),
    )
    (row,) = table.rows
    assert (row.score, row.score_seeds, row.seeds) == (2.0, 1, 4)
    assert row.state == "1 of 4 failed, 1 of 4 diverged, 1 of 4 rejected"
    assert [table.notes[letter] for letter in row.notes] == [
        "'psync100': the mean is over 1 of 4 seeds",
        "'psync100' seed 2: failed: LaunchError: rank 3 died",
        "'psync100' seed 3: diverged: epoch 2: dev_loss_ce is nan",
        "'psync100' seed 4: rejected: epoch 1 was trained by 2 ranks, not by 4",
    ]
    assert row.notes == ("a", "b", "c", "d")


def test_a_note_names_the_training_no_more_exactly_than_needed() -> None:
    found = [
        measured(run_record(row="one"), [], "failed", reason="r"),
        measured(run_record(row="two", trial=0, options={"lr": 1}), [1.0]),
        measured(run_record(row="two", trial=1, options={"lr": 2}, seed=7), [], "unreadable", reason="f:3: torn"),
        measured(run_record(row="three", num_epochs=9), [1.0], "partial"),
    ]
    assert list(table_of(*found).notes.values()) == [
        "'one': failed: r",
        "'two' trial 1 (lr=2) seed 7: unreadable: f:3: torn",
        "not finished: the score is that of the epochs so far",
        "'three': partial: no reason is known",
    ]


def test_an_unfinished_row_shows_the_score_so_far_and_says_so() -> None:
    table = table_of(measured(run_record(num_epochs=8), [3.0, 2.0, 2.5], "running"))
    (row,) = table.rows
    assert (row.score, row.last_score, row.epochs_done, row.epochs_asked) == (2.0, 2.5, 3, 8)
    assert row.state == "running 3/8 epochs"
    assert [table.notes[letter] for letter in row.notes] == ["not finished: the score is that of the epochs so far"]


def test_finished_seeds_are_not_mixed_with_unfinished_ones() -> None:
    runs = [run_record(seed=seed) for seed in (1, 2, 3)]
    table = table_of(measured(runs[0], [2.0]), measured(runs[1], [1.0], "running"), measured(runs[2], [], "waiting"))
    (row,) = table.rows
    assert (row.score, row.state) == (2.0, "1 of 3 running, 1 of 3 waiting")
    assert [table.notes[letter] for letter in row.notes] == ["'psync100': the mean is over 1 of 3 seeds"]


def test_a_finished_trial_goes_before_an_unfinished_one_with_a_better_score() -> None:
    found = [measured(run_record(trial=0), [2.0]), measured(run_record(trial=1), [1.0], "running")]
    (row,) = table_of(*found).rows
    assert (row.score, row.best_trial) == (2.0, "0")


@pytest.mark.parametrize(
    ("states", "summary"),
    [
        (["finished"], "finished"),
        (["waiting"], "waiting"),
        (["failed"], "failed"),
        (["partial"], "partial 1/3 epochs"),
        (["finished", "finished"], "finished"),
        (["failed", "failed"], "failed"),
        (["failed", "finished", "finished"], "1 of 3 failed"),
        (["running", "failed", "running"], "2 of 3 running, 1 of 3 failed"),
    ],
)
def test_states_are_summarised(states: list[str], summary: str) -> None:
    found = [measured(run_record(seed=seed), [1.0], state) for seed, state in enumerate(states, start=1)]
    assert table_of(*found).rows[0].state == summary


def test_a_target_that_is_missed_is_said_with_the_best_score() -> None:
    found = [measured(DDP, [3.0, 2.5, 2.6]), measured(run_record(num_epochs=9), [3.0], "running")]
    table = table_of(*found, target=2.0)
    ddp, psync = table.rows
    assert (ddp.target_epoch, ddp.target_train_time_s) == (None, None)
    assert ddp.missing["target_epoch"] == "not reached (best 2.5000)"
    assert ddp.missing["target_train_time_s"] == "not reached"
    assert psync.missing["target_epoch"] == "not yet (best 3.0000)"


def test_a_target_that_some_seeds_miss_has_no_mean() -> None:
    found = [measured(run_record(seed=1), [1.0]), measured(run_record(seed=2), [3.0])]
    (row,) = table_of(*found, target=2.0).rows
    assert (row.target_epoch, row.missing["target_epoch"]) == (None, "1 of 2 reached")


def test_a_target_is_reached_without_seconds_where_none_were_noted() -> None:
    found = measured(PSYNC, [3.0, 1.0])
    first = replace(found.epochs[0], train_time_s=None)
    (row,) = table_of(replace(found, epochs=(first, found.epochs[1])), target=2.0).rows
    assert (row.target_epoch, row.target_train_time_s) == (2, None)
    assert row.missing["target_train_time_s"] == "not recorded"


def test_a_target_of_a_score_where_higher_is_better() -> None:
    table = build_table(
        sweep_record(PSYNC, target=2.5, lower_is_better=False),
        [measured(PSYNC, [2.0, 2.7]).rescored("dev_loss_ce", lower_is_better=False)],
    )
    assert table.rows[0].target_epoch == 2


def test_every_missing_number_has_a_word() -> None:
    unknown = replace(measured(PSYNC, [2.0]), updates=None, samples_upper_bound=None, train_time_s=None, last=None)
    no_dev = with_scores(measured(replace(DDP, row="no dev"), [2.0]), [{"train_loss_ce": 1.0}])
    found = [unknown, measured(SINGLE, [2.0]), no_dev, measured(replace(DDP, row="none"), [], "waiting")]
    for changes in ({}, {"baseline": "none", "target": 1.0}):
        for row in table_of(*found, **changes).rows:
            for column in COLUMNS:
                value = getattr(row, column.key)
                assert (value is None) == bool(row.missing.get(column.key)), (row.name, column.key)
    psync, single, without_dev, none = table_of(*found, baseline="none").rows
    assert [psync.missing[key] for key in ("updates", "samples_upper_bound", "train_time_s")] == ["not recorded"] * 3
    assert psync.missing["last_score"] == "not finite"
    assert psync.missing["difference"] == "no score of the baseline"
    assert single.missing["syncs_observed"] == "one rank"
    assert without_dev.missing["score"] == without_dev.missing["updates"] == "no dev set"
    assert none.missing["train_time_s"] == "no epoch yet"


def test_the_keys_of_the_columns_are_the_fields_of_a_row() -> None:
    named = {"user_scores", "user_score_seeds"}  # have columns of their own
    assert {column.key for column in COLUMNS} == {entry.name for entry in fields(Row)} - {"missing"} - named


def test_a_score_that_one_row_lacks_is_named() -> None:
    other = with_scores(measured(PSYNC, [2.0]), [{"dev_loss_other": 1.0}])
    table = table_of(measured(DDP, [2.0]), other)
    assert row_of(table, "psync100").missing["score"] == "no dev_loss_ce"


def test_a_score_that_no_training_reports_is_an_error() -> None:
    found = [measured(DDP, [2.0]), measured(PSYNC, [], "waiting")]
    with pytest.raises(ReadError) as error:
        table_of(*found, score="dev_loss_ec")
    assert str(error.value) == (
        "no training reports the score 'dev_loss_ec' (did you mean 'dev_loss_ce'?); they report"
        " ['dev_loss_ce', 'train_loss_ce']"
    )


def test_k31_a_dev_score_may_still_come_while_something_runs() -> None:
    train_only = with_scores(measured(DDP, [2.0]), [{"train_loss_ce": 1.0}])
    table = table_of(train_only, measured(PSYNC, [], "running"))
    assert [row.missing["score"] for row in table.rows] == ["no dev set", "no epoch yet"]
    with pytest.raises(
        ReadError, match=r"^no training reports the score 'dev_loss_ce' .*; they report \['train_loss_ce'\]$"
    ):
        table_of(train_only)


def test_k31_all_failed_before_a_dev_set_was_evaluated() -> None:
    failed = with_scores(measured(DDP, [2.0], "failed"), [{"train_loss_ce": 1.0}])
    (row,) = table_of(failed).rows
    assert row.state == "failed"


def test_no_epoch_at_all_is_no_error() -> None:
    (row,) = table_of(measured(PSYNC, [], "waiting"), score="dev_loss_ec").rows
    assert row.missing["score"] == "no epoch yet"


def test_a_baseline_that_is_no_row_is_an_error() -> None:
    with pytest.raises(ReadError, match=r"^the baseline 'dpd' is no row \(did you mean 'ddp'\?\); rows are \['ddp'\]$"):
        table_of(measured(DDP, [2.0]), baseline="dpd")


def test_k32_another_number_of_data_passes_is_flagged() -> None:
    other = replace(PSYNC, data_passes=12.0)
    table = table_of(measured(DDP, [2.0]), measured(other, [2.0]), baseline="ddp", same_budget=False)
    assert row_of(table, "ddp").notes == ()
    assert [table.notes[letter] for letter in row_of(table, "psync100").notes] == [
        "trained on 12 data passes instead of 3: not the same budget"
    ]
    assert "NOT the same in all rows: data passes (3: ddp; 12: psync100)." in table.footer
    assert "Rows were allowed to differ in data passes." in table.footer


def test_k20_warnings_are_notes() -> None:
    warned = measured(PSYNC, [2.0], warnings=("the level never fires",))
    table = table_of(warned, replace(warned, run=replace(PSYNC, seed=3)))
    assert list(table.notes.values()) == ["'psync100': the level never fires"]


def test_k30_a_train_score_is_labelled_as_that_of_rank_0() -> None:
    """K30: train losses in the file are of rank 0 alone."""
    found = [measured(run, [2.0]).rescored("train_loss_ce", lower_is_better=True) for run in (DDP, SINGLE)]
    table = table_of(*found, score="train_loss_ce")
    assert [table.notes[letter] for letter in row_of(table, "ddp").notes] == [
        "the score is that of rank 0 alone, on its own part of the training data"
    ]
    assert row_of(table, "single").notes == ()
    label = "Scores that start with train_ are of rank 0 alone, never the mean over ranks."
    assert label in table.footer
    assert label not in table_of(measured(SINGLE, [2.0])).footer


def test_the_footer_says_what_was_compared_and_how() -> None:
    table = build_table(
        sweep_record(DDP, replace(SINGLE, accum_grad=8), baseline="ddp", target=2.3),
        [measured(DDP, [2.0]), measured(SINGLE, [2.0])],
        {"bigram": Reference(value=2.45, unit="nats/char"), "uniform": Reference(value=4.0, unit="nats/char")},
    )
    assert table.footer == (
        "Score: dev_loss_ce, lower is better. Of each training the best epoch counts, of each trial the mean over its"
        " seeds, of each row its best trial; all numbers of a row are of that trial. sd: sample standard deviation over"
        " its seeds.",
        "Difference: score minus that of 'ddp'.",
        "Target: dev_loss_ce at most 2.3, at the first epoch that reaches it.",
        "The same in all rows: data passes (3), trials per row (1).",
        "NOT the same in all rows: ranks (2x2 cpu: ddp; 1x1 cpu: single), sequences per update of a rank (at most 16:"
        " ddp; at most 64: single).",
        "Data passes: over the whole corpus, by all ranks together, in all epochs asked for.",
        "Seconds: training steps with loading and synchronising, in whole seconds per epoch as RETURNN notes them;"
        " evaluation, checkpoints, start-up and queueing are not in them.",
        "Computed, not measured: updates (micro-batches of rank 0, divided by those per update, rounded down in each"
        " epoch), samples (micro-batches of rank 0, times ranks, times the most sequences one may hold: an upper"
        " bound), and syncs of planned (periods start anew in each epoch; an outer average takes the place of an"
        " inner one; epoch ends are not counted).",
        "Scores that start with train_ are of rank 0 alone, never the mean over ranks.",
        "References: bigram 2.45 nats/char, uniform 4 nats/char.",
    )


def test_references_that_cannot_be_read_are_said() -> None:
    table = build_table(sweep_record(PSYNC), [measured(PSYNC, [2.0])], references_problem="r.json: is not there")
    assert "References: r.json: is not there." in table.footer


def test_more_than_26_notes_have_letters() -> None:
    found = [measured(run_record(row=f"r{index}"), [], "failed", reason="r") for index in range(28)]
    letters = list(table_of(*found).notes)
    assert (letters[0], letters[25], letters[26], letters[27]) == ("a", "z", "aa", "ab")
