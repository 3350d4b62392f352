"""
Nobody outlives the process that started it, even if that one is killed with SIGKILL.

Linux delivers a signal of our choice when the *thread* that started a process ends (``PR_SET_PDEATHSIG``). It survives
``exec``, but not ``fork``, so every process asks for itself:

- an agent, through this file used as a command: ``lifeline.py LAUNCHER_PID -- COMMAND`` binds itself to the launcher,
  then becomes COMMAND. (Not ``preexec_fn``: that runs python code in a copy of a process with several threads.)
- a rank, by :func:`die_with_parent`.
- a rank's data workers, and theirs, cannot be asked: torch and RETURNN start them, in several ways. For them each rank
  has a guard, see :mod:`syncopate.launch.guard`.

Standard library only and no import of syncopate: as a command this file is started by its path.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def set_death_signal(signum: int) -> None:
    """
    :param signum: to be sent to this process when the thread that started it ends
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"prctl(PR_SET_PDEATHSIG, {signum}): {os.strerror(errno)}")


def die_with_parent(parent_pid: int) -> bool:
    """
    :param parent_pid: the process to die with, as seen before this call
    :return: whether it is still the parent; if not, it died before we could bind ourselves to it
    """
    set_death_signal(signal.SIGKILL)
    return os.getppid() == parent_pid


def bound_command(command: list[str]) -> list[str]:
    """
    :param command: of a process that is to die with this one
    :return: the command to start instead
    """
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), "--", *command]


def _main(argv: list[str]) -> None:
    launcher_pid, dashes, *command = argv
    if dashes != "--" or not command:
        sys.exit("usage: lifeline.py LAUNCHER_PID -- COMMAND...")
    if not die_with_parent(int(launcher_pid)):
        sys.exit(f"the launcher (pid {launcher_pid}) is gone, not starting {command}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main(sys.argv[1:])
