"""
A control group that holds the memory of jobs to what they asked for.

With one, the kernel ends what takes too much, and SLURM calls the step OUT_OF_MEMORY, as on a real cluster. It lies in
the group that the cluster is started in, so whatever limits that limits the jobs as well. SLURM itself would go to the
root of the hierarchy, under the same name for every cluster on this host.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

_BUSY_LIMIT_S = 5.0


def make_group() -> Path | None:
    """
    :return: a new one; None where the user may not make one, or the host has version 2 of control groups, in which a
        group that has processes cannot have groups
    """
    parent = _own_group()
    if parent is None or not os.access(parent, os.W_OK):
        return None
    return Path(tempfile.mkdtemp(prefix="loopback_slurm-", dir=parent))


def remove_group(group: Path) -> None:
    """
    With what SLURM made in it. Nothing happens if it is gone.

    :raises OSError: if a process is still in it
    """
    end_s = time.monotonic() + _BUSY_LIMIT_S
    for folder, _, _ in os.walk(group, topdown=False):
        while True:
            try:
                os.rmdir(folder)
            except OSError:
                # The kernel counts a process for a moment after it is gone.
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.05)
            else:
                break


def _own_group() -> Path | None:
    names = [line.split(":", maxsplit=2) for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    own = next((Path(name) for _, controllers, name in names if "memory" in controllers.split(",")), None)
    if own is None:
        return None
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(maxsplit=2)
        root, mount = map(Path, left.split()[3:5])
        # In a container the hierarchy may be mounted from its own group on.
        if kind == "cgroup" and "memory" in options.split(",") and own.is_relative_to(root):
            return mount / own.relative_to(root)
    return None
