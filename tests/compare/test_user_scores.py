"""Scores that the recipe names, from the file of a variable to the column of the table."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.compare.layout import WIDTH
from syncopate.compare.measurement import Measurement, measure
from syncopate.compare.read import load
from syncopate.compare.render import render
from syncopate.compare.report import live_table
from syncopate.compare.row import Row
from syncopate.compare.table import Table, build_table
from syncopate.compare.user_scores import UserScoreHead, UserScoreValue, read_user_scores
from syncopate.errors import ReadError
from syncopate.sweep.record import RunRecord, UserScore
from tests.compare.helpers import (
    dev,
    epoch,
    local_run,
    measured,
    run_record,
    sweep_record,
    write,
    write_sweep,
)

WER = UserScore(name="dev-other WER", lower_is_better=True, path="wer")


def read_one(base: Path, score: UserScore = WER) -> UserScoreValue:
    return read_user_scores(run_record(user_scores=(score,)), base=base)[score.name]


def scored(run: RunRecord, best: float, wer: UserScoreValue | float | None, state: str = "finished") -> Measurement:
    """A training with this dev loss and this WER; None for one that has no such score."""
    if wer is None:
        return measured(run, [best], state)
    value = wer if isinstance(wer, UserScoreValue) else UserScoreValue(value=wer)
    return measured(replace(run, user_scores=(WER,)), [best], state, user_scores={WER.name: value})


def table_of(*found: Measurement, **changes: object) -> Table:
    return build_table(sweep_record(*(one.run for one in found), **changes), found)


def wer_of(row: Row) -> tuple[float | None, int, str | None]:
    return row.user_scores[WER.name], row.user_score_seeds[WER.name], row.missing.get("score:dev-other WER")


@pytest.mark.parametrize(
    ("text", "value"),
    [("5.6\n", 5.6), ("7\n", 7.0), ("-0.5", -0.5), ("1e-3\n", 0.001), ("np.float64(6.25)\n", 6.25), ("+3", 3.0)],
)
def test_a_number_is_read(tmp_path: Path, text: str, value: float) -> None:
    write(tmp_path / "wer", text)
    assert read_one(tmp_path) == UserScoreValue(value=value)


def test_a_path_is_relative_to_the_record_or_absolute(tmp_path: Path) -> None:
    file = write(tmp_path / "job" / "output" / "wer", "5.6\n")
    for path in ("../job/output/wer", str(file)):
        score = replace(WER, path=path)
        (tmp_path / "record").mkdir(exist_ok=True)
        assert read_one(tmp_path / "record", score) == UserScoreValue(value=5.6)


def test_a_score_may_be_given_as_a_number_or_be_still_to_come(tmp_path: Path) -> None:
    assert read_one(tmp_path, replace(WER, path=None, value=5.6)) == UserScoreValue(value=5.6)
    assert read_one(tmp_path, replace(WER, path=None)) == UserScoreValue()


def test_a_file_that_is_not_there_or_just_being_written_is_waited_for(tmp_path: Path) -> None:
    assert read_one(tmp_path) == UserScoreValue()
    assert read_one(tmp_path / "none") == UserScoreValue()
    write(tmp_path / "wer", "")
    assert read_one(tmp_path) == UserScoreValue()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{'dev': 5.6}\n", "must hold a number, found \"{'dev': 5.6}\""),
        ("'5.6'\n", "must hold a number, found \"'5.6'\""),
        ("None\n", "must hold a number, found 'None'"),
        ("True\n", "must hold a number, found 'True'"),
        ("[5.6]\n", "must hold a number, found '[5.6]'"),
        ("5.6 %\n", "must hold a number, found '5.6 %'"),
        ("__import__('os').getpid()\n", "must hold a number, found \"__import__('os').getpid()\""),
        ("'" + "a" * 99 + "'", f'must hold a number, found "\'{"a" * 59} ..."'),
        ("1" + "0" * 400, f"must hold a number, found '1{'0' * 59} ...'"),
        ("1" + "0" * 1000, "must hold a number, but has more than 1000 bytes"),
        ("nan\n", "is nan"),
        ("-inf\n", "is -inf"),
    ],
)
def test_a_file_without_a_number_is_a_problem(tmp_path: Path, text: str, problem: str) -> None:
    file = write(tmp_path / "wer", text)
    assert read_one(tmp_path) == UserScoreValue(problem=f"{file}: {problem}")


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "opened",))

    with gzip.open(tmp_path / "wer", "wb") as stream:
        pickle.dump(Trap(), stream)
    assert read_one(tmp_path) == UserScoreValue(
        problem=f"{tmp_path}/wer: is pickled, and pickles are not opened; use a variable without pickle"
    )
    assert not (tmp_path / "opened").exists()


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "wer").mkdir()
    assert read_one(tmp_path).problem == f"{tmp_path}/wer: cannot be read: Is a directory"
    (tmp_path / "bytes").write_bytes(b"\xff\xfe5.6")
    problem = read_one(tmp_path, replace(WER, path="bytes")).problem
    assert problem is not None
    assert problem.startswith(f"{tmp_path}/bytes: is no text: 'utf-8' codec can't decode")
    problem = read_one(tmp_path, replace(WER, path="x" * 300)).problem
    assert problem is not None
    assert problem.endswith(": cannot be read: File name too long")


@pytest.mark.needs_sisyphus
def test_variables_as_sisyphus_writes_them(tmp_path, python):
    python(
        "from sisyphus.job_path import Variable\n"
        "Variable('./wer').set(12.5)\n"
        "Variable('./nan').set(float('nan'))\n"
        "Variable('./pickled', pickle=True).set(12.5)\n",
        cwd=tmp_path,
    )
    run = run_record(
        user_scores=tuple(replace(WER, name=name, path=name) for name in ("wer", "nan", "pickled", "unset"))
    )
    found = read_user_scores(run, base=tmp_path)
    assert found["wer"] == UserScoreValue(value=12.5)
    assert found["nan"] == UserScoreValue(problem=f"{tmp_path}/nan: is nan")
    assert found["pickled"].problem is not None
    assert "is pickled" in found["pickled"].problem
    assert found["unset"] == UserScoreValue()


def test_a_training_is_measured_with_its_scores(tmp_path: Path) -> None:
    run = run_record(user_scores=(WER, replace(WER, name="BLEU", path="bleu", lower_is_better=False)))
    write(tmp_path / "wer", "5.6\n")
    write(tmp_path / "bleu", "{}\n")
    local_run(tmp_path / run.directory, [dev(3.0), dev(2.0), dev(1.0)])
    found = measure(run, base=tmp_path, score="dev_loss_ce", lower_is_better=True)
    assert found.user_scores == {
        "dev-other WER": UserScoreValue(value=5.6),
        "BLEU": UserScoreValue(problem=f"{tmp_path}/bleu: must hold a number, found '{{}}'"),
    }
    assert Measurement.from_dict(json.loads(found.to_json()), source="results.json") == found


def test_a_result_from_before_there_were_scores_is_read(tmp_path: Path) -> None:
    local_run(tmp_path / "psync100", [dev(3.0), dev(2.0), dev(1.0)])
    found = measure(run_record(), base=tmp_path, score="dev_loss_ce", lower_is_better=True)
    plain = json.loads(found.to_json())
    del plain["user_scores"]
    for name in ("user_scores", "existing"):
        del plain["run"][name]
    assert Measurement.from_dict(plain, source="results.json") == found


def test_a_result_with_scores_of_another_form_is_refused(tmp_path: Path) -> None:
    plain = json.loads(measured(run_record(), [1.0]).to_json())
    with pytest.raises(ReadError, match=r"^r\.json: is not the result of a training: "):
        Measurement.from_dict({**plain, "user_scores": 3}, source="r.json")
    with pytest.raises(ReadError, match=r"^r\.json: UserScoreValue: expected a mapping, got 5\.6$"):
        Measurement.from_dict({**plain, "user_scores": {"WER": 5.6}}, source="r.json")


def test_a_row_shows_the_mean_over_its_seeds() -> None:
    """5.6 and 6.0 are 5.8; the third seed is still being recognised."""
    found = [scored(run_record(seed=seed), 2.0, wer) for seed, wer in ((1, 5.6), (2, 6.0), (3, UserScoreValue()))]
    for number, expected in ((2, (5.8, 2, None)), (3, (5.8, 2, None)), (1, (5.6, 1, None))):
        (row,) = table_of(*found[:number]).rows
        assert wer_of(row) == (pytest.approx(expected[0]), *expected[1:])


def test_the_trial_is_never_chosen_by_the_users_score() -> None:
    """Trial 1 has the better dev loss, trial 0 the better WER."""
    runs = [run_record(trial=trial, options={"lr": trial}) for trial in (0, 1)]
    (row,) = table_of(scored(runs[0], 2.0, 4.0), scored(runs[1], 1.9, 5.0)).rows
    assert (row.best_trial, wer_of(row)) == ("1 (lr=1)", (5.0, 1, None))


def test_a_score_that_is_missing_has_a_word() -> None:
    problem = UserScoreValue(problem="/job/output/wer: is nan")
    table = table_of(
        scored(run_record(row="ddp"), 2.0, 5.0),
        scored(run_record(row="waits"), 2.0, UserScoreValue()),
        scored(run_record(row="wrong"), 2.0, problem),
        scored(run_record(row="both", seed=1), 2.0, UserScoreValue()),
        scored(run_record(row="both", seed=2), 2.0, problem),
        scored(run_record(row="none"), 2.0, None),
    )
    assert {row.name: wer_of(row) for row in table.rows} == {
        "ddp": (5.0, 1, None),
        "waits": (None, 0, "waiting"),
        "wrong": (None, 0, "no number"),
        "both": (None, 0, "waiting"),
        "none": (None, 0, "not recorded"),
    }
    assert {row.name: [table.notes[letter] for letter in row.notes] for row in table.rows if row.notes} == {
        "wrong": ["'wrong': dev-other WER: /job/output/wer: is nan"],
        "both": ["'both' seed 2: dev-other WER: /job/output/wer: is nan"],
    }


def test_k25_a_training_that_came_to_nothing_gives_no_score() -> None:
    """K25: whatever its error rate says."""
    for state in ("failed", "diverged", "rejected", "unreadable"):
        lost = scored(run_record(seed=2), 0.1, 1.0, state)
        (row,) = table_of(scored(run_record(seed=1), 2.0, 5.0), lost).rows
        assert wer_of(row) == (5.0, 1, None)
        (row,) = table_of(lost).rows
        assert wer_of(row) == (None, 0, state)


def test_unfinished_seeds_are_not_mixed_with_finished_ones() -> None:
    found = [scored(run_record(seed=1), 2.0, 5.0), scored(run_record(seed=2), 1.0, 9.0, "running")]
    assert wer_of(table_of(*found).rows[0]) == (5.0, 1, None)
    assert wer_of(table_of(found[1]).rows[0]) == (9.0, 1, None)


def test_the_mean_is_over_the_seeds_that_the_row_is_of() -> None:
    """The second seed has no dev score, so that the row's own score is of the first alone."""
    no_dev = replace(scored(run_record(seed=2), 1.0, 9.0), best=None, last=None)
    (row,) = table_of(scored(run_record(seed=1), 2.0, 5.0), no_dev).rows
    assert (row.score_seeds, wer_of(row)) == (1, (5.0, 1, None))


