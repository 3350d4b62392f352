"""One rank by itself, without torchrun: what it does before and after RETURNN. Its ``rnn.py`` trains nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.launch.environment import expose_package
from syncopate.launch.rank_record import RankRecord, read_record, write_record
from tests.launch.trainings import make_checkout


def start_rank(
    folder: Path, body: str, *arguments: str, program: list[str] | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """:return: of a process that started as torchrun starts ranks: in a session of its own"""
    if not (folder / "checkout").exists():
        make_checkout(folder / "checkout", body)
    return subprocess.run(
        [sys.executable, *(program or ["-m", "syncopate.launch.rank"]), *(arguments or ["a.config"])],
        env={
            **os.environ,
            "PYTHONPATH": str(expose_package(folder)),
            "SYNCOPATE_RANK_DIR": str(folder / "ranks"),
            "SYNCOPATE_RETURNN_ROOT": str(folder / "checkout"),
            "SYNCOPATE_DEVICE": "cpu",
            **environ,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
    )


def record_in(folder: Path) -> RankRecord:
    return read_record(folder / "ranks" / "rank0.json")


def outcome_in(folder: Path) -> tuple[str, int | None, str | None]:
    outcome = record_in(folder).outcome
    assert outcome is not None
    return outcome.kind, outcome.exit_code, outcome.error


def test_finished(tmp_path: Path) -> None:
    before_s = time.time()
    done = start_rank(tmp_path, "print(sys.argv[1:], __name__)", "a.config", "++x", "1", SYNCOPATE_ATTEMPT="7")
    assert (done.returncode, done.stdout) == (0, "['a.config', '++x', '1'] __main__\n"), done.stderr
    assert outcome_in(tmp_path) == ("finished", 0, None)
    record = record_in(tmp_path)
    assert (record.rank, record.world_size, record.attempt) == (0, 1, "7")
    assert before_s < record.start_time_s < time.time()


def test_without_a_folder_for_records_there_is_none(tmp_path: Path) -> None:
    assert start_rank(tmp_path, "", SYNCOPATE_RANK_DIR="").returncode == 0
    assert not (tmp_path / "ranks").exists()


@pytest.mark.parametrize(
    ("body", "exit_code", "error"),
    [
        ("raise ValueError('no data')", 1, "ValueError: no data"),
        ("sys.exit(3)", 3, "SystemExit: 3"),
        ("sys.exit('no data')", 1, "SystemExit: no data"),
    ],
)
def test_failed(tmp_path: Path, body: str, exit_code: int, error: str) -> None:
    assert start_rank(tmp_path, body).returncode == exit_code
    assert outcome_in(tmp_path) == ("failed", exit_code, error)


def test_traceback_is_kept(tmp_path: Path) -> None:
    start_rank(tmp_path, "def load():\n    raise ValueError('no data')\nload()")
    outcome = record_in(tmp_path).outcome
    assert outcome is not None
    assert outcome.traceback[-1] == "ValueError: no data"
    assert any("in load" in line for line in outcome.traceback)


def test_killed(tmp_path: Path) -> None:
    done = start_rank(tmp_path, "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while record_in(tmp_path).outcome is None:
        assert time.monotonic() < deadline, "the guard did not notice"
        time.sleep(0.05)
    assert outcome_in(tmp_path) == ("killed", None, None)


def test_interrupted_is_told_from_failed(tmp_path: Path) -> None:
    """As RETURNN stops itself when little time is left: it turns the interrupt into exit code 1."""
    body = """
        import signal
        try:
            os.kill(-os.getpgrp(), signal.SIGINT)
        except KeyboardInterrupt:
            sys.exit(1)
    """
    assert start_rank(tmp_path, body).returncode == 1
    assert outcome_in(tmp_path) == ("interrupted", 1, "SystemExit: 1")


def test_k12_nothing_shadows_torch_also_after_a_restart(tmp_path: Path) -> None:
    """K12: neither our folder, nor the working directory, nor RETURNN's package comes before what is installed."""
    body = """
        from importlib.util import find_spec
        print(*sys.path[:2], find_spec("torch").origin, sep="\\n", flush=True)
        if os.environ.pop("RESTART", None):
            os.execv(sys.executable, [sys.executable, *sys.argv])  # as RETURNN does
    """
    (tmp_path / "torch.py").write_text("raise RuntimeError('a file of the working directory')")
    done = start_rank(tmp_path, body, RESTART="1")
    first, second = done.stdout.splitlines()[:3], done.stdout.splitlines()[3:]
    assert first[:2] == [str(tmp_path / "checkout"), str(tmp_path / "python_path")], done.stderr
    assert first[2].endswith("site-packages/torch/__init__.py")
    assert second == first
    assert outcome_in(tmp_path) == ("finished", 0, None)


