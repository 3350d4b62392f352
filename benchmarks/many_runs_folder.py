"""The folder that ``many_runs.py`` measures in: a sweep, settings for Sisyphus, and a SLURM of its own."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
CLUSTER = REPOSITORY / "setups" / "loopback_slurm" / "cluster"
MANAGER = Path(__file__).with_name("many_runs_manager.py")
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
CORES = 8
"""Of the four nodes together. Each gets as many trainings as it takes to run all of them."""
SEEDS = 5
ROWS = 10
NUM_EPOCHS = 5000
PREFIX = "many_runs"
_NICE = -15

CONFIG = """
from dataclasses import replace

from syncopate import Cluster, Resources, Sweep
from syncopate.tasks.char_lm import char_lm


def py():
    base = char_lm(max_train_sequences=32, num_layers=1, dim=16, num_heads=2)
    # How long an epoch takes does not matter to the manager, how many there are does.
    config = {{**base.config, "dev": {{**base.config["dev"], "partition_epoch": 40}}}}
    sweep = Sweep(
        {prefix!r},
        base=replace(base, config=config, post_config={{**base.post_config, "save_interval": 100}}),
        cluster=Cluster(num_nodes=1, num_gpus_per_node=1, device="cpu"),
        num_epochs={num_epochs},
        baseline="batch4",
        seeds=range({seeds}),
        resources=Resources(time_h=12, mem_gb=1),
        python={python!r},
    )
    for row in range({rows}):
        for trial in range({trials}):
            sweep.add(f"batch{{row + 4}}", None, max_seqs=row + 4, learning_rate=0.001 * (trial + 1))
    sweep.register()
"""

SETTINGS = """
from pathlib import Path as _Path


def check_engine_limits(rqmt, task):
    # Sisyphus asks SLURM for whole GB, and a node has 16 of them for a quarter of all trainings.
    return rqmt if "engine" in rqmt else {**rqmt, "sbatch_args": [*rqmt.get("sbatch_args", []), "--mem=%(mem_mb)dM"]}


exec(compile(_Path("setups/loopback_slurm/settings.py").read_text(encoding="utf-8"), "loopback_slurm", "exec"))


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    from syncopate.jobs.slurm_engine import SlurmEngine

    slurm = SlurmEngine(default_rqmt={"cpu": 1, "mem": 2, "gpu": 0, "time": 1})
    return EngineSelector(engines={"short": LocalEngine(cpu=2), "long": slurm}, default_engine="long")


