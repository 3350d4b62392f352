from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.compare.measurement import measure
from syncopate.compare.read import load
from syncopate.compare.references import Reference, read_references
from syncopate.errors import ReadError
from syncopate.sweep.record import RunRecord
from tests.compare.helpers import dev, local_run, run_record, sweep_record, write, write_sweep

BIGRAM = {"bigram": {"value": 2.45, "unit": "nats/char"}}


def trained(base: Path, run: RunRecord, *values: float) -> RunRecord:
    local_run(base / run.directory, [dev(value) for value in values])
    return run


def result(base: Path, run: RunRecord, *values: float) -> Path:
    """Writes the results.json of one training."""
    trained(base, run, *values)
    found = measure(run, base=base, score="dev_loss_ce", lower_is_better=True)
    return write(base / run.directory / "results.json", found.to_json())


def test_a_sweep_is_found_by_its_file_or_its_folder(tmp_path: Path) -> None:
    file = write_sweep(tmp_path, sweep_record(trained(tmp_path, run_record(), 3.0, 2.0, 1.0)))
    for path in (file, str(file), tmp_path):
        loaded = load([path])
        assert [found.best.value for found in loaded.measurements if found.best] == [1.0]
        assert loaded.sweep.prefix == "demo/sync"


def test_a_record_of_a_sweep_may_have_another_name(tmp_path: Path) -> None:
    file = write_sweep(tmp_path, sweep_record(run_record()))
    assert load([file.rename(tmp_path / "old.json")]).measurements[0].state == "waiting"


def test_the_trainings_of_a_sweep_lie_beside_it_wherever_it_is_moved(tmp_path: Path) -> None:
    run = trained(tmp_path / "here", run_record(), 3.0, 2.0, 1.0)
    write_sweep(tmp_path / "here", sweep_record(run))
    (tmp_path / "here").rename(tmp_path / "there")
    assert load([tmp_path / "there"]).measurements[0].state == "finished"


def test_results_of_single_trainings_are_compared(tmp_path: Path) -> None:
    """Two seeds of one row from two files, another row from the output of a job."""
    first = result(tmp_path, run_record(seed=1), 3.0, 2.0, 1.0)
    second = result(tmp_path, run_record(seed=2), 3.0, 2.0, 1.5)
    other = result(tmp_path, run_record(row="ddp"), 3.0, 2.0, 2.5)
    write(tmp_path / "job" / "output" / "results.json", other.read_text(encoding="utf-8"))
    loaded = load([first.parent, second, tmp_path / "job"])
    assert [(found.run.row, found.run.seed) for found in loaded.measurements] == [
        ("psync100", 1),
        ("psync100", 2),
        ("ddp", None),
    ]
    assert loaded.sweep.runs == tuple(found.run for found in loaded.measurements)
    assert (loaded.sweep.score, loaded.sweep.baseline, loaded.sweep.prefix) == ("dev_loss_ce", None, "single trainings")


def test_the_same_training_twice_is_refused(tmp_path: Path) -> None:
    first = result(tmp_path, run_record(), 3.0)
    copy = write(tmp_path / "copy" / "results.json", first.read_text(encoding="utf-8"))
    with pytest.raises(ReadError) as error:
        load([first, copy])
    assert str(error.value) == f"{copy}: row 'psync100', trial 0, seed None is also in {first}; name one of them"
    assert len(load([first, first.parent]).measurements) == 1  # one and the same file, named twice


def test_rows_of_the_same_name_in_two_sweeps_are_told_apart(tmp_path: Path) -> None:
    ddp, psync = run_record(row="ddp"), run_record()
    for name, rows in (("a", (ddp, psync)), ("b", (ddp,))):
        for run in rows:
            trained(tmp_path / name, run, 3.0)
        write_sweep(tmp_path / name, sweep_record(*rows, prefix=f"exp/{name}", baseline="ddp", same_budget=name == "a"))
    loaded = load([tmp_path / "a", tmp_path / "b"])
    rows_found = [run.row for run in loaded.sweep.runs]
    assert rows_found == ["ddp [exp/a]", "psync100", "ddp [exp/b]"]
    assert [found.run.row for found in loaded.measurements] == rows_found
    assert (loaded.sweep.baseline, loaded.sweep.prefix) == ("ddp [exp/a]", "exp/a + exp/b")
    assert not loaded.sweep.same_budget


