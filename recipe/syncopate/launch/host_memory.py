"""
Was a process killed because this host, or what SLURM allows of it, ran out of memory?

The kernel counts such kills per control group. Without control groups nothing can be said here; then SLURM itself ends
the job, and its accounting says why.
"""

from __future__ import annotations

import re
from pathlib import Path

_COUNTS = ("memory.events", "memory.events.local", "memory.oom_control")


def num_memory_kills(cgroup_file: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int | None:
    """
    :param cgroup_file: in which the kernel names the control groups of a process
    :param mount: where they are mounted
    :return: a number that grows when a process of our SLURM job on this host, or without SLURM of our control group, is
        killed for lack of memory; None where that is not counted
    """
    counts = [count for folder in _folders(cgroup_file, mount) for count in _kills(folder)]
    return sum(counts) if counts else None


def _folders(cgroup_file: Path, mount: Path) -> list[Path]:
    """:return: the memory controller's group, and those around it up to the SLURM job's, which may have a limit"""
    try:
        lines = cgroup_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            root = mount
        elif "memory" in controllers.split(","):
            root = mount / "memory"
        else:
            continue
        parts = [part for part in path.split("/") if part]
        if not parts:
            folders.append(root)  # as a container with a namespace of its own sees its group
            continue
        job = next((index for index, part in enumerate(parts) if re.fullmatch(r"job_\d+", part)), len(parts) - 1)
        folders += [root.joinpath(*parts[:length]) for length in range(job + 1, len(parts) + 1)]
    return folders


def _kills(folder: Path) -> list[int]:
    counts = []
    for name in _COUNTS:
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except OSError:
            continue
        counts += [int(number) for number in re.findall(r"^oom_kill (\d+)$", text, re.M)]
    return counts