# As setups/slurm has them, or Sisyphus itself.
WAIT_PERIOD_BETWEEN_CHECKS = 30
WAIT_PERIOD_JOB_FS_SYNC = 30
WAIT_PERIOD_CACHE = 20
WAIT_PERIOD_JOB_CLEANUP = 10
WAIT_PERIOD_MTIME_OF_INPUTS = 60
FILESYSTEM_CACHE_TIME = 30
# Show every training in every cycle.
PRINT_STALE_STATE_OVERVIEW_PERIOD = 0
# Workers look through all processes of their host, here those of 200 trainings.
PLOGGING_INTERVAL = 30
"""

PYTHON = """#!/bin/sh
# The python of the trainings. Where a training is parked, its place stays taken after its process is gone.
case "$*" in
*syncopate.launch.rank*) ;;
*) exec {python} "$@" ;;
esac
{python} "$@" &
wait $!
code=$?
if [ -e parked ]; then exec sleep infinity; fi
exit $code
"""

COMMAND = """#!/bin/sh
echo "$(date +%s.%N) $([ -n "$SLURM_JOB_ID" ] && echo training || echo manager) {name}" >> {log}
exec {program} "$@"
"""


class Setup:
    """
    A folder to run Sisyphus in, with a SLURM of its own.

    :param folder: empty
    :param trainings: of the sweep
    :param mem_mb: main memory that SLURM gives to each
    :ivar goes_first: whether manager and slurmctld go before everything else on this host
    """

    def __init__(self, folder: Path, *, trainings: int, mem_mb: int) -> None:
        self.folder = folder
        self.trainings = trainings
        self.cycles = folder / "cycles.jsonl"
        self.calls = folder / "calls.txt"
        self.manager_log = folder / "manager.log"
        self.goes_first = False
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        self.slurm_environ = {
            **inherited,
            "SYNCOPATE_CLUSTER_DIR": str(folder / "slurm"),
            "SLURM_CONF": str(folder / "slurm" / "slurm.conf"),
        }
        bin_folder = folder / "bin"
        path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.manager_environ = {**self.slurm_environ, "PATH": path, "PYTHONPATH": str(folder / "recipe")}
        for name in ("recipe", "setups"):
            (folder / name).symlink_to(REPOSITORY / name)
        for name in ("work", "configs", "bin"):
            (folder / name).mkdir()
        for name in COMMANDS:
            program = shutil.which(name)
            if program is None:
                raise SystemExit(f"there is no {name}; install SLURM, as docs/setups.md says")
            _program(bin_folder / name, COMMAND.format(name=name, log=self.calls, program=program))
        _program(bin_folder / "train_python", PYTHON.format(python=sys.executable))
        (folder / "settings.py").write_text(SETTINGS % {"mem_mb": mem_mb}, encoding="utf-8")
        rows, seeds = (ROWS, SEEDS) if trainings % (ROWS * SEEDS) == 0 else (1, 1)
        config = CONFIG.format(
            prefix=PREFIX,
            num_epochs=NUM_EPOCHS,
            rows=rows,
            seeds=seeds,
            trials=trainings // (rows * seeds),
            python=str(bin_folder / "train_python"),
        )
        (folder / "configs" / f"{PREFIX}.py").write_text(config, encoding="utf-8")
        self.calls.touch()
        self.cycles.touch()

    def slurm(self, *command: str | Path) -> str:
        """:return: what a command says, which is not counted"""
        done = subprocess.run(
            command, cwd=self.folder, env=self.slurm_environ, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def cluster(self) -> Iterator[None]:
        """SLURM, whose nodes start nothing yet."""
        self.slurm(CLUSTER, "up")
        try:
            per_core = math.ceil(self.trainings / CORES)
            self.slurm("scontrol", "update", "PartitionName=main", f"OverSubscribe=FORCE:{per_core}")
            self.slurm("scontrol", "update", "NodeName=node[1-4]", "State=DRAIN", "Reason=benchmark")
            self.goes_first = go_first(int((self.folder / "slurm/pid/slurmctld").read_text().split()[0]))
            yield
        finally:
            self.slurm(CLUSTER, "down")

    @contextmanager
    def manager(self) -> Iterator[subprocess.Popen[bytes]]:
        """The manager, and its local tasks, which end with it."""
        with self.manager_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(MANAGER), f"configs/{PREFIX}.py", str(self.cycles)],
                cwd=self.folder,
                env=self.manager_environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.goes_first &= go_first(process.pid)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def read_cycles(self) -> list[dict[str, Any]]:
        """:return: those that ended until now"""
        whole_lines = self.cycles.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole_lines.splitlines()]

    def read_calls(self, begin_s: float, end_s: float) -> dict[str, dict[str, int]]:
        """:return: how often commands were called, by who called and by command"""
        found: dict[str, Counter[str]] = {"manager": Counter(), "training": Counter()}
        for line in self.calls.read_text(encoding="utf-8").splitlines():
            time_s, who, name = line.split()
            if begin_s <= float(time_s) < end_s:
                found[who][name] += 1
        return {who: dict(calls) for who, calls in found.items()}

    def jobs(self) -> dict[str, Path]:
        """:return: the folder of each training by the id of its SLURM job"""
        lines = self.slurm("squeue", "--noheader", "--format=%A %j").splitlines()
        ids = {name.removesuffix(".run").rpartition(".")[2]: job for job, name in map(str.split, lines)}
        folders = (self.folder / "work/syncopate/jobs/training").glob("SyncTrainingJob.*")
        return {ids[folder.name.rpartition(".")[2]]: folder for folder in folders}


def go_first(pid: int) -> bool:
    """
    On a cluster, trainings and what else this host does would not be in the way of a process that is measured.

    :param pid: of the process
    :return: whether it goes before others now; only root may say so
    """
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), _NICE)
        # Where Linux shares the host among sessions first, that is what counts.
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text(str(_NICE), encoding="ascii")
    except PermissionError:
        return False
    return True


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
