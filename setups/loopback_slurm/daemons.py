"""Starting the daemons, in an order in which each finds those it needs."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

import processes
from layout import CLUSTER, DAEMONS, NODES, Layout, user_name
from processes import Process

START_LIMIT_S = 60
_CALL_LIMIT_S = 20
_LOG_LINES = 15
_STOP_LIMIT_S = 10


class StartError(Exception):
    """
    :param daemon: the one that does not work
    :param reason: what was seen
    """

    def __init__(self, daemon: str, reason: str) -> None:
        super().__init__(daemon, reason)
        self.daemon = daemon
        self.reason = reason


def process(layout: Layout, daemon: str) -> Process | None:
    """The one that was started as this daemon, whether it runs or not."""
    return Process.load(layout.pid_file(daemon))


def runs(layout: Layout, daemon: str) -> bool:
    found = process(layout, daemon)
    return found is not None and found.runs()


def start(layout: Layout, names: list[str]) -> None:
    """
    Starts those that do not run, and waits until they work: nodes can be given jobs, and ``sacct`` answers. If one does
    not, those that were started here are stopped again.

    :raises StartError: then
    """
    end_s = time.monotonic() + START_LIMIT_S
    started_at = datetime.now().replace(microsecond=0)
    started: list[str] = []
    try:
        for name in sorted(names, key=DAEMONS.index):
            if not runs(layout, name):
                started.append(name)
                if name == "mariadbd":
                    _install_database(layout)
                _spawn(layout, name)
                _wait(layout, name, end_s)
        # A slurmctld that starts has to hear of all of them.
        for node in NODES if "slurmctld" in started else (name for name in started if name in NODES):
            since = started_at if node in started else datetime.min
            _wait_until(layout, node, partial(_can_have_jobs, layout, node, since), end_s)
        _wait_until(layout, "slurmdbd", lambda: answer(layout, "sacct", "-n") is not None, end_s)
    except BaseException:
        stop(layout, started)
        raise


def stop(layout: Layout, names: list[str]) -> None:
    """Those that run, in the opposite order: the nodes together, then the others, one after the other."""
    for group in (NODES, *((name,) for name in reversed(DAEMONS) if name not in NODES)):
        found = [process(layout, name) for name in group if name in names]
        processes.stop([each for each in found if each is not None], limit_s=_STOP_LIMIT_S)


def answer(layout: Layout, *command: str) -> str | None:
    """What a client prints; None if it fails or takes long, as where nobody answers it."""
    try:
        done = subprocess.run(
            command,
            env=layout.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def last_lines(layout: Layout, daemon: str) -> str:
    for path in (layout.log(daemon), layout.output(daemon)):
        text = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if text:
            return "\n".join(f"  {line}" for line in text.splitlines()[-_LOG_LINES:])
    return "  (empty)"


def _install_database(layout: Layout) -> None:
    if (layout.folder / "db").exists():
        return
    with layout.output("mariadbd").open("a") as output:
        done = subprocess.run(
            layout.install_database(),
            env=layout.environ(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=START_LIMIT_S,
        )
    if done.returncode != 0:
        raise StartError("mariadbd", f"has no database: mariadb-install-db ended with exit code {done.returncode}")


def _spawn(layout: Layout, daemon: str) -> None:
    with layout.output(daemon).open("a") as output:
        # In a session of its own, so that Ctrl-C in the shell does not reach it.
        child = subprocess.Popen(
            layout.command(daemon),
            cwd=layout.folder,
            env=layout.environ(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    found = Process.of(child.pid)
    if found is None:
        raise StartError(daemon, f"ended with exit code {child.wait()}")
    found.save(layout.pid_file(daemon))


def _wait(layout: Layout, daemon: str, end_s: float) -> None:
    """Until the next one can use it. Nodes are not waited for: they start at the same time."""
    if daemon == "munged":
        _wait_until(layout, daemon, lambda: _listens(str(layout.munge_socket)), end_s)
    elif daemon == "mariadbd":
        _wait_until(layout, daemon, lambda: _listens(str(layout.mariadb_socket)), end_s)
    elif daemon == "slurmctld":
        _wait_until(layout, daemon, lambda: "UP" in (answer(layout, "scontrol", "ping") or ""), end_s)
    elif daemon == "slurmdbd":
        _wait_until(layout, daemon, lambda: _listens(("127.0.0.1", layout.ports[daemon])), end_s)
        _register(layout)


def _register(layout: Layout) -> None:
    """Where slurmctld finds its cluster, and jobs their user: root is there from the start."""
    user = user_name()
    if CLUSTER not in (answer(layout, "sacctmgr", "-n", "list", "cluster", "format=Cluster") or "").split():
        answer(layout, "sacctmgr", "-i", "add", "cluster", CLUSTER)
    if user not in (answer(layout, "sacctmgr", "-n", "list", "user", "format=User%-50") or "").split():
        answer(layout, "sacctmgr", "-i", "add", "account", user)
        answer(layout, "sacctmgr", "-i", "add", "user", user, f"account={user}")


def _wait_until(layout: Layout, daemon: str, works: Callable[[], bool], end_s: float) -> None:
    while not works():
        if not runs(layout, daemon):
            raise StartError(daemon, "ended")
        if time.monotonic() > end_s:
            raise StartError(daemon, f"does not work after {START_LIMIT_S} s")
        time.sleep(0.05)


def _listens(address: str | tuple[str, int]) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        return client.connect_ex(address) == 0


def _can_have_jobs(layout: Layout, node: str, since: datetime) -> bool:
    """
    A state gets a star where slurmctld has not heard of the node for long. That takes a while where it ran before, so
    the time at which it was last registered counts.

    :param since: when it was started; seconds are the finest that SLURM shows
    """
    state = (answer(layout, "sinfo", "-h", "-p", "main", "-n", node, "-o", "%T") or "").strip()
    if state in ("", "unknown", "down") or state.endswith("*"):
        return False
    shown = re.search(r"SlurmdStartTime=(\S+)", answer(layout, "scontrol", "show", "node", node) or "")
    return shown is not None and shown[1] != "None" and datetime.fromisoformat(shown[1]) >= since
