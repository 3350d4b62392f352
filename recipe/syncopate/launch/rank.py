"""
One rank: ``python -m syncopate.launch.rank [--returnn-root DIR] CONFIG [RETURNN OPTIONS]``, under torchrun or alone.

Before RETURNN it sees to it that the rank and its data workers end with the agent, that the launcher can read who this
rank is and how it ended, and that the RETURNN it finds will do. Then it runs that: the installed package, or the
``rnn.py`` of a checkout (``--returnn-root``, or the variable ``SYNCOPATE_RETURNN_ROOT``).
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

_PARENT_PID = os.getppid()  # as early as possible: it is looked at again once we are bound to it
_OUR_FOLDER = os.path.dirname(os.path.realpath(__file__))
if __name__ == "__main__" and os.path.realpath(sys.path[0]) in (_OUR_FOLDER, os.getcwd()):
    # Neither our own folder (started by path, as RETURNN restarts itself) nor the working directory (started by -m) may
    # stand in front of torch and RETURNN.
    del sys.path[0]

from syncopate.errors import LaunchError, ReadError  # noqa: E402
from syncopate.launch.components import check_training_python, own_training_python  # noqa: E402
from syncopate.launch.environment import AGENT, DEVICE, RANK_DIR, RETURNN_INIT_INFO, RETURNN_ROOT  # noqa: E402
from syncopate.launch.guard import start_guard  # noqa: E402
from syncopate.launch.lifeline import die_with_parent  # noqa: E402
from syncopate.launch.rank_record import RankRecord, read_records, write_record  # noqa: E402

_GUARDED = "SYNCOPATE_RANK_GUARDED"
_TRACEBACK_LINES = 12
_POLL_S = 1.0


class _Journal:
    """
    Keeps the record of this rank.

    :param rank_dir: folder of all records, None for no record
    """

    def __init__(self, rank_dir: str | None) -> None:
        self._rank_dir = Path(rank_dir) if rank_dir else None
        self._record = RankRecord.of_this_process(os.environ)
        self._interrupted = False
        self.rank = self._record.rank
        self._write(self._record)
        signal.signal(signal.SIGINT, self._on_interrupt)

    def ended(self, exit_code: int, **details: Any) -> None:
        """
        :param exit_code: which the process is about to return
        :param details: as in :class:`syncopate.launch.rank_record.Outcome`
        """
        kind = "finished" if exit_code == 0 else "interrupted" if self._interrupted else "failed"
        self._write(self._record.ended(kind, exit_code=exit_code, **details))

    def num_done(self) -> float:
        """:return: how many ranks of this attempt have ended; infinite where no records are kept"""
        if self._rank_dir is None:
            return float("inf")
        records = read_records(self._rank_dir, attempt=self._record.attempt)
        return sum(record.outcome is not None for record in records)

    def _write(self, record: RankRecord) -> None:
        if self._rank_dir is not None:
            write_record(self._rank_dir, record)

    def _on_interrupt(self, signum: int, frame: FrameType | None) -> None:
        # RETURNN turns it into exit code 1, which alone looks like any error.
        self._interrupted = True
        signal.default_int_handler(signum, frame)


def main(argv: list[str]) -> None:
    """
    :param argv: arguments after the name of the program
    """
    root, returnn_args = _parse(argv)
    _bind_to_agent()
    os.environ.pop(RETURNN_INIT_INFO, None)
    if os.environ.get("RANK", "0") != "0":
        # By this RETURNN asks SLURM, on every rank after every epoch, for the time left. Only rank 0 may: it is the one
        # that then has evaluated and saved, and a hundred ranks would ask at once.
        os.environ.pop("SLURM_JOB_ID", None)
    journal = _Journal(os.environ.get(RANK_DIR))
    if os.getsid(0) == os.getpid() and os.environ.get(_GUARDED) != str(os.getpid()):
        # As torchrun and our launcher start ranks. When RETURNN restarts itself, the process stays, and so the guard.
        os.environ[_GUARDED] = str(os.getpid())
        start_guard(os.environ.get(RANK_DIR), journal.rank)
    try:
        _run_returnn(root, returnn_args)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        journal.ended(code, error=None if code == 0 else f"SystemExit: {exc.code}")
        raise
    except BaseException as exc:
        lines = "".join(traceback.format_exception(exc)).splitlines()
        journal.ended(1, error=f"{type(exc).__name__}: {exc}", traceback=tuple(lines[-_TRACEBACK_LINES:]))
        raise
    journal.ended(0)
    _wait_for_other_nodes(journal)


def _wait_for_other_nodes(journal: _Journal) -> None:
    """
    torchrun's agents wait for each other for 300 s, then the one with the store leaves and the others end their ranks,
    though one of them may still evaluate and save. So one rank of that agent stays until all are done. Who fails
    meanwhile is seen by the launcher, which ends the others.
    """
    hosts_store = os.environ.get(AGENT) == "0" and os.environ.get("LOCAL_RANK") == "0"
    if not hosts_store or int(os.environ.get("GROUP_WORLD_SIZE", "1")) < 2:
        return
    try:
        while journal.num_done() < int(os.environ["WORLD_SIZE"]):
            time.sleep(_POLL_S)
    except (OSError, ReadError) as exc:
        print(f"syncopate: not waiting for the ranks of other nodes, whose records cannot be read: {exc}", flush=True)


def _parse(argv: list[str]) -> tuple[str | None, list[str]]:
    """:return: checkout of RETURNN, if any, and what RETURNN gets"""
    root = os.environ.get(RETURNN_ROOT)
    if argv[:1] == ["--returnn-root"]:
        root, argv = "".join(argv[1:2]), argv[2:]
    if not argv or root == "":
        sys.exit("usage: python -m syncopate.launch.rank [--returnn-root DIR] CONFIG [RETURNN OPTIONS]")
    if root is not None:
        os.environ[RETURNN_ROOT] = root  # for a restart, see below
    return root, argv


def _bind_to_agent() -> None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return  # alone: the launcher bound us already, and a shell or a batch script may end before us
    if not die_with_parent(_PARENT_PID) or _is_init(_PARENT_PID):
        raise LaunchError("the torchrun agent that started this rank is gone, so this rank does not start")


def _is_init(pid: int) -> bool:
    """:return: whether orphans come to this process; in a container the agent itself may be number 1"""
    return pid == 1 and b"torch" not in Path("/proc/1/cmdline").read_bytes()


def _run_returnn(root: str | None, returnn_args: list[str]) -> None:
    """
    :param root: checkout of RETURNN, None for the installed package
    :param returnn_args: config and options
    """
    found = own_training_python(python=sys.executable, returnn_root=root)
    check_training_python(found, device=os.environ.get(DEVICE, "gpu"))
    # Asked to restart itself, RETURNN runs python with these arguments: this file again, by its path.
    sys.argv = [os.path.abspath(__file__), *returnn_args]
    if root is not None:
        sys.path.insert(0, root)
        program = os.path.join(root, "rnn.py")
        # Not by runpy, which would replace the arguments, and the main module that data workers import.
        exec(compile(Path(program).read_bytes(), program, "exec"), {"__name__": "__main__", "__file__": program})
        return
    # Not by the path of this module: its folder would come first on the path, and ``import torch`` find returnn/torch.
    from returnn.__main__ import main as returnn_main

    returnn_main(sys.argv)


if __name__ == "__main__":
    main(sys.argv[1:])
