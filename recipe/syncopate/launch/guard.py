"""
Sleeps beside a rank until that is gone, in whatever way, then ends the data workers it leaves behind.

Without it DataLoader workers look for their parent every few seconds only, and what they started ends after them. The
guard also notes the moment, if the rank could not say itself that it ended: who died first is the cause of the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from syncopate.launch.lifeline import set_death_signal
from syncopate.launch.rank_record import mark_killed

_WAKE_SIGNAL = signal.SIGRTMIN + 7
_CLEANUP_LIMIT_S = 2.0


def start_guard(rank_dir: str | None, rank: int) -> None:
    """
    Starts a guard for this process. Only for the leader of a session: the process group of another one may hold
    strangers, such as the other side of a pipe in a shell.

    :param rank_dir: folder of the records, None if there are none
    :param rank: number of this rank
    """
    # -P: neither the working directory nor anything else in front of the path.
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), str(rank), *([rank_dir] if rank_dir else [])]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)


def _main(argv: list[str]) -> None:
    pid, rank, *rank_dir = argv
    # All signals: those that are meant for the rank may reach its children too.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    set_death_signal(_WAKE_SIGNAL)
    while os.getppid() == int(pid):
        signal.sigtimedwait([_WAKE_SIGNAL], 5.0)
    if rank_dir:
        mark_killed(Path(rank_dir[0]), int(rank))
    _end_group(int(pid))


def _end_group(group: int) -> None:
    """
    SIGTERM first, because multiprocessing's resource tracker ignores it and can then remove shared memory that the
    others leave behind.

    :param group: id of a process group
    """
    deadline = time.monotonic() + _CLEANUP_LIMIT_S
    try:
        os.killpg(group, signal.SIGTERM)
        while _runs(group):
            if time.monotonic() > deadline:
                os.killpg(group, signal.SIGKILL)
                return
            time.sleep(0.05)
    except ProcessLookupError:
        pass  # the group is empty


def _runs(group: int) -> bool:
    """:return: whether a process of the group is alive; some may be dead and wait for init to notice"""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, process_group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if int(process_group) == group and state not in "ZX":
            return True
    return False


if __name__ == "__main__":
    _main(sys.argv[1:])
