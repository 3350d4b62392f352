"""What befalls trainings: each act takes one that trains, and says what is to be read about it afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.slurm.training import Training

Act = Callable[[Training], str]


def nothing(training: Training) -> str:
    return ""


def kill_rank(node: int) -> Act:
    def act(training: Training) -> str:
        record = training.rank_on(node)
        os.kill(record.pid, signal.SIGKILL)
        return f"{record} was killed by SIGKILL"

    return act


def kill_agent(node: int) -> Act:
    def act(training: Training) -> str:
        ranks = [record for record in training.ranks() if record.agent == node]
        os.kill(training.agent_pid(node), signal.SIGKILL)
        store = ", which hosted the store," if node == 0 else ""
        numbers = ", ".join(str(record.rank) for record in ranks)
        where = f"of node {ranks[0].node} (host {ranks[0].host}) with ranks {numbers}"
        return f"agent {node}{store} {where} was ended by SIGKILL"

    return act


def kill_launcher(node: int) -> Act:
    def act(training: Training) -> str:
        note = training.notes()[node]
        os.kill(training.launcher_pid(node), signal.SIGKILL)
        return f"{note.name} gave no sign for "

    return act


def scancel(*options: str) -> Act:
    def act(training: Training) -> str:
        training.cluster.run("scancel", *options, str(training.job_ids()[-1]))
        return "told to end by SIGTERM"

    return act


def requeue(training: Training) -> str:
    (job_id,) = training.job_ids()
    training.cluster.run("scontrol", "requeue", str(job_id))
    training.start_now(job_id)
    return "told to end by SIGTERM"


def cpus_and_threads(training: Training) -> dict[int, tuple[set[int], set[int], set[int]]]:
    """By number of the node: CPUs that its launcher may use, CPUs that its ranks may use, and threads of its ranks."""
    found = {}
    for node in (0, 1):
        pids = [record.pid for record in training.ranks() if record.agent == node]
        threads = {int(_environ_of(pid)["OMP_NUM_THREADS"]) for pid in pids}
        found[node] = _cpus_of(training.launcher_pid(node)), set().union(*map(_cpus_of, pids)), threads
    return found


def _environ_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in (entry.partition(b"=") for entry in entries)}


def _cpus_of(pid: int) -> set[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Cpus_allowed_list:"))
    ends = [part.partition("-") for part in line.split()[1].split(",")]
    return {cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)}
