"""Death travels down: real processes, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncopate.launch.environment import expose_package
from syncopate.launch.lifeline import bound_command
from tests.launch.trainings import running, wait_until_gone

LAUNCHER = """
import subprocess, sys, time
from syncopate.launch.lifeline import bound_command
code = "import time; open('ready.1', 'w').close(); time.sleep(60)"
subprocess.Popen(bound_command([sys.executable, "-c", code]), start_new_session=True)
time.sleep(60)
"""

# Workers as torch (fork) and RETURNN (spawn, and a worker's own worker) have them, one deaf to SIGTERM. None looks for
# its parent.
PARENT = """
import multiprocessing, os, signal, sys, time
from syncopate.launch.guard import start_guard

def work(depth):
    if depth:
        multiprocessing.get_context("spawn").Process(target=work, args=(depth - 1,)).start()
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"ready.{os.getpid()}", "w").close()
    time.sleep(60)

if __name__ == "__main__":
    start_guard(None, 0)
    for method in ("fork", "spawn"):
        multiprocessing.get_context(method).Process(target=work, args=(1,)).start()
    time.sleep(60)
"""


def start(folder: Path, code: str, *, num_ready: int) -> subprocess.Popen[bytes]:
    (folder / "program.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, str(folder / "program.py")],
        env={**os.environ, "PYTHONPATH": str(expose_package(folder))},
        cwd=folder,
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while len(list(folder.glob("ready.*"))) < num_ready:
        assert time.monotonic() < deadline, running(folder)
        time.sleep(0.1)
    return process


def test_a_bound_process_dies_with_its_launcher(tmp_path: Path) -> None:
    launcher = start(tmp_path, LAUNCHER, num_ready=1)
    assert len(running(tmp_path)) == 2
    launcher.kill()
    launcher.wait()
    assert wait_until_gone(tmp_path, 1) == {}


def test_a_process_whose_launcher_is_gone_already_does_not_start() -> None:
    command = bound_command([sys.executable, "-c", "print('started')"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    command[command.index(str(os.getpid()))] = str(gone.pid)
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"the launcher (pid {gone.pid}) is gone, not starting [")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_process(tmp_path: Path, signum: int) -> None:
    """Whatever signals the guard got before: RETURNN passes SIGUSR1 on to all its children."""
    parent = start(tmp_path, PARENT, num_ready=2)
    assert len(running(tmp_path)) >= 6, "parent, guard, two workers and theirs"
    (guard,) = [pid for pid, command in running(tmp_path).items() if "syncopate.launch.guard" in command]
    for harmless in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        os.kill(guard, harmless)
    time.sleep(0.2)
    assert guard in running(tmp_path)
    parent.send_signal(signum)
    parent.wait()
    assert wait_until_gone(tmp_path, 4) == {}
