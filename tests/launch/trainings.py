"""Small trainings for the tests of the launcher: real torchrun, real ranks, and a ``rnn.py`` that trains nothing."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from syncopate.cluster import Cluster
from syncopate.launch.command import rank_tail
from syncopate.launch.rank_record import RankRecord, read_records
from syncopate.launch.run import run_training
from syncopate.launch.training import Hooks, Training

SLEEP = """
    import time
    time.sleep(100)
"""


def make_checkout(folder: Path, body: str) -> Path:
    """
    :param folder: to be made
    :param body: what its ``rnn.py`` does; ``rank`` and ``mode`` (the argument after the config) are there
    :return: a folder that passes as a checkout of RETURNN
    """
    (folder / "returnn" / "torch").mkdir(parents=True)
    (folder / "returnn" / "__init__.py").touch()
    installed = Path(find_spec("returnn").origin).parent
    shutil.copy(installed / "torch" / "distributed.py", folder / "returnn" / "torch")
    head = "import os, sys\nrank = int(os.environ.get('RANK', 0))\nmode = ''.join(sys.argv[2:3])\n"
    (folder / "rnn.py").write_text(head + textwrap.dedent(body))
    return folder


def train(
    folder: Path,
    cluster: Cluster,
    body: str = "print('rank', rank, 'was here')",
    *,
    options: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    hooks: Hooks | None = None,
    on_poll: Callable[[], None] | None = None,
    **kwargs: Any,
) -> Path:
    """
    :param folder: of the run
    :param cluster: emulated on this host
    :param body: of ``rnn.py``, see :func:`make_checkout`
    :param options: for ``rnn.py``, after the config
    :param environ: added to ours
    :param hooks: for :func:`run_training`
    :param on_poll: short for a hook
    :param kwargs: for :class:`Training`
    :return: folder of the records of the only attempt
    """
    root = folder / "checkout"
    if not root.exists():
        make_checkout(root, body)
    arguments = {
        "config_file": folder / "tiny.config",
        "run_dir": folder / "run",
        "work_dir": folder / "work",
        "cluster": cluster,
        "python": sys.executable,
        "returnn_root": root,
        "tail": (*rank_tail("tiny.config"), *options),
    }
    training = Training(**{**arguments, **kwargs})
    all_environ = {**os.environ, "SYNCOPATE_ENGINE": "local", **(environ or {})}
    run_training(training, environ=all_environ, hooks=hooks or Hooks(on_poll=on_poll))
    return sorted((folder / "run" / "logs").iterdir())[-1] / "ranks"


def records_now(folder: Path) -> list[RankRecord]:
    """:return: of the latest attempt so far"""
    logs = folder / "run" / "logs"
    attempts = sorted(logs.iterdir()) if logs.exists() else []
    return read_records(attempts[-1] / "ranks") if attempts else []


def parent_of(pid: int) -> int:
    """:return: its parent"""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def running(folder: Path) -> dict[int, str]:
    """:return: living processes that were started for a run in this folder, with their command lines"""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) == os.getpid() or str(folder).encode() not in (process / "environ").read_bytes():
                continue
            if (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def wait_until_gone(folder: Path, limit_s: float) -> dict[int, str]:
    """:return: what still runs after the limit"""
    deadline = time.monotonic() + limit_s
    while (left := running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


class KillOnce:
    """
    For ``on_poll``: kills one process as soon as all ranks have started.

    :param folder: of the run
    :param num_ranks: to wait for
    :param choose: gets the records by rank, says which process
    :param signum: to send
    """

    def __init__(self, folder: Path, num_ranks: int, choose: Any, signum: int) -> None:
        self._folder, self._num_ranks, self._choose, self._signum = folder, num_ranks, choose, signum
        self.killed_at_s: float | None = None

    def __call__(self) -> None:
        records = records_now(self._folder)
        if self.killed_at_s is None and len(records) == self._num_ranks:
            os.kill(self._choose(records), self._signum)
            self.killed_at_s = time.monotonic()

    @property
    def since_s(self) -> float:
        """Time since the kill."""
        assert self.killed_at_s is not None, "nothing was killed"
        return time.monotonic() - self.killed_at_s
