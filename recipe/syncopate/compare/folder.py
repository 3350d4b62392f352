"""
What the folder of one training says about who works on it: the marks of a local run, or those of a Sisyphus job.

A local run keeps ``status.json`` in the folder. A Sisyphus job keeps empty marker files: ``error.<task>.<id>``,
``finished.<task>.<id>``, and for the whole job ``finished``, which becomes ``finished.tar.gz`` when the job is cleaned
(then the logs are in the archive and ``work`` is gone). A task that runs rewrites ``usage.<task>.<id>`` once a minute.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from syncopate.compare.failure import bounded, is_nonfinite, nonfinite_from_logs, reason_from_logs
from syncopate.errors import ReadError

STATUS_FILE = "status.json"
ALIVE_FOR_S = 300.0
"""How old the newest sign of a Sisyphus task may be for it to count as running: it signs once a minute, and a network
file system may be late."""

_LOCAL_STATES = ("running", "failed", "finished")


@dataclass(frozen=True, kw_only=True)
class FolderState:
    """
    :param mark: "absent" (nothing was ever started), "running", "stopped" (started, but nothing works on it), "failed"
        or "finished"
    :param reason: why, where it needs one
    :param is_nonfinite: whether it failed because a loss was not finite
    :param remark: a sentence for the reader that does not change the state
    :param is_there: whether there is a folder at all
    """

    mark: str
    reason: str | None = None
    is_nonfinite: bool = False
    remark: str | None = None
    is_there: bool = True


def look_at(directory: Path) -> FolderState:
    """
    :param directory: of one training
    :return: what its marks say
    :raises ReadError: if a ``status.json`` is not what the local runner writes
    """
    if not directory.is_dir():
        return FolderState(mark="absent", reason=f"its folder {directory} is not there", is_there=False)
    status = directory / STATUS_FILE
    return _local(status) if status.is_file() else _sisyphus(directory)


def _local(status: Path) -> FolderState:
    try:
        plain = json.loads(status.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ReadError(f"{status}: cannot be read as the status of a local run: {exc}") from exc
    state = plain.get("state") if isinstance(plain, dict) else None
    if state not in _LOCAL_STATES:
        raise ReadError(f"{status}: 'state' must be one of {list(_LOCAL_STATES)}, got {state!r}")
    if state == "failed":
        reason = str(plain.get("reason") or "its status gives no reason")
        return FolderState(mark="failed", reason=bounded(reason), is_nonfinite=is_nonfinite(reason))
    if state == "running" and not _may_be_alive(plain.get("host"), plain.get("pid")):
        return FolderState(mark="stopped", reason=f"the process {plain.get('pid')} that trained it is gone")
    return FolderState(mark=state)


def _sisyphus(directory: Path) -> FolderState:
    """
    A task in error makes the job failed, whatever else is marked (another node may well have finished), with one
    exception: once ``run`` is finished, the training is, even if plotting it failed.
    """
    errors = _marks(directory, "error")
    failed = errors.get("run", [])
    ended = bool(_marks(directory, "finished").get("run")) or any(
        (directory / name).is_file() for name in ("finished", "finished.tar.gz")
    )
    if not failed and not ended:
        failed = [path for paths in errors.values() for path in paths]
    if failed:
        logs = [log for path in failed for log in _logs_of(path)]
        if nonfinite := nonfinite_from_logs(logs):
            return FolderState(mark="failed", reason=nonfinite, is_nonfinite=True)
        return FolderState(
            mark="failed", reason=reason_from_logs(logs) or f"marked by {failed[0].name}, and no log says why"
        )
    if ended:
        remark = f"trained, but then the task {sorted(errors)[0]!r} of its job failed" if errors else None
        return FolderState(mark="finished", remark=remark)
    logs = sorted(directory.glob("log.run.*"))
    if not logs:
        return FolderState(mark="absent", reason="its job has not started yet")
    return _running_or_stopped(sorted(directory.glob("usage.run.*")), logs)


def _running_or_stopped(usages: Iterable[Path], logs: Iterable[Path]) -> FolderState:
    """
    A process of this host is asked for by its id. Of another host nothing can be asked: there the task counts as
    running while its usage or log file is younger than :data:`ALIVE_FOR_S`.
    """
    known = [(usage, *_process_of(usage)) for usage in usages]
    here = [pid for _, host, pid in known if host == socket.gethostname()]
    if here and len(here) == len(known):
        if any(_may_be_alive(socket.gethostname(), pid) for pid in here):
            return FolderState(mark="running")
        return FolderState(mark="stopped", reason=f"the process {here[0]} that trained it is gone")
    newest = max((_modified(path) for path in (*logs, *(usage for usage, *_ in known))), default=0.0)
    if time.time() - newest <= ALIVE_FOR_S:
        return FolderState(mark="running")
    return FolderState(mark="stopped", reason="neither its log nor its usage file changed lately")


def _marks(directory: Path, state: str) -> dict[str, list[Path]]:
    """:return: marker files ``<state>.<task>.<id>`` by task"""
    marks: dict[str, list[Path]] = {}
    for path in sorted(directory.glob(f"{state}.*.*")):
        task, _, task_id = path.name.removeprefix(f"{state}.").rpartition(".")
        if task_id.isdigit():
            marks.setdefault(task, []).append(path)
    return marks


def _logs_of(error: Path) -> list[Path]:
    """:return: the logs of a failed task; several where it ran on several nodes"""
    name = "log." + error.name.removeprefix("error.")
    return [*error.parent.glob(name), *sorted(error.parent.glob(f"{name}.[0-9]*"))]


def _process_of(usage: Path) -> tuple[str | None, int | None]:
    """:return: host and pid; None where the file is being rewritten just now"""
    try:
        plain = ast.literal_eval(usage.read_text(encoding="utf-8"))
        return str(plain["host"]), int(plain["pid"])
    except (OSError, ValueError, SyntaxError, KeyError, TypeError):
        return None, None


def _may_be_alive(host: object, pid: object) -> bool:
    """:return: False only if it is known that the process is gone"""
    if host != socket.gethostname() or not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # it lives, as another user
    return True


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # gone between listing and looking
