from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncopate.errors import LaunchError
from syncopate.launch.attempts import ATTEMPTS_FILE, begin_attempt, note_end, superseded_by


def begin(run_dir: Path, *attempts: str, progress: float | None = None, max_starts: int | None = 3) -> None:
    for attempt in attempts:
        begin_attempt(run_dir, attempt, progress=progress, max_starts=max_starts)


def listed_in(error: LaunchError) -> list[str]:
    """:return: the starts that it names"""
    return [line.split(":")[0].strip() for line in str(error).splitlines() if line.startswith("  ")]


def test_the_start_after_too_many_in_vain_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, "1.0.train")
    note_end(tmp_path, "1.0.train", "rank 3 on node 1 was killed by SIGKILL (signal 9).\nLast lines of a log:\n    x")
    begin(tmp_path, "1.1.train")
    note_end(tmp_path, "1.1.train", "")
    begin(tmp_path, "2.0.train")
    with pytest.raises(LaunchError) as caught:
        begin(tmp_path, "3.0.train")
    assert str(caught.value) == (
        "this training was started 3 times in a row without finishing another epoch, so it is not started again. How"
        " the starts ended:\n"
        "  1.0.train: rank 3 on node 1 was killed by SIGKILL (signal 9).\n"
        "  1.1.train: no reason given\n"
        "  2.0.train: gone without a word: killed with SIGKILL, its node was lost, or the host ran out of memory\n"
        f"Their logs are in {tmp_path / 'logs'}. Remove the cause, then remove error.run.1 from {tmp_path} to go on"
        " from the last checkpoint."
    )


def test_any_number_of_starts(tmp_path: Path) -> None:
    begin(tmp_path, *map(str, range(20)), max_starts=None)
    with pytest.raises(LaunchError, match=r"^this training was started 20 times in a row"):
        begin(tmp_path, "20", max_starts=20)


def test_progress_begins_a_new_count(tmp_path: Path) -> None:
    begin(tmp_path, "a", "b", "c")
    begin(tmp_path, "d", progress=1)
    begin(tmp_path, "e", "f", progress=1)
    with pytest.raises(LaunchError, match=r"was started 3 times in a row") as caught:
        begin(tmp_path, "g", progress=1)
    assert listed_in(caught.value) == ["d", "e", "f"]
    begin(tmp_path, "h", progress=1.5)


def test_starts_that_each_bring_progress_are_never_refused(tmp_path: Path) -> None:
    """A job of many time limits."""
    for epoch in range(10):
        begin(tmp_path, str(epoch), progress=epoch, max_starts=1)


def test_less_than_before_is_no_progress(tmp_path: Path) -> None:
    """The last checkpoint was lost, say."""
    begin(tmp_path, "a", "b", progress=3)
    begin(tmp_path, "c", progress=2)
    with pytest.raises(LaunchError, match=r"was started 3 times in a row"):
        begin(tmp_path, "d", progress=2)


def test_a_refused_start_begins_a_new_count(tmp_path: Path) -> None:
    """Who removes the error gets as many starts again."""
    begin(tmp_path, "a", "b", "c")
    with pytest.raises(LaunchError):
        begin(tmp_path, "d")
    begin(tmp_path, "e", "f", "g")
    with pytest.raises(LaunchError) as caught:
        begin(tmp_path, "h")
    assert listed_in(caught.value) == ["e", "f", "g"]


@pytest.mark.parametrize(
    "torn", ['{"attempt": "x", "prog', "\0\0\0", '{"attempt": "x", "progress": 0.0, "refused": fal\n']
)
def test_a_line_that_a_kill_has_torn_is_skipped(tmp_path: Path, torn: str) -> None:
    """And does not swallow the next one."""
    begin(tmp_path, "a", "b")
    with (tmp_path / ATTEMPTS_FILE).open("a") as file:
        file.write(torn)
    begin(tmp_path, "c")
    assert superseded_by(tmp_path, "c") is None
    with pytest.raises(LaunchError, match=r"was started 3 times in a row") as caught:
        begin(tmp_path, "d")
    assert listed_in(caught.value) == ["a", "b", "c"]


def test_every_start_and_end_is_a_line(tmp_path: Path) -> None:
    begin(tmp_path, "a", progress=2)
    note_end(tmp_path, "a", "told to end")
    lines = [json.loads(line) for line in (tmp_path / ATTEMPTS_FILE).read_text().splitlines() if line]
    assert [{name: value for name, value in line.items() if name != "time_s"} for line in lines] == [
        {"attempt": "a", "progress": 2, "refused": False},
        {"end_of": "a", "reason": "told to end"},
    ]
    assert 0 < lines[0]["time_s"] <= lines[1]["time_s"]


def test_the_newest_start_counts(tmp_path: Path) -> None:
    assert superseded_by(tmp_path, "a") is None, "nothing is noted"
    begin(tmp_path, "a")
    assert superseded_by(tmp_path, "a") is None
    begin(tmp_path, "b")
    assert superseded_by(tmp_path, "a") == "b"
    assert superseded_by(tmp_path, "b") is None
    note_end(tmp_path, "a", "a newer start of this training, b, took over; a ends")
    assert superseded_by(tmp_path, "b") is None, "the end of an older one is no start"
    begin(tmp_path, "c")
    assert superseded_by(tmp_path, "a") == superseded_by(tmp_path, "b") == "c"


def test_the_folder_need_not_be_there(tmp_path: Path) -> None:
    begin(tmp_path / "job" / "run", "a")
    assert (tmp_path / "job" / "run" / ATTEMPTS_FILE).exists()
