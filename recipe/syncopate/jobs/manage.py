"""
``sis manager -r`` for scripts: it asks nothing, shows progress, and fails when the sweep failed.

``sis manager`` itself asks questions where there is no terminal, and exits with 0 whatever became of the jobs. So it is
told beforehand what to do with old errors, and judged by the results alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from syncopate.compare.tables import measure_all
from syncopate.errors import SweepError, SyncopateError
from syncopate.launch.components import require_sisyphus
from syncopate.local.load import load_sweeps
from syncopate.local.progress import Progress
from syncopate.sweep.record import SWEEP_FILE, TABLE_DIRECTORY, SweepRecord

if TYPE_CHECKING:
    from syncopate.sweep.sweep import Sweep

OUTPUT = Path("output")
MANAGER_LOG = Path("log/manager.log")
LOCK = Path("work/.syncopate_manage.lock")
POLL_S = 1.0
STOP_LIMIT_S = 30.0


def manage(config: str, *, say: Callable[[str], None] = print) -> list[Path]:
    """
    :param config: a config such as ``configs/quickstart.py``, in a folder with a ``settings.py``
    :param say: takes each line of progress
    :return: the folder of each sweep, with its ``sweep.json`` and table
    :raises SyncopateError: if anything is not trained in the end, with the reasons
    """
    require_sisyphus()
    _check_folder(config)
    import sisyphus.toolkit  # noqa: F401  (finds recipes as `sis` does, and loads settings.py)

    sweeps = load_sweeps(config)
    Path("work").mkdir(exist_ok=True)
    MANAGER_LOG.parent.mkdir(exist_ok=True)
    folders = [OUTPUT / sweep.prefix for sweep in sweeps]
    old = {folder: _modified(folder / SWEEP_FILE) for folder in folders}
    with _only_manager() as lock, open(MANAGER_LOG, "ab") as log:
        offset = log.tell()
        process = subprocess.Popen(
            [*_sis(), "manager", "-r", "-co", "-cio", config],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            # i6_core looks for black there.
            env={**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])},
            # The manager holds the lock as long as it lives, also if we are killed.
            pass_fds=[lock],
        )
        assert process.stdin is not None
        # Asked only if all is done already: update outputs and aliases.
        process.stdin.write(b"u\n")
        process.stdin.close()
        try:
            _watch(process, old, refusals=_Refusals(offset), say=say)
        except BaseException:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
            say("The manager was stopped. Trainings that run go on, and are found again by the next start.")
            raise
    tail = MANAGER_LOG.read_bytes()[offset:].decode(errors="replace").strip().splitlines()[-20:]
    for sweep, folder in zip(sweeps, folders, strict=True):
        _judge(sweep, folder, old=old[folder], manager_log=tail)
    return folders


def _check_folder(config: str) -> None:
    if not os.path.isfile("settings.py"):
        raise SweepError(f"there is no settings.py in {os.getcwd()}; start in the folder of your Sisyphus setup")
    if os.path.isabs(config) or ".." in Path(config).parts:
        raise SweepError(f"the config {config!r} must be a path inside {os.getcwd()}, as `sis manager` takes it")


@contextmanager
def _only_manager() -> Iterator[int]:
    with open(LOCK, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SweepError(
                f"another manager works in {os.getcwd()} ({LOCK} is locked), two would train the same jobs twice; wait"
                " until it ends, or stop it (see `fuser -v " + str(LOCK) + "`)"
            ) from exc
        yield lock.fileno()


def _modified(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.is_file() else None


def _sis() -> list[str]:
    script = Path(sys.executable).with_name("sis")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "sisyphus"]


class _Refusals:
    """
    What sbatch says when it does not take a job. The manager tries again for ever, and tells its log alone.

    :param offset: where the log of this manager begins
    """

    _LINE = re.compile(rb"sbatch: error: (?!Memory spec)(.*)")
    _FOR_GOOD = re.compile(r"invalid (partition|account|qos|user|constraint|generic resource)|not available", re.I)

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._said: set[str] = set()

    def check(self, *, say: Callable[[str], None]) -> None:
        """
        :raises SweepError: if another try will not help
        """
        with open(MANAGER_LOG, "rb") as log:
            log.seek(self._offset)
            text = log.read()
        whole = text.rpartition(b"\n")[0]
        self._offset += len(whole)
        for found in self._LINE.findall(whole):
            line = re.sub(r"\x1b\[[0-9;]*m", "", found.decode(errors="replace")).strip()
            if self._FOR_GOOD.search(line):
                raise SweepError(
                    f"SLURM does not take a training: {line}. Compare partition, account and what a node has in"
                    f" settings.py with `sinfo`; the whole command is in {MANAGER_LOG}"
                )
            if line not in self._said:
                self._said.add(line)
                say(f"SLURM does not take a training, it will be tried again: {line}")


def _watch(
    process: subprocess.Popen[bytes],
    old: Mapping[Path, int | None],
    *,
    refusals: _Refusals,
    say: Callable[[str], None],
) -> None:
    progress: dict[Path, Progress] = {}
    while process.poll() is None:
        for folder, modified in old.items():
            record = folder / SWEEP_FILE
            if folder not in progress and _modified(record) != modified:
                progress[folder] = Progress(SweepRecord.read(record), base=folder, out=say)
                say(f"{folder}: {len(progress[folder].runs)} trainings")
            if folder in progress:
                progress[folder].poll()
        refusals.check(say=say)
        time.sleep(POLL_S)
    for one in progress.values():
        one.poll()


def _judge(sweep: Sweep, folder: Path, *, old: int | None, manager_log: list[str]) -> None:
    record = folder / SWEEP_FILE
    shown = "\n".join(["", f"The last lines of {MANAGER_LOG}:", *manager_log])
    if _modified(record) == old:
        raise SyncopateError(f"sweep {sweep.prefix!r}: `sis manager` ended before it registered the sweep{shown}")
    failed = [
        f"  {one.run.row}: {one.state}{f': {one.reason}' if one.reason else ''}"
        for one in measure_all(SweepRecord.read(record), base=folder)
        if one.state != "finished" and not one.run.existing
    ]
    if failed:
        listed = "\n".join(failed)
        raise SyncopateError(f"sweep {sweep.prefix!r}: not everything was trained:\n{listed}{shown}")
    table = folder / TABLE_DIRECTORY
    if not os.path.exists(table):
        raise SyncopateError(f"sweep {sweep.prefix!r}: everything was trained, but there is no {table}{shown}")