def test_sweeps_of_the_same_prefix_are_numbered(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_sweep(tmp_path / name, sweep_record(run_record()))
    loaded = load([tmp_path / "a", tmp_path / "b"])
    assert [run.row for run in loaded.sweep.runs] == ["psync100 [demo/sync #1]", "psync100 [demo/sync #2]"]


def test_another_score_can_be_asked_for(tmp_path: Path) -> None:
    write_sweep(tmp_path, sweep_record(trained(tmp_path, run_record(), 3.0, 2.0, 1.0)))
    loaded = load([tmp_path], score="train_loss_ce", lower_is_better=False)
    assert (loaded.sweep.score, loaded.sweep.lower_is_better) == ("train_loss_ce", False)
    best = loaded.measurements[0].best
    assert best is not None
    assert (best.epoch, best.value) == (1, 3.5)


def test_references_are_relative_to_the_sweep(tmp_path: Path) -> None:
    write(tmp_path / "data" / "scores.json", json.dumps(BIGRAM))
    write_sweep(tmp_path / "sweep", sweep_record(run_record(), references="../data/scores.json"))
    assert load([tmp_path / "sweep"]).references == {"bigram": Reference(value=2.45, unit="nats/char")}


def test_references_that_are_missing_are_said_but_stop_nothing(tmp_path: Path) -> None:
    write_sweep(tmp_path, sweep_record(run_record(), references="scores.json"))
    loaded = load([tmp_path])
    assert loaded.references == {}
    assert loaded.references_problem == (
        f"{tmp_path}/scores.json: the references cannot be read: No such file or directory"
    )


def test_references_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for name, value in (("a", 2.45), ("b", 2.5)):
        write(tmp_path / name / "scores.json", json.dumps({"bigram": {"value": value, "unit": "nats/char"}}))
        write_sweep(tmp_path / name, sweep_record(run_record(), references="scores.json"))
    with pytest.raises(ReadError, match=r"^reference 'bigram' is 2\.45 in one sweep and 2\.5 in another: their scores"):
        load([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the references are no JSON: "),
        ("[1]", 'expected references {name: {"value": number, "unit": text}}, got [1]'),
        (
            '{"bigram": 2.45}',
            'reference \'bigram\' must be {"value": number, "unit": text} with a finite number, got 2.45',
        ),
        ('{"bigram": {"value": NaN, "unit": ""}}', "reference 'bigram' must be"),
    ],
)
def test_references_of_another_form_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "scores.json", text)
    with pytest.raises(ReadError) as error:
        read_references(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_paths_that_hold_nothing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=rf"^{tmp_path}/none: there is no such file or folder$"):
        load([tmp_path / "none"])
    with pytest.raises(ReadError) as error:
        load([tmp_path])
    assert str(error.value) == (
        f"{tmp_path}: has nothing to compare, looked for sweep.json, results.json, output/results.json,"
        " output/learning_rates, work/learning_rates, learning_rates"
    )
    with pytest.raises(ReadError, match=r"^nothing to compare: name at least one"):
        load([])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sweep.json", "{", "cannot be read as the record of a sweep: "),
        ("results.json", "{", "cannot be read as sweep.json or results.json: "),
        ("notes.txt", "hello", "cannot be read as sweep.json or results.json: "),
        ("results.json", "[]", "expected the result of a training, got list"),
        ("other.json", "{}", "expected the result of a training in format 1: None"),
    ],
)
def test_files_of_another_form_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(ReadError) as error:
        load([path])
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_result_keeps_its_numbers_when_its_folder_is_gone(tmp_path: Path) -> None:
    path = result(tmp_path, run_record(), 3.0, 2.0, 1.0)
    moved = path.rename(tmp_path / "kept.json")
    (tmp_path / "psync100").rename(tmp_path / "gone")
    (found,) = load([moved]).measurements
    assert (found.state, found.updates) == ("finished", 750)
    assert found.run == replace(run_record())
