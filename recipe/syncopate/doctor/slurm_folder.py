"""A folder like that of the setup, but with jobs, outputs and aliases of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".syncopate-doctor."
WORK = "work"
_OWN = (WORK, "output", "alias", "log")
_REMOVE_LIMIT_S = 15.0
"""On a network file system, files stay as long as a process on another host has them open."""


@contextmanager
def folder_like(setup: Path, *, work_dir: Path) -> Iterator[Path]:
    """
    :param setup: folder with the user's settings and recipes. It is made inside of that, since compute nodes see it
    :param work_dir: where the jobs of the setup are. Those of the new folder lie inside of it, if it exists, and so on
        the same file system
    :return: a folder with links to all else of the setup, removed at the end
    """
    made: list[Path] = []
    try:
        folder = _new_folder(setup, made)
        for entry in setup.absolute().iterdir():
            if entry.name not in _OWN and not entry.name.startswith(PREFIX) and entry != work_dir.absolute():
                (folder / entry.name).symlink_to(entry)
        if work_dir.is_dir() and os.access(work_dir, os.W_OK):
            (folder / WORK).symlink_to(_new_folder(work_dir, made))
        else:
            (folder / WORK).mkdir()
        yield folder
    finally:
        with uninterrupted():
            for folder in made:
                _remove(folder)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must leave neither files nor a job in the queue."""
    old = {signum: signal.signal(signum, signal.SIG_IGN) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)


def _new_folder(parent: Path, made: list[Path]) -> Path:
    # Without links in its path: that is how SLURM names the folder of a job.
    made.append(Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent.resolve())))
    return made[-1]


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_LIMIT_S
    while True:
        try:
            shutil.rmtree(folder)
            return
        except OSError as exc:
            if time.monotonic() > deadline:
                print(f"syncopate: {folder} could not be removed ({exc}); remove it by hand", file=sys.stderr)
                return
        time.sleep(0.5)
