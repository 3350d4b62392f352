"""Starts the agents of one attempt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from syncopate.errors import LaunchError
from syncopate.launch.agents import Agent
from syncopate.launch.command import agent_command, rank_tail
from syncopate.launch.environment import exposed_folder, gpus_of_agent, rank_environment
from syncopate.launch.place import Meeting
from syncopate.launch.training import Training
from syncopate.launch.watch import Attempt


def start_agent(
    training: Training,
    *,
    number: int,
    agents_here: int,
    meeting: Meeting,
    local_address: str | None,
    attempt: Attempt,
    environ: Mapping[str, str],
) -> Agent:
    """
    :param training: what is started
    :param number: of the agent
    :param agents_here: how many agents this launcher starts, which share this host
    :param meeting: where they meet
    :param local_address: by which other nodes reach this one; None if there are none on other hosts
    :param attempt: whose logs and records it writes
    :param environ: of the launcher
    :raises LaunchError: if it cannot be started
    """
    cluster = training.cluster
    command = agent_command(
        python=_find_python(training.python, environ),
        cluster=cluster,
        meeting=meeting,
        agent=number,
        tail=training.tail if training.tail is not None else rank_tail(training.config_file),
        log_dir=attempt.log_dir / f"agent{number}",
        local_address=local_address,
        distributed=training.distributed,
        join_limit_s=training.join_limit_s,
    )
    environment = rank_environment(
        environ=environ,
        python_path=exposed_folder(training.run_dir),
        num_cores=_cores_here(training, agents_here, environ),
        ranks_on_host=agents_here * cluster.num_gpus_per_node,
        rank_dir=attempt.rank_dir,
        attempt=attempt.id,
        agent=number,
        device=cluster.device,
        returnn_root=training.returnn_root,
    )
    if cluster.device == "gpu":
        environment.update(gpus_of_agent(environ, cluster, number, agents_here=agents_here))
    again = f".{attempt.try_number}" if attempt.try_number else ""
    return Agent(
        number=number,
        command=command,
        environ=environment,
        work_dir=training.work_dir,
        log_path=attempt.log_dir / f"agent{number}{again}.log",
        is_rank=not training.distributed,
        echo=training.echo,
    )


def _cores_here(training: Training, agents_here: int, environ: Mapping[str, str]) -> int:
    """:return: CPUs that the ranks started here may use together; the machine may have more than were asked for"""
    allowed = len(os.sched_getaffinity(0))
    asked = environ.get("SLURM_CPUS_PER_TASK", "")
    if asked.isdecimal() and allowed < min(int(asked), os.cpu_count() or 1):
        print(
            f"syncopate: the {training.cluster.num_gpus_per_node} ranks of this node may use {allowed} of the {asked}"
            " CPUs that were asked for, and will be slow. Since SLURM 22.05 srun does not take --cpus-per-task from"
            ' sbatch: call configure(globals(), engine="slurm") of syncopate.settings at the end of settings.py',
            flush=True,
        )
    return allowed if training.cpus_per_node is None else min(allowed, training.cpus_per_node * agents_here)


def _find_python(python: str, environ: Mapping[str, str]) -> str:
    """:return: where it is, independent of the working directory"""
    found = shutil.which(python, path=environ.get("PATH"))
    if found is None:
        raise LaunchError(
            f"the training python {python!r} does not exist, or is no program that may be executed, on host"
            f" {os.uname().nodename}"
        )
    return os.path.abspath(found)


def make_folders(training: Training, attempt: Attempt) -> None:
    """Those that agents and ranks expect."""
    for folder in (training.work_dir, attempt.log_dir):
        Path(folder).mkdir(parents=True, exist_ok=True)
