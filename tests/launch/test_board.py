"""What the launchers of two nodes tell each other, with both of them in one process."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.errors import LaunchError
from syncopate.launch import board
from syncopate.launch.board import Board, NodeEnd, NodeNote, end_now, note_from_json, root_cause
from syncopate.launch.place import Meeting

HOSTS = ("nodea", "nodeb")
MEETING = Meeting(host="nodea", port=24711, id="4711.0.train")
LIMIT_S = 20.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Nobody keeps a note fresh by itself, and the time is ours."""
    clock = Clock()
    monkeypatch.setattr(board, "BEAT_S", 1000.0)
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def board_of(folder: Path, node: int | None) -> Board:
    return Board(folder / "4711.0.train" / "nodes", hosts=HOSTS, node=node)


def note_file(folder: Path, node: int) -> Path:
    return folder / "4711.0.train" / "nodes" / f"node{node}.json"


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_one_posts_the_other_reads(tmp_path: Path) -> None:
    with board_of(tmp_path, 0) as first:
        assert first.look()[1] is None, "not there yet"
        with board_of(tmp_path, 1) as second:
            first.post("running", meeting=MEETING)
            end = end_now("failed", "no more disk")
            second.post("ended", end=end)
            for reader in (first, second, board_of(tmp_path, None)):
                one, two = reader.look()
                assert one is not None
                assert two is not None
                assert (one.state, one.meeting, one.end) == ("running", MEETING, None)
                assert (two.state, two.meeting, two.end) == ("ended", None, end)
                assert (two.node, two.host, two.name) == (1, "nodeb", "node 1 (host nodeb)")
                assert (two.machine, two.pid) == (socket.gethostname(), os.getpid())


def test_a_later_post_keeps_what_was_said_before(tmp_path: Path) -> None:
    """Also the end of a longer text must not remain in the file."""
    with board_of(tmp_path, 0) as first:
        first.post("running", meeting=MEETING)
        first.post("ended", end=end_now("failed", "x" * 5000))
        first.post("done", end=None)
        note = board_of(tmp_path, None).look()[0]
    assert note is not None
    assert (note.state, note.meeting, note.end) == ("done", MEETING, None)
    json.loads(note_file(tmp_path, 0).read_text())


def test_an_unknown_state_is_not_posted(tmp_path: Path) -> None:
    with board_of(tmp_path, 0) as first, pytest.raises(AssertionError):
        first.post("finished")


@pytest.mark.parametrize("torn", ["", "{", '{"node": 1, "host"', "old end after the new one", "\0" * 100])
def test_a_half_written_note_is_as_if_unread(tmp_path: Path, torn: str) -> None:
    with board_of(tmp_path, 0) as first, board_of(tmp_path, 1) as second:
        second.post("running")
        first.look()
        path = note_file(tmp_path, 1)
        whole = path.read_text()
        path.write_text(whole + whole[-20:] if torn.startswith("old end") else torn)
        kept = first.look()[1]
        assert kept is not None
        assert kept.state == "running"
        assert board_of(tmp_path, None).look()[1] is None
        second.post("done")
        after = first.look()[1]
        assert after is not None
        assert after.state == "done"


def test_a_note_is_kept_fresh_as_long_as_it_is_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "BEAT_S", 0.05)
    reader = board_of(tmp_path, None)

    def beat() -> int:
        note = reader.look()[0]
        assert note is not None
        return note.beat

    with board_of(tmp_path, 0):
        first = beat()
        wait_for(lambda: beat() > first + 3)
    last = beat()
    time.sleep(0.5)
    assert beat() == last


