"""A folder in which the real `sis manager` trains sweeps on the cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tests.slurm.training import LIMIT_S, Training, pids_in

if TYPE_CHECKING:
    from tests.slurm.conftest import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
SIS = Path(sys.executable).with_name("sis")
ALLOWED_STARTS = 3
"""Those in a row that may bring nothing: Sisyphus' MAX_SUBMIT_RETRIES."""
_STOP_LIMIT_S = 30.0
_POLL_S = 0.2

SETTINGS = """
# The tests read logs, which are packed otherwise.
JOB_AUTO_CLEANUP = False
"""
HEAD = """
from syncopate import Cluster, Resources, Sweep, param_avg
from syncopate.tasks.char_lm import char_lm


def py():
"""

OWN_TRAIN_STEP = """
from dataclasses import replace
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parent)


def own(module, **post_config):
    base = char_lm(max_train_sequences=512)
    imports = (f"from {module} import get_model, train_step",)
    return replace(base, imports=imports, python_path=(FOLDER,), post_config={**base.post_config, **post_config})
"""
"""Head of a config in which ``own("module")`` is the experiment with ``train_step`` of a module beside the config."""
SLOW = """
import time
import returnn.frontend as rf
from syncopate.tasks.char_lm import model
from syncopate.tasks.char_lm.model import get_model


def train_step(**kwargs):
    if rf.get_run_ctx().train_flag:
        time.sleep({sleep_s})
    model.train_step(**kwargs)
"""
"""Such a module: the time of an epoch, 8 updates with 4 ranks, hardly depends on the host."""


def sweep_text(
    prefix: str,
    rows: Mapping[str, str],
    *,
    num_epochs: int,
    num_gpus_per_node: int = 2,
    base: str = "char_lm(max_train_sequences=512)",
    resources: str = "mem_gb=2, time_h=1",
    options: str = "",
) -> str:
    """
    :param prefix: of the sweep
    :param rows: by name, code for the trial that is then called ``trial``, such as ``trial.job.set_env("A", "b")``
    :param num_epochs: of each
    :param num_gpus_per_node: ranks on each of two nodes
    :param base: code of the experiment
    :param resources: of one rank
    :param options: more arguments of the sweep
    :return: statements for :data:`HEAD`. Each row is the same training under a hash of its own.
    """
    lines = [
        f"base = {base}.updated({{'note': None}})",
        f"sweep = Sweep({prefix!r}, base=base, num_epochs={num_epochs}, resources=Resources({resources}),",
        f"    cluster=Cluster(num_nodes=2, num_gpus_per_node={num_gpus_per_node}, device='cpu'),",
        f"    torch_distributed={{'dataset_distribution': 'shard'}}, {options})",
    ]
    for name in rows:
        lines.append(f"trial_{name} = sweep.add({name!r}, param_avg(every=2), note={name!r})")
    lines.append("sweep.register()")
    for name, code in rows.items():
        if code:
            lines += [f"trial = trial_{name}", code]
    return "".join(f"    {line}\n" for line in lines)


class Setup:
    """
    A folder as a user of Sisyphus has. While it is entered, managers may run; at the end nothing of it does.

    :param folder: made by ``make_setup_folder``
    :param cluster: that its tasks run on
    :param settings: lines at the end of ``settings.py``
    """

    def __init__(self, folder: Path, cluster: Cluster, *, settings: str = "") -> None:
        self.folder = folder
        self.cluster = cluster
        (folder / "settings.py").unlink()
        text = (REPOSITORY / "settings.py").read_text(encoding="utf-8")
        (folder / "settings.py").write_text(f"{text}{SETTINGS}{settings}", encoding="utf-8")
        for name in ("config", "work"):
            (folder / name).mkdir()
        self._manager: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        own = {job_id for folder in self._job_folders() for job_id in Training(folder, self.cluster).job_ids()}
        left = own & self.cluster.squeue().keys()
        for job_id in left:
            self.cluster.run("scancel", str(job_id))
        self.cluster.wait_for("end of the jobs", lambda: not own & self.cluster.squeue().keys())
        # Of a manager that was stopped, tasks of its LocalEngine may still run.
        end_s = time.monotonic() + _STOP_LIMIT_S
        while (pids := pids_in(self.folder)) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def write(self, *sweeps: str, head: str = "", name: str = "sweeps") -> str:
        """
        :param sweeps: see :func:`sweep_text`
        :param head: of the config
        :param name: of the config
        :return: the path of a config for the manager
        """
        path = f"config/{name}.py"
        (self.folder / path).write_text(f"{head}{HEAD}{''.join(sweeps)}", encoding="utf-8")
        return path

    def start(self, config: str) -> None:
        """A manager in the background."""
        assert self._manager is None
        with (self.folder / "manager.log").open("ab") as log:
            self._manager = subprocess.Popen(
                [str(SIS), "manager", "-r", config],
                cwd=self.folder,
                env=self._environ(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert self._manager.stdin is not None
        # Asked only if all is done already: update outputs and aliases.
        self._manager.stdin.write(b"u\n")
        self._manager.stdin.close()

    def stop(self) -> None:
        """Ends the manager, if it runs. Jobs go on."""
        if self._manager is None:
            return
        if self._manager.poll() is None:
            self._manager.terminate()
            try:
                self._manager.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._manager.kill()
        self._manager.wait()
        self._manager = None

    def wait_for_end(self, limit_s: float = LIMIT_S) -> None:
        """Until the manager has nothing to do any more."""
        assert self._manager is not None
        try:
            self._manager.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the manager still runs after {limit_s} s\n{self.manager_log()[-4000:]}") from None
        self._manager = None

    def manager_log(self) -> str:
        return (self.folder / "manager.log").read_text(errors="replace")

    def training(self, alias: str, limit_s: float = LIMIT_S) -> Training:
        """
        :param alias: prefix of the sweep and name of the run; the manager makes it when it starts
        """
        path = self.folder / "alias" / alias

        def look() -> bool:
            assert path.exists() or self._manager is None or self._manager.poll() is None, self.manager_log()
            return path.exists()

        self.cluster.wait_for(f"alias {alias}", look, limit_s)
        return Training(path.resolve(), self.cluster)

    def compare(self, *arguments: str) -> str:
        """What ``python -m syncopate compare`` prints."""
        done = subprocess.run(
            [sys.executable, "-m", "syncopate", "compare", *arguments],
            cwd=self.folder,
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environ(self) -> dict[str, str]:
        """That of a user's shell with the environment of the setup activated: i6_core looks for black there."""
        environ = {name: value for name, value in self.cluster.environ.items() if name not in ("PYTHONPATH", "CI")}
        return {**environ, "PATH": os.pathsep.join([str(SIS.parent), environ.get("PATH", os.defpath)])}

    def _job_folders(self) -> Iterator[Path]:
        for path in self.folder.glob("work/**/submit_log.run"):
            yield path.parent
