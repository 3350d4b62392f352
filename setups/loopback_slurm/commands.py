"""The commands of ``cluster``."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import configuration
import daemons
import memory
import processes
from layout import DAEMONS, NODES, Layout, program, user_name
from processes import JobProcess

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = "SYNCOPATE_CLUSTER_DIR"
_PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sacct", "sinfo", "scancel")
# SLURM kills after 10 s (KillWait) what does not end when it is asked to.
_CANCEL_LIMIT_S = 12


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="cluster",
        description="A SLURM of four nodes on this host, run by the user who starts it.",
        epilog=f"The cluster is in the folder that {FOLDER} names, else in .cluster beside setups/.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start it, or what of it does not run")
    commands.add_parser("start", help="start a daemon that ended").add_argument("daemon", choices=DAEMONS)
    commands.add_parser("status", help="what runs; the exit code is 0 if all of it does, else 3")
    commands.add_parser("processes", help="processes of jobs: id, node, job, command")
    commands.add_parser("env", help='for a shell: eval "$(setups/loopback_slurm/cluster env)"')
    commands.add_parser("down", help="cancel the jobs, end all processes and remove the folder")
    arguments = parser.parse_args()
    folder = Path(os.environ.get(FOLDER) or REPOSITORY / ".cluster").absolute()
    if arguments.command == "up":
        return up(folder)
    if not folder.exists() and arguments.command == "down":
        print(f"cluster: there is none in {folder}")
        return 0
    if not folder.is_dir():
        raise SystemExit(f"cluster: there is none in {folder}; run make cluster-up")
    layout = Layout.load(folder)
    if layout is None:
        raise SystemExit(f"cluster: the folder {folder} is not that of a cluster")
    if arguments.command == "down":
        return down(layout)
    if arguments.command == "start":
        with _locked(folder):
            return start(layout, [arguments.daemon])
    if arguments.command == "env":
        print(f"export SLURM_CONF={shlex.quote(str(layout.slurm_conf))}")
    elif arguments.command == "processes":
        for found in _of_jobs(layout):
            print(found.process.pid, found.node, found.job_id, found.command())
    else:
        return status(layout)
    return 0


def up(folder: Path) -> int:
    for name in _PROGRAMS:
        program(name)
    started_s = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        layout = Layout.load(folder)
        if layout is None:
            if any(folder.iterdir()):
                raise SystemExit(f"cluster: {folder} holds other files; let {FOLDER} name a folder that does not exist")
            missing = list(DAEMONS)
        else:
            missing = [name for name in DAEMONS if not daemons.runs(layout, name)]
        if not missing:
            print(f"cluster: is up in {folder}")
            return 0
        if layout is not None and len(missing) == len(DAEMONS):
            # Without a daemon that runs there is nobody left to say what became of its jobs.
            print(f"cluster: nothing of that in {folder} runs; starting a new one")
            _kill_jobs(layout)
            _empty(layout)
            layout = None
        if layout is None:
            layout = Layout.choose(folder)
            layout.save()
            configuration.write(layout)
        else:
            print(f"cluster: {', '.join(missing)} ended; starting again")
        code = start(layout, missing)
    if code == 0:
        print(f"cluster: up in {folder} after {time.monotonic() - started_s:.1f} s")
    return code


def start(layout: Layout, names: list[str]) -> int:
    try:
        daemons.start(layout, names)
    except daemons.StartError as error:
        print(f"cluster: {error.daemon} {error.reason}. The last lines of its log, which is in {layout.folder}/log:")
        print(daemons.last_lines(layout, error.daemon))
        return 1
    return 0


def status(layout: Layout) -> int:
    running = [name for name in DAEMONS if daemons.runs(layout, name)]
    for name in DAEMONS:
        found = daemons.process(layout, name)
        print(f"{name:10s}", f"process {found.pid}" if found and name in running else "does not run")
    if "slurmctld" in running:
        for command in (["sinfo", "-N", "-p", "main", "-o", "%N %T"], ["squeue"]):
            print(daemons.answer(layout, *command) or f"{command[0]} gets no answer", end="")
    return 0 if len(running) == len(DAEMONS) else 3


def down(layout: Layout) -> int:
    with _locked(layout.folder):
        if daemons.runs(layout, "slurmctld") and daemons.answer(layout, "scancel", f"--user={user_name()}") is not None:
            end_s = time.monotonic() + _CANCEL_LIMIT_S
            while daemons.answer(layout, "squeue", "-h") and time.monotonic() < end_s:
                time.sleep(0.1)
        # A slurmd does not end before the jobs it has to end. Without it nothing new can start.
        _kill_jobs(layout)
        daemons.stop(layout, list(NODES))
        _kill_jobs(layout)
        daemons.stop(layout, [name for name in DAEMONS if name not in NODES])
        _empty(layout)
        layout.folder.rmdir()
    print("cluster: down")
    return 0


def _of_jobs(layout: Layout) -> list[JobProcess]:
    return processes.of_jobs(slurm_conf=layout.slurm_conf, sockets=layout.sockets, memory_group=layout.memory_group)


def _kill_jobs(layout: Layout) -> None:
    """They may start others until the last of them is gone."""
    while found := _of_jobs(layout):
        processes.stop([each.process for each in found], limit_s=0)


def _empty(layout: Layout) -> None:
    if layout.memory_group is not None:
        memory.remove_group(layout.memory_group)
    if layout.sockets.exists():
        shutil.rmtree(layout.sockets)
    # Until the last file is gone the folder is known as one of ours.
    for path in sorted(layout.folder.iterdir(), key=lambda path: path.name == "cluster.json"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """
    One command at a time. The folder itself is what is locked, so that no file has to stay behind.

    :raises SystemExit: if the command before this one removed it
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not folder.exists() or not os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise SystemExit(f"cluster: {folder} was taken down in the meantime; call again")
        yield
    finally:
        os.close(descriptor)