def test_k31_a_training_without_dev_set_still_has_its_score(tmp_path: Path) -> None:
    runs = [run_record(seed=seed, user_scores=(replace(WER, path=f"wer{seed}"),)) for seed in (1, 2)]
    for run, state, num_epochs in zip(runs, ("finished", "running"), (3, 1), strict=True):
        local_run(tmp_path / run.directory, [epoch({"train_loss_ce": 1.0})] * num_epochs, state)
    write(tmp_path / "wer1", "5.6\n")
    write(tmp_path / "wer2", "9.0\n")
    local_run(tmp_path / "other", [dev(2.0)] * 3)
    write_sweep(tmp_path, sweep_record(*runs, run_record(row="other")))
    row = live_table(tmp_path).rows[0]
    assert (row.state, row.missing["score"], wer_of(row)) == ("1 of 2 running", "no dev set", (5.6, 1, None))


def shown_table() -> Table:
    long = "test-other WER with 4-gram LM and beam 128"
    values = {WER.name: 5.625, long: 12.3456, "BLEU": 0.34567}
    first = run_record(row="ddp")
    scores = tuple(UserScore(name=name, lower_is_better=name != "BLEU", path="x") for name in values)
    found = [
        measured(
            replace(run_record(seed=seed, trial=trial, options={"learning_rate": 0.5}), user_scores=scores),
            [2.0 + trial],
            user_scores={
                name: UserScoreValue(value=value) if seed == 1 or name == WER.name else UserScoreValue()
                for name, value in values.items()
            },
        )
        for trial in (0, 1)
        for seed in (1, 2)
    ]
    return table_of(measured(first, [2.0]), *found, baseline="ddp", target=2.0)