def test_the_store_stays_until_the_last_node_is_done(tmp_path: Path) -> None:
    """torchrun waits 300 s for that, then takes it away from a rank that evaluates and saves longer."""
    make_checkout(tmp_path / "checkout", "print('done')")
    environ = {"WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "0", "SYNCOPATE_AGENT": "0"}
    first = subprocess.Popen(
        [sys.executable, "-m", "syncopate.launch.rank", "a.config"],
        env={
            **os.environ,
            "PYTHONPATH": str(expose_package(tmp_path)),
            "SYNCOPATE_RANK_DIR": str(tmp_path / "ranks"),
            "SYNCOPATE_RETURNN_ROOT": str(tmp_path / "checkout"),
            "SYNCOPATE_DEVICE": "cpu",
            "SYNCOPATE_ATTEMPT": "7",
            "RANK": "0",
            **environ,
        },
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "ranks" / "rank0.json").exists() or record_in(tmp_path).outcome is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = replace(record_in(tmp_path), rank=1, outcome=None)
        for record in (replace(second, attempt="6").ended("finished"), second):
            write_record(tmp_path / "ranks", record)
            with pytest.raises(subprocess.TimeoutExpired):
                first.wait(3)
        write_record(tmp_path / "ranks", second.ended("finished"))
        assert first.wait(20) == 0
    finally:
        first.kill()
        first.wait()


def test_data_workers_of_a_rank_that_ended_are_gone(tmp_path: Path) -> None:
    body = """
        import subprocess
        worker = subprocess.Popen(["sleep", "60"])
        print(worker.pid)
    """
    pid = int(start_rank(tmp_path, body).stdout)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rank_of_another_training_is_not_inherited(tmp_path: Path) -> None:
    done = start_rank(
        tmp_path,
        "print('_RETURNN_TORCH_DISTRIBUTED_INIT_INFO' in os.environ)",
        _RETURNN_TORCH_DISTRIBUTED_INIT_INFO="{'rank': 3, 'size': 4}",
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("rank", "sees_job"), [("0", True), ("1", False)])
def test_only_the_first_rank_asks_slurm_for_the_time_left(tmp_path: Path, rank: str, sees_job: bool) -> None:
    """RETURNN does so if it knows the job; it is rank 0 that has saved a checkpoint by then."""
    body = "print('SLURM_JOB_ID' in os.environ)"
    done = start_rank(tmp_path, body, RANK=rank, WORLD_SIZE="2", SLURM_JOB_ID="4711")
    assert done.stdout == f"{sees_job}\n", done.stderr


def test_k08_a_returnn_that_lacks_what_we_need_is_refused_before_it_runs(tmp_path: Path) -> None:
    """K08, on the last occasion: in the first second of the rank."""
    root = make_checkout(tmp_path / "checkout", "print('RETURNN runs')")
    (root / "returnn" / "torch" / "distributed.py").write_text("class DistributedContext:\n    pass\n")
    (root / "returnn" / "_setup_info_generated.py").write_text('version = "1.20260822.041010"\n')
    begin = time.monotonic()
    done = start_rank(tmp_path, "")
    assert time.monotonic() - begin < 3, "measured 0.3 s"
    assert done.returncode == 1
    assert done.stdout == ""
    kind, _, error = outcome_in(tmp_path)
    assert kind == "failed"
    assert (error or "").startswith("ComponentError: ")
    for version in ("1.20260822.41010", "1.20261022.211313"):
        assert version in (error or "")


def test_option_for_the_checkout(tmp_path: Path) -> None:
    other = make_checkout(
        tmp_path / "other", "print('the other one', sys.argv[1:], os.environ['SYNCOPATE_RETURNN_ROOT'])"
    )
    done = start_rank(tmp_path, "", "--returnn-root", str(other), "a.config")
    assert done.stdout == f"the other one ['a.config'] {other}\n"


@pytest.mark.parametrize("arguments", [["--returnn-root"], ["--returnn-root", "x"]])
def test_usage(tmp_path: Path, arguments: list[str]) -> None:
    done = start_rank(tmp_path, "", *arguments)
    assert done.returncode == 1
    assert done.stderr == "usage: python -m syncopate.launch.rank [--returnn-root DIR] CONFIG [RETURNN OPTIONS]\n"


def test_a_rank_whose_agent_is_gone_does_not_start(tmp_path: Path) -> None:
    """An orphan comes to process 1, or to who took that role, before it could bind itself to its agent."""
    make_checkout(tmp_path / "checkout", "print('RETURNN runs')")
    # The shell ends at once; what it leaves behind starts a moment later.
    shell = f"(sleep 0.5; exec {sys.executable} -m syncopate.launch.rank a.config > out 2>&1) & "
    subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(expose_package(tmp_path)),
            "TORCHELASTIC_RUN_ID": "x",
            "SYNCOPATE_RETURNN_ROOT": str(tmp_path / "checkout"),
        },
        check=True,
    )
    deadline = time.monotonic() + 10
    while "gone" not in (out := (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""):
        assert time.monotonic() < deadline, out
        time.sleep(0.1)
    assert "LaunchError: the torchrun agent that started this rank is gone, so this rank does not start" in out
    assert "RETURNN runs" not in out