def test_a_full_disk_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It says so, and writes again when it can."""
    monkeypatch.setattr(board, "BEAT_S", 0.05)
    reader = board_of(tmp_path, None)
    with board_of(tmp_path, 0):
        path = note_file(tmp_path, 0)
        path.unlink()
        wait_for(lambda: "could not be written" in capfd.readouterr().out)
        path.touch()
        wait_for(lambda: reader.look()[0] is not None)


def test_silence_is_counted_by_the_clock_of_the_reader(tmp_path: Path, clock: Clock) -> None:
    with board_of(tmp_path, 0) as first, board_of(tmp_path, 1) as second:
        first.look()
        assert first.silent_s(1) == 0
        for second_s in (2.0, 4.0, 6.0):
            clock.now_s += 2.0
            first.look()
            assert first.silent_s(1) == second_s
        assert second.silent_s(1) == 0, "as of its own last look"
        second.post("running")
        clock.now_s += 2.0
        first.look()
        assert first.silent_s(1) == 0
        clock.now_s += 1.0
        first.look()
        assert first.silent_s(1) == 1


def test_who_never_appeared_is_silent_from_the_beginning(tmp_path: Path, clock: Clock) -> None:
    with board_of(tmp_path, 0) as first:
        for _ in range(3):
            clock.now_s += 1.5
            first.look()
        assert first.silent_s(1) == 4.5
        with board_of(tmp_path, 1):
            first.look()
            assert first.silent_s(1) == 0


def test_a_half_written_note_is_no_sign_of_life(tmp_path: Path, clock: Clock) -> None:
    with board_of(tmp_path, 0) as first, board_of(tmp_path, 1):
        first.look()
        note_file(tmp_path, 1).write_text("{")
        clock.now_s += 2.0
        first.look()
        assert first.silent_s(1) == 2


def test_nobody_is_blamed_when_the_reader_itself_stood_still(tmp_path: Path, clock: Clock) -> None:
    """This host was suspended, or the file system did not answer for an hour: one look adds little."""
    with board_of(tmp_path, 0) as first, board_of(tmp_path, 1):
        first.look()
        clock.now_s += 3600.0
        first.look()
        assert first.silent_s(1) == 3
        clock.now_s += 3600.0
        first.look()
        assert first.silent_s(1) == 6
        assert board.SILENCE_LIMIT_S > 6


def test_started_twice(tmp_path: Path) -> None:
    for _ in range(2):  # also after it ended
        with board_of(tmp_path, 0) as first:
            first.post("done")
            with pytest.raises(LaunchError) as caught, board_of(tmp_path, 0):
                pass
            assert str(caught.value) == (
                f"node 0 of 4711.0.train was started before, {note_file(tmp_path, 0)} exists: what one SLURM job starts"
                " more than once needs a key of its own each time"
            )
            note = board_of(tmp_path, None).look()[0]
            assert note is not None
            assert note.state == "done", "the first one's note stays as it is"
        note_file(tmp_path, 0).unlink()


def test_reading_alone_leaves_nothing(tmp_path: Path) -> None:
    with board_of(tmp_path, None) as reader:
        assert reader.look() == [None, None]
    assert list((tmp_path / "4711.0.train" / "nodes").iterdir()) == []


def note(node: int, end: NodeEnd | None = None, **kwargs: object) -> NodeNote:
    fields = {"node": node, "host": HOSTS[node % 2], "machine": "m", "pid": 1, "state": "ended" if end else "running"}
    return NodeNote(**{**fields, **kwargs}, end=end)  # type: ignore[arg-type]


def failed(time_s: float, **kwargs: bool) -> NodeEnd:
    return NodeEnd(kind="failed", reason=f"failed at {time_s}", time_s=time_s, **kwargs)


def stopped(time_s: float) -> NodeEnd:
    return NodeEnd(kind="stopped", reason=f"stopped at {time_s}", time_s=time_s)


def test_nobody_ended() -> None:
    assert root_cause([]) is None
    assert root_cause([None, note(1)]) is None


def test_a_cause_comes_before_what_may_have_followed_from_it() -> None:
    """Even if those were quicker."""
    late = failed(12.0)
    early = failed(10.0, is_cause=False)
    assert root_cause([note(0, early), note(1, late)]) == late
    assert root_cause([note(0, late), note(1, early), None]) == late


def test_the_earliest_of_equals() -> None:
    ends = [failed(11.0), failed(10.0), failed(12.0)]
    assert root_cause([note(number, end) for number, end in enumerate(ends)]) == ends[1]
    ends = [replace(end, is_cause=False) for end in ends]
    assert root_cause([note(number, end) for number, end in enumerate(ends)]) == ends[1]


def test_a_stop_comes_before_a_failure_that_followed_it() -> None:
    """The others lose their connections: that is no failure, the training is to be started again."""
    assert root_cause([note(0, failed(11.0)), note(1, stopped(10.0))]) == stopped(10.0)
    assert root_cause([note(0, failed(9.0, is_cause=False)), note(1, stopped(10.0))]) == stopped(10.0)


def test_a_failure_before_a_stop_counts() -> None:
    """A job may be stopped because of it."""
    assert root_cause([note(0, failed(10.0)), note(1, stopped(11.0))]) == failed(10.0)


def test_all_nodes_find_the_same(tmp_path: Path) -> None:
    """Times go through the files unchanged."""
    with board_of(tmp_path, 0) as first, board_of(tmp_path, 1) as second:
        first.post("ended", end=end_now("failed", "one"))
        second.post("ended", end=end_now("failed", "two"))
        found = [root_cause(reader.look()) for reader in (first, second)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].reason == "one"


def test_a_note_that_is_read_again_is_the_same() -> None:
    full = note(1, failed(10.5, is_cause=False), meeting=MEETING, beat=7)
    text = json.dumps(
        {
            "node": 1,
            "host": "nodeb",
            "machine": "m",
            "pid": 1,
            "state": "ended",
            "beat": 7,
            "meeting": {"host": "nodea", "port": 24711, "id": "4711.0.train"},
            "end": {"kind": "failed", "reason": "failed at 10.5", "time_s": 10.5, "is_cause": False},
        }
    )
    assert note_from_json(text) == full


def test_of_a_long_reason_head_and_end_are_kept() -> None:
    """The first line names who failed, the last ones why."""
    reason = "\n".join(["rank 1 failed", *("x" * 100 for _ in range(1000)), "ValueError: at last"])
    end = end_now("failed", reason)
    assert len(end.reason) < 17_000
    first, *_, last = end.reason.splitlines()
    assert (first, last) == ("rank 1 failed", "ValueError: at last")
    assert re.search(r"x\n\[\.\.\.\]\nx", end.reason)
    assert end_now("failed", "short").reason == "short"
    assert abs(end.time_s - time.time()) < LIMIT_S
