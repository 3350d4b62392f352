from __future__ import annotations

from pathlib import Path

from syncopate.compare.failure import MAX_REASON_CHARS, bounded, nonfinite_from_logs, reason_from_logs
from tests.compare.helpers import write

# What a task of a Sisyphus job leaves behind when launching failed, colours included.
LAUNCH_FAILED = """\
[2025-11-03 10:00:00,100] INFO: \x1b[32mStart Job: SyncTrainingJob.abc Task: run\x1b[0m
[rank3]: Traceback (most recent call last):
[rank3]: RuntimeError: connection reset by peer
Traceback (most recent call last):
  File "task.py", line 186, in run
    f(*args)
\x1b[31;1msyncopate.errors.LaunchError\x1b[0m: rank 3 (local rank 1) on node 1 (host n2) was killed by SIGKILL
    its log is work/ranks/3/stderr.log
[2025-11-03 10:05:00,100] ERROR: \x1b[31mJob failed, traceback:\x1b[0m
[2025-11-03 10:05:01,100] INFO: \x1b[32mMax resources: Run time: 0:05:00 CPU: 1% RSS: 1GB VMS: 2GB\x1b[0m
"""

# What i6_core's own job leaves behind: the cause is above the error of the command that failed.
COMMAND_FAILED = """\
EXCEPTION
  File "engine.py", line 830, in Engine.train_epoch
[default1]:OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: rnn.py FAILED
subprocess.CalledProcessError: Command '['rnn.sh']' returned non-zero exit status 1.
[2025-11-03 10:05:00,100] ERROR: Executed command failed:
"""


def test_the_line_of_a_launch_error_is_the_reason(tmp_path: Path) -> None:
    log = write(tmp_path / "log.run.1", LAUNCH_FAILED)
    assert reason_from_logs([log]) == (
        "syncopate.errors.LaunchError: rank 3 (local rank 1) on node 1 (host n2) was killed by SIGKILL"
        " its log is work/ranks/3/stderr.log"
    )


def test_a_launch_error_goes_before_other_errors_of_other_nodes(tmp_path: Path) -> None:
    first = write(tmp_path / "log.run.1.0", "ValueError: something else\n")
    second = write(tmp_path / "log.run.1.1", "LaunchError: the other node is gone\n")
    assert reason_from_logs([first, second]) == "LaunchError: the other node is gone"


def test_the_cause_goes_before_the_command_that_failed_of_it(tmp_path: Path) -> None:
    log = write(tmp_path / "log.run.1", COMMAND_FAILED)
    assert reason_from_logs([log]) == "[default1]:OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def test_without_an_exception_the_last_lines_are_the_reason(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log.run.1",
        "one\ntwo\n\nslurmstepd: error: *** STEP 12 CANCELLED DUE TO TIME LIMIT ***\nsrun: error: n1: task 0\n"
        "[2025-11-03 10:05:01,100] INFO: Max resources: Run time: 0:05:00\n",
    )
    assert reason_from_logs([log]) == (
        "two / slurmstepd: error: *** STEP 12 CANCELLED DUE TO TIME LIMIT *** / srun: error: n1: task 0"
    )


def test_of_several_exceptions_the_last_one_is_the_reason(tmp_path: Path) -> None:
    log = write(tmp_path / "log.run.1", "ValueError: handled\nKeyError: 'not handled'\n")
    assert reason_from_logs([log]) == "KeyError: 'not handled'"


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    mark = "#" * 80
    log = write(
        tmp_path / "log.run.1",
        "Exception: Inf/nan score in step 3.\n"
        f"{mark}\nRETRY OR CONTINUE TASK\n{mark}\n\nsrun: error: n1: task 0: Killed\n",
    )
    assert reason_from_logs([log]) == "srun: error: n1: task 0: Killed"
    assert nonfinite_from_logs([log]) is None


def test_empty_or_missing_logs_give_no_reason(tmp_path: Path) -> None:
    assert reason_from_logs([write(tmp_path / "empty"), tmp_path / "missing"]) is None


def test_a_reason_is_one_bounded_line() -> None:
    text = bounded("\x1b[31mbad\x1b[0m:\n" + "word " * 200)
    assert text.startswith("bad: word word")
    assert text.endswith(" ...")
    assert len(text) <= MAX_REASON_CHARS
    assert "\n" not in text


def test_k25_the_rank_that_was_first_is_named(tmp_path: Path) -> None:
    """K25: RETURNN stops at a loss that is not finite; the earliest step is where it began."""
    log = write(
        tmp_path / "log.run.1",
        "[rank0]: Exception: Inf/nan score in step 12.\n[rank2]: Exception: Inf/nan score in step 7.\n",
    )
    assert nonfinite_from_logs([log]) == "[rank2]: Exception: Inf/nan score in step 7."


def test_k25_the_launchers_error_names_node_and_rank(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log.run.1",
        "[rank2]: Exception: Inf/nan score in step 7.\n"
        "LaunchError: rank 2 on node 1 failed: Exception: Inf/nan score in step 7.\n",
    )
    assert nonfinite_from_logs([log]) == "LaunchError: rank 2 on node 1 failed: Exception: Inf/nan score in step 7."


def test_other_failures_are_no_divergence(tmp_path: Path) -> None:
    assert nonfinite_from_logs([write(tmp_path / "log.run.1", LAUNCH_FAILED)]) is None
