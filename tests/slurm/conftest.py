"""A SLURM of four nodes for the tests of this folder: one cluster, in a folder of its own, taken down at their end."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "setups" / "loopback_slurm" / "cluster"
NEEDED = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd")
COMMAND_LIMIT_S = 120
SETTLED_LIMIT_S = 60
Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True)
class JobProcess:
    """One process of a job: SLURM's own, or what it started."""

    pid: int
    node: str
    job_id: int
    command: str


class Cluster:
    """
    :param folder: everything of the cluster; it need not exist before :meth:`up`
    :ivar environ: for a program that is to use the cluster, or ``setups/loopback_slurm`` in Sisyphus
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SRUN"))
        }
        self.environ = {
            **inherited,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "SYNCOPATE_CLUSTER_DIR": str(folder),
            "SYNCOPATE_SETUP": "loopback_slurm",
        }

    def run(self, *command: str | Path, cwd: Path | None = None, limit_s: float = COMMAND_LIMIT_S) -> str:
        """What a command prints. If it fails, what it said is in the error."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd or self.folder.parent,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        if done.returncode != 0:
            raise AssertionError(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def up(self) -> str:
        return self.run(PROGRAM, "up")

    def down(self) -> str:
        return self.run(PROGRAM, "down")

    def submit(self, *options: str, wrap: str) -> int:
        """The id of the job. Its output is nowhere, if no option says where."""
        return int(self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={wrap}").strip())

    def squeue(self) -> dict[int, str]:
        """State of each job that waits or runs, as RUNNING, by id."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%A %T").splitlines()
        return {int(job_id): state for job_id, state in map(str.split, lines)}

    def sacct(self, job_id: int) -> dict[str, str]:
        """State of the job and of each step, as COMPLETED, by id: ``12``, ``12.batch``, ``12.0``. Some seconds late."""
        options = ("--noheader", "--parsable2", f"--jobs={job_id}", "--format=JobID,State")
        return dict(line.split("|") for line in self.run("sacct", *options).splitlines())

    def node_state(self, name: str) -> str:
        """As ``idle``; a star at its end says that the node does not answer."""
        return self.run("sinfo", "--noheader", "--partition=main", f"--nodes={name}", "--format=%T").strip()

    def slurmd_pid(self, name: str) -> int:
        return int((self.folder / "pid" / name).read_text(encoding="ascii").split()[0])

    def kill_slurmd(self, name: str) -> None:
        """As if it crashed. What it started for jobs goes on."""
        os.kill(self.slurmd_pid(name), signal.SIGKILL)

    def start_slurmd(self, name: str) -> None:
        self.run(PROGRAM, "start", name)

    def processes(self, job_id: int | None = None) -> list[JobProcess]:
        """Of one job, or of all."""
        found = []
        for line in self.run(PROGRAM, "processes").splitlines():
            pid, node, job, *command = line.split(" ", maxsplit=3)
            found.append(JobProcess(pid=int(pid), node=node, job_id=int(job), command=" ".join(command)))
        return [each for each in found if job_id in (None, each.job_id)]

    def wait_for(self, what: str, look: Callable[[], Seen], limit_s: float = SETTLED_LIMIT_S) -> Seen:
        """The first thing seen that is true."""
        end_s = time.monotonic() + limit_s
        while not (seen := look()):
            if time.monotonic() > end_s:
                raise AssertionError(f"no {what} after {limit_s} s; the last seen was {seen!r}\n{self.log_ends()}")
            time.sleep(0.2)
        return seen

    def log_ends(self) -> str:
        """The last lines of the logs of all daemons."""
        logs = sorted((self.folder / "log").glob("*.log"))
        return "\n".join(f"{log.name}:\n" + "".join(log.open(errors="replace").readlines()[-10:]) for log in logs)


@pytest.fixture(scope="session")
def make_cluster() -> Iterator[Callable[[], Cluster]]:
    """Makes clusters that do not run yet, and takes all of them down in the end."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"CI is set and there is no {', '.join(missing)}")
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}: apt-get install slurm-wlm munge slurmdbd mariadb-server")
    # The path of a socket may not be long.
    parent = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, parent)

        def make() -> Cluster:
            cluster = Cluster(Path(tempfile.mkdtemp(dir=parent)) / "cluster")
            stack.callback(cluster.down)
            return cluster

        yield make


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[[], Cluster]) -> Cluster:
    """One that runs."""
    made = make_cluster()
    made.up()
    return made


@pytest.fixture
def no_jobs(cluster: Cluster) -> Iterator[Cluster]:
    """The one that runs. Jobs that a test leaves are cancelled, and are gone when the next test starts."""
    yield cluster
    for job_id in cluster.squeue():
        cluster.run("scancel", str(job_id))
    cluster.wait_for("empty queue", lambda: not cluster.squeue())