def test_text_with_three_scores_is_never_wider_than_120() -> None:
    text = render(shown_table())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(part in text for part in ("dev-other", "test-other", "BLEU", "5.62", "12.35", "0.3457"))


def test_the_columns_stand_before_the_state() -> None:
    lines = render(shown_table(), "markdown").splitlines()
    heads = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert heads[8:13] == [
        "difference",
        "dev-other WER",
        "test-other WER with 4-gram LM and beam 128",
        "BLEU",
        "state",
    ]
    ddp, psync = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:6])
    assert ddp[9:12] == ["not recorded"] * 3
    assert psync[9:12] == ["5.62", "12.35 (1 of 2)", "0.3457 (1 of 2)"]


def test_csv_and_json_have_full_values_and_numbers_of_seeds() -> None:
    table = shown_table()
    ddp, psync = csv.DictReader(io.StringIO(render(table, "csv")))
    keys = [key for key in psync if key.startswith(("score:", "score_seeds:"))]
    assert keys[:2] == ["score:dev-other WER", "score_seeds:dev-other WER"]
    assert [psync[key] for key in keys] == ["5.625", "2", "12.3456", "1", "0.34567", "1"]
    assert (ddp["score:BLEU"], ddp["score_seeds:BLEU"]) == ("", "0")
    assert "score:BLEU: not recorded" in ddp["missing"].split("; ")
    plain = json.loads(render(table, "json"))
    assert [plain["rows"][1][key] for key in keys] == [5.625, 2, 12.3456, 1, 0.34567, 1]
    assert plain["rows"][0]["score:BLEU"] is None
    assert plain["rows"][0]["missing"]["score:BLEU"] == "not recorded"
    assert not {"user_scores", "user_score_seeds"} & set(plain["rows"][0])
    assert plain["user_scores"][0] == {"name": "dev-other WER", "lower_is_better": True}


def test_the_footer_names_the_scores() -> None:
    table = shown_table()
    assert table.user_scores[2] == UserScoreHead(name="BLEU", lower_is_better=False)
    assert (
        "Scores that the recipe names: dev-other WER (lower is better), test-other WER with 4-gram LM and beam 128"
        " (lower is better), BLEU (higher is better). The trial is not chosen by them; each is the mean over those"
        " seeds of the trial that count and have it."
    ) in table.footer
    assert "recipe names" not in " ".join(table_of(measured(run_record(), [2.0])).footer)


def test_sweeps_that_disagree_about_a_score_are_not_compared(tmp_path: Path) -> None:
    for name, lower in (("a", True), ("b", False)):
        run = run_record(row=f"row {name}", user_scores=(replace(WER, lower_is_better=lower),))
        write_sweep(tmp_path / name, sweep_record(run))
    with pytest.raises(ReadError) as error:
        load([tmp_path / "a", tmp_path / "b"])
    assert str(error.value) == (
        "these cannot be compared: score 'dev-other WER': lower is better in row 'row a', higher is better in row"
        " 'row b'; one name is one column, give the other score a name of its own"
    )
