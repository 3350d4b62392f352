"""
What the launchers of the nodes of one training tell each other: a small file per node in the job's folder, which all of
them see.

A file is rewritten in place every few seconds. In place, since on a network file system a replaced file can be seen
late; a reader that meets a half-written one keeps what it read before. That a node lives is seen from a number that
grows, and how long it has not grown is measured by the reader's own clock: clocks of hosts differ.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncopate.errors import LaunchError
from syncopate.launch.place import Meeting

STATES = ("starting", "running", "done", "complete", "ended")
BEAT_S = 5.0
SILENCE_LIMIT_S = 30.0
"""After how long without a sign a node counts as gone."""
_COUNTED_GAP_S = 3.0
"""What one look can add to a silence. If the file system, or this host, stands still, nobody is blamed for that."""
_LIMIT_OF_REASON = 16_000


@dataclass(frozen=True, kw_only=True)
class NodeEnd:
    """
    Why a node ended before the training was done.

    :param kind: "failed"; "stopped": it is to be started again and nothing is wrong; "host_memory": the host ran out of
        memory
    :param reason: what happened, with the last lines of a log where there are some
    :param time_s: when, in seconds since 1970
    :param is_cause: False if it ended because of another node, or probably so
    """

    kind: str
    reason: str
    time_s: float
    is_cause: bool = True


@dataclass(frozen=True, kw_only=True)
class NodeNote:
    """
    What one launcher tells the others.

    :param node: its number
    :param host: its name in SLURM
    :param machine: name of the host by itself
    :param pid: of the launcher
    :param state: "starting"; "running": its agent was started; "done": its agent ended well; "complete": all did, and
        outputs are written; "ended": before that, see ``end``
    :param beat: grows as long as it lives
    :param meeting: where the agents meet, said by the first node
    :param end: why it ended
    """

    node: int
    host: str
    machine: str
    pid: int
    state: str
    beat: int = 0
    meeting: Meeting | None = None
    end: NodeEnd | None = None

    @property
    def name(self) -> str:
        """It, for a reader."""
        return f"node {self.node} (host {self.host})"


class Board:
    """
    All notes of one start of a training. While it is entered, the own note is kept fresh by a thread.

    :param folder: of the notes
    :param hosts: names of the nodes
    :param node: whose note is written here; None to read only
    :raises LaunchError: on entering, if the note is there already
    """

    def __init__(self, folder: Path, *, hosts: Sequence[str], node: int | None) -> None:
        self.folder = folder
        self.hosts = tuple(hosts)
        self.node = node
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._own: NodeNote | None = None
        self._seen: dict[int, NodeNote] = {}
        self._silent_s = dict.fromkeys(range(len(hosts)), 0.0)
        self._looked_at_s = time.monotonic()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.node is None:
            return self
        path = self._path(self.node)
        try:
            path.open("xb").close()
        except FileExistsError:
            raise LaunchError(
                f"node {self.node} of {self.folder.parent.name} was started before, {path} exists: what one SLURM job"
                " starts more than once needs a key of its own each time"
            ) from None
        self._own = NodeNote(
            node=self.node,
            host=self.hosts[self.node],
            machine=socket.gethostname(),
            pid=os.getpid(),
            state="starting",
        )
        self._write()
        self._thread = threading.Thread(target=self._keep_fresh, name="syncopate board", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def post(self, state: str, **changes: Any) -> None:
        """
        :param state: one of :data:`STATES`
        :param changes: other fields of the own note
        """
        assert state in STATES
        with self._lock:
            assert self._own is not None
            self._own = replace(self._own, state=state, **changes)
        self._write()

    def look(self) -> list[NodeNote | None]:
        """:return: all notes by number of the node, None for those that are not there yet"""
        now_s = time.monotonic()
        gap_s = min(now_s - self._looked_at_s, _COUNTED_GAP_S)
        self._looked_at_s = now_s
        for node in self._silent_s:
            note = self._read(node)
            before = self._seen.get(node)
            if note is None or (before is not None and (note.beat, note.state) == (before.beat, before.state)):
                self._silent_s[node] += gap_s
            else:
                self._silent_s[node] = 0.0
            if note is not None:
                self._seen[node] = note
        return [self._seen.get(node) for node in self._silent_s]

    def silent_s(self, node: int) -> float:
        """
        :param node: number of a node
        :return: for how long it has given no sign, or has not appeared, as of the last look
        """
        return self._silent_s[node]

    def _path(self, node: int) -> Path:
        return self.folder / f"node{node}.json"

    def _keep_fresh(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                self._write()
            except OSError as exc:
                print(f"syncopate: the note of this node could not be written ({exc}); trying again", flush=True)

    def _write(self) -> None:
        with self._lock:
            assert self._own is not None
            self._own = replace(self._own, beat=self._own.beat + 1)
            text = json.dumps(asdict(self._own)).encode()
            with self._path(self._own.node).open("r+b") as file:
                file.write(text)
                file.truncate()

    def _read(self, node: int) -> NodeNote | None:
        try:
            return note_from_json(self._path(node).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # not there yet, being written just now, or the file system stands still: a silence


def note_from_json(text: str) -> NodeNote:
    """
    :param text: of the file
    :raises ValueError: if it is not whole
    """
    fields = json.loads(text)
    meeting, end = fields.pop("meeting"), fields.pop("end")
    return NodeNote(**fields, meeting=Meeting(**meeting) if meeting else None, end=NodeEnd(**end) if end else None)


def end_now(kind: str, reason: str, *, is_cause: bool = True) -> NodeEnd:
    """:return: an end as of now; of a reason that is too long the end is kept, which says most"""
    if len(reason) > _LIMIT_OF_REASON:
        head, tail = reason[:2000], reason[-(_LIMIT_OF_REASON - 2000) :]
        reason = f"{head}\n[...]\n{tail}"
    return NodeEnd(kind=kind, reason=reason, time_s=time.time(), is_cause=is_cause)


def root_cause(notes: Sequence[NodeNote | None]) -> NodeEnd | None:
    """
    The one end that all nodes report, the same on each.

    :param notes: of all nodes
    :return: the earliest end that is a cause; None if no node ended. Stops come before failures that may have followed
        from them: where a node was told to stop, the others lose their connections.
    """
    ends = [note.end for note in notes if note is not None and note.end is not None]
    causes = [end for end in ends if end.is_cause] or ends
    return min(causes, key=lambda end: end.time_s, default=None)
