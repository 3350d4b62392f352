"""Counts of the kernel, in control groups as SLURM makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncopate.launch.host_memory import num_memory_kills

V2_STEP = "system.slice/slurmstepd.scope/job_123/step_0/user/task_0"
V1_STEP = "slurm/uid_1000/job_123/step_0/task_0"


class Groups:
    """A tree of control groups, and what the kernel says of those of this process."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "cgroup"
        self.mount.mkdir()
        self._names = folder / "names"
        self._names.write_text("")

    def have(self, *lines: str) -> None:
        self._names.write_text("".join(f"{line}\n" for line in lines))

    def counts(self, group: str, kills: int, *, name: str = "memory.events") -> None:
        folder = self.mount / group
        folder.mkdir(parents=True, exist_ok=True)
        head = "oom_kill_disable 0\nunder_oom 0\n" if name == "memory.oom_control" else "low 0\nhigh 0\nmax 9\noom 8\n"
        tail = "oom_group_kill 7\n" if name != "memory.oom_control" else ""
        (folder / name).write_text(f"{head}oom_kill {kills}\n{tail}")

    def num_kills(self) -> int | None:
        return num_memory_kills(self._names, self.mount)


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def test_v2_all_of_the_slurm_job_counts_and_nothing_else(groups: Groups) -> None:
    """A step's own limit and the job's: either may be what was hit."""
    groups.have(f"0::/{V2_STEP}")
    groups.counts("", 100)
    groups.counts("system.slice", 100)
    groups.counts("system.slice/slurmstepd.scope", 100)
    groups.counts("system.slice/slurmstepd.scope/job_124", 100)
    groups.counts("system.slice/slurmstepd.scope/job_123/step_1", 100)
    for length in range(3, 7):
        groups.counts("/".join(V2_STEP.split("/")[:length]), 0)
    assert groups.num_kills() == 0
    groups.counts("system.slice/slurmstepd.scope/job_123", 2)
    assert groups.num_kills() == 2, "of the job, in another step perhaps"
    groups.counts("system.slice/slurmstepd.scope/job_123", 0)
    groups.counts(V2_STEP, 1)
    assert groups.num_kills() == 1


def test_v2_without_slurm_only_the_own_group_counts(groups: Groups) -> None:
    groups.have("0::/user.slice/user-1000.slice/session-1.scope")
    groups.counts("user.slice", 100)
    groups.counts("user.slice/user-1000.slice", 100)
    groups.counts("user.slice/user-1000.slice/session-1.scope", 3)
    groups.counts("user.slice/user-1000.slice/session-2.scope", 100)
    assert groups.num_kills() == 3


def test_v2_in_a_container_with_a_namespace_of_its_own(groups: Groups) -> None:
    """What it sees as the root is its own group."""
    groups.have("0::/")
    assert groups.num_kills() is None
    groups.counts("", 5)
    groups.counts("other", 100)
    assert groups.num_kills() == 5


def test_v1_the_memory_controller_counts(groups: Groups) -> None:
    groups.have(
        "12:cpuset:/slurm/uid_1000/job_123/step_0",
        f"9:memory:/{V1_STEP}",
        "3:cpu,cpuacct:/system.slice/slurmd.service",
        "1:name=systemd:/system.slice/slurmd.service",
        "0::/system.slice/slurmd.service",
    )
    groups.counts("memory/slurm/uid_1000", 100, name="memory.oom_control")
    groups.counts("memory/slurm/uid_1000/job_124", 100, name="memory.oom_control")
    groups.counts("cpuset/slurm/uid_1000/job_123/step_0", 100, name="memory.oom_control")
    groups.counts("memory/slurm/uid_1000/job_123", 0, name="memory.oom_control")
    groups.counts(f"memory/{V1_STEP}", 0, name="memory.oom_control")
    assert groups.num_kills() == 0
    groups.counts("memory/slurm/uid_1000/job_123/step_0", 1, name="memory.oom_control")
    assert groups.num_kills() == 1


def test_v1_controllers_may_be_mounted_together(groups: Groups) -> None:
    groups.have("9:hugetlb,memory:/docker/abc")
    groups.counts("memory/docker/abc", 4, name="memory.oom_control")
    assert groups.num_kills() == 4


def test_local_counts_are_enough(groups: Groups) -> None:
    groups.have(f"0::/{V2_STEP}")
    groups.counts(V2_STEP, 1, name="memory.events.local")
    assert groups.num_kills() == 1


def test_where_nothing_is_counted_nothing_is_said(groups: Groups) -> None:
    assert groups.num_kills() is None, "no control groups"
    groups.have(f"0::/{V2_STEP}")
    assert groups.num_kills() is None, "not mounted"
    groups.counts("system.slice", 5)
    assert groups.num_kills() is None, "only around the job"
    (groups.mount / V2_STEP).mkdir(parents=True)
    (groups.mount / V2_STEP / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\n")
    assert groups.num_kills() is None, "a kernel before 4.13"
    assert num_memory_kills(groups.mount / "no such file", groups.mount) is None


def test_a_hybrid_without_memory_in_v1(groups: Groups) -> None:
    """Only what is named counts, not a file of another controller's tree."""
    groups.have("1:name=systemd:/a/job_123", "0::/b/job_123/step_0")
    groups.counts("memory/a/job_123", 100)
    groups.counts("b/job_123", 2)
    assert groups.num_kills() == 2


def test_this_process() -> None:
    """Whatever this host has."""
    found = num_memory_kills()
    assert found is None or found >= 0
