"""
The launcher in a batch script: SLURM runs it once, on the first node, and it starts one launcher per node by srun
(:mod:`~syncopate.launch.node`). It prepares, waits, writes the outputs, and tells what the nodes told.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from syncopate.errors import LaunchError
from syncopate.launch import lifeline
from syncopate.launch.attempts import note_end
from syncopate.launch.board import Board, end_now, root_cause
from syncopate.launch.environment import exposed_folder
from syncopate.launch.interruption import Interruption
from syncopate.launch.node import board_folder, raise_end
from syncopate.launch.place import Allocation
from syncopate.launch.rank_record import check_ranks
from syncopate.launch.training import Hooks, Training
from syncopate.launch.watch import StopSignals

_POLL_S = 0.5
_STOP_LIMIT_S = 20.0
_OTHERS_LIMIT_S = 120
TRAINING_FILE = "training.json"


def run_from_batch_script(
    training: Training, allocation: Allocation, *, environ: Mapping[str, str], hooks: Hooks
) -> None:
    """
    :param training: what is started
    :param allocation: the nodes
    :param environ: of this process
    :param hooks: what is done around it, all of it here
    :raises LaunchError: see :func:`syncopate.launch.run.run_training`
    """
    folder = board_folder(training, allocation.attempt)
    with StopSignals() as stop:
        try:
            hooks.begin(training.run_dir, allocation.attempt)
            exit_code = _run_srun(training, allocation, folder.parent, environ=environ, hooks=hooks, stop=stop)
            if stop.noted is not None:
                raise Interruption(stop.reason)
            _check_notes(Board(folder, hosts=allocation.hosts, node=None), exit_code, folder.parent)
            check_ranks(folder.parent / "ranks", training.cluster, attempt=allocation.attempt)
            if hooks.finish is not None:
                hooks.finish()
        except BaseException as exc:
            note_end(training.run_dir, allocation.attempt, str(exc) or type(exc).__name__)
            raise


def srun_command(srun: str, training: Training, training_file: Path, environ: Mapping[str, str]) -> list[str]:
    """
    :param srun: the program
    :param training: what is started
    :param training_file: it, written down
    :param environ: of the batch script
    :return: what starts a launcher on each node, with all of the job's CPUs, memory and GPUs there
    """
    nodes = training.cluster.num_nodes
    # Since SLURM 22.05 a step does not take this from the job.
    cpus = environ.get("SLURM_CPUS_PER_TASK") or environ.get("SLURM_CPUS_ON_NODE")
    return [
        srun,
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        "--kill-on-bad-exit=0",  # each launcher ends by itself, and says why first
        f"--wait={_OTHERS_LIMIT_S}",  # unless one hangs
        "--overlap",  # the batch script may itself run inside of a step
        "--unbuffered",
        "--export=ALL",
        sys.executable,
        "-m",
        "syncopate.launch.node",
        str(training_file),
    ]


def _run_srun(
    training: Training,
    allocation: Allocation,
    log_dir: Path,
    *,
    environ: Mapping[str, str],
    hooks: Hooks,
    stop: StopSignals,
) -> int:
    srun = shutil.which("srun", path=environ.get("PATH"))
    if srun is None:
        raise LaunchError(
            f"srun is not on the PATH ({environ.get('PATH')}) of this launcher, which runs once in the batch script and"
            f" has to start the other {training.cluster.num_nodes - 1} nodes with it; add its folder to PATH in"
            " DEFAULT_ENVIRONMENT_SET of settings.py, and if the worker runs in a container, make it visible there"
        )
    log_dir.mkdir(parents=True, exist_ok=True)
    training_file = log_dir / TRAINING_FILE
    training_file.write_text(json.dumps(training.as_dict()), encoding="utf-8")
    inherited = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    process = subprocess.Popen(
        lifeline.bound_command(srun_command(srun, training, training_file, environ)),
        env={**environ, "PYTHONPATH": os.pathsep.join([str(exposed_folder(training.run_dir)), *inherited])},
        stdin=subprocess.DEVNULL,
    )
    try:
        while stop.noted is None:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if hooks.on_poll is not None:
                    hooks.on_poll()
        return -stop.noted
    finally:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the step: srun passes SIGTERM on to the launchers of the nodes, which end their ranks."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _check_notes(board: Board, exit_code: int, log_dir: Path) -> None:
    """All nodes must have said that they are complete; srun's exit code alone says neither that nor who failed."""
    notes = board.look()
    root = root_cause(notes)
    silent = [note.name for note in notes if note is not None and note.end is None and note.state != "complete"]
    if root is not None and not root.is_cause and silent:
        # Nobody who could say so knows the cause, and one is gone without a word: it is, as among launchers themselves.
        root = end_now("stopped", f"{', '.join(silent)} ended without a word, and the others with it: {root.reason}")
    if root is not None:
        raise_end(root)
    lost = [number for number, note in enumerate(notes) if note is None or note.state != "complete"]
    if not lost and exit_code == 0:
        return
    names = ", ".join(f"node {number} (host {board.hosts[number]})" for number in lost)
    if all(notes[number] is None for number in lost) and lost:
        raise LaunchError(
            f"srun ended with exit code {exit_code}, and {names} never started a launcher: {sys.executable} or the"
            f" folder {board.folder} is not there on the node, or SLURM could not start the step; see above for what"
            f" srun said. Logs: {log_dir}"
        )
    raise_end(end_now("stopped", f"srun ended with exit code {exit_code}, and {names or 'all nodes'} without a word"))
