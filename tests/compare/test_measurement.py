from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.compare.folder import ALIVE_FOR_S
from syncopate.compare.measurement import EpochValue, Measurement, measure
from syncopate.compare.syncs import SyncCount
from syncopate.errors import ReadError
from syncopate.sweep.record import RunRecord
from tests.compare.helpers import (
    RUN,
    clean,
    dev,
    epoch,
    finish,
    learning_rates,
    local_run,
    run_record,
    sisyphus_job,
    status,
    write,
)

# The file of K27, character by character.
K27 = """{
1: EpochData(learningRate=0.01, error={
':meta:distributed': '<DistributedContext size=2 reduce_type=param>',
':meta:effective_learning_rate': np.float64(0.001),
':meta:epoch_num_train_steps': 26,
':meta:epoch_train_time_secs': 0,
'dev_loss_ce': 0.5,
'dev_loss_ce:exp': float('inf'),
'train_loss_ce': 0.6,
}),
2: EpochData(learningRate=0.01, error={'dev_loss_ce': float('nan'), 'train_loss_ce': nan}),
3: EpochData(learningRate=0.02, error={'train_loss_ce': 0.4}),
4: EpochData(learningRate=0.03, error={}),
}
"""


def measure_in(base: Path, run: RunRecord = RUN, *, score: str = "dev_loss_ce") -> Measurement:
    return measure(run, base=base, score=score, lower_is_better=True)


def job(base: Path) -> Path:
    return base / RUN.directory


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def usage(directory: Path, *, host: str, pid: int, age_s: float = 0.0) -> None:
    """Writes what Sisyphus notes about a running task; ages it and the log."""
    path = write(directory / "usage.run.1", f"{{'current': {{'cpu': 1.0}},\n 'host': {host!r},\n 'pid': {pid}}}\n")
    for file in (path, directory / "log.run.1"):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - age_s))


def test_the_numbers_of_a_finished_training(tmp_path: Path) -> None:
    """3 epochs of 501, 503 and 100 micro-batches, 2 per update, on 4 ranks of at most 8 sequences."""
    local_run(job(tmp_path), [dev(3.0, steps=501), dev(2.0, steps=503, time_s=31), dev(2.5, steps=100, time_s=7)])
    found = measure_in(tmp_path)
    assert (found.state, found.reason, found.source) == ("finished", None, "output/learning_rates")
    assert found.epochs_done == 3
    assert found.best == EpochValue(epoch=2, value=2.0)
    assert found.last == EpochValue(epoch=3, value=2.5)
    assert found.updates == 250 + 251 + 50
    assert found.samples_upper_bound == (501 + 503 + 100) * 4 * 8
    assert found.train_time_s == 30 + 31 + 7
    assert found.world_size_seen == 4
    # 551 updates hold 100 five times; the epochs hold it 2, 2 and 0 times.
    assert found.syncs == (SyncCount(group="all ranks", kind="parameters", every=100, planned=5, observed=4),)
    assert found.epochs[1].train_steps == 503
    assert found.epochs[1].learning_rate == 0.01
    assert found.epochs[1].scores == {"train_loss_ce": 2.5, "dev_loss_ce": 2.0}


def test_k20_a_period_longer_than_an_epoch_is_in_the_result(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0, steps=501), dev(2.0, steps=199), dev(2.5, steps=199)])
    (warning,) = measure_in(tmp_path).warnings
    assert "every 100 updates never fires in 2 of 3 epochs, which have 99 updates each" in warning


def test_a_higher_score_can_be_better(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0), dev(2.5)])
    found = measure(RUN, base=tmp_path, score="dev_loss_ce", lower_is_better=False)
    assert found.best == EpochValue(epoch=1, value=3.0)


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    epochs = [dev(3.0, steps=None), dev(2.0, time_s=None), dev(2.5)]
    local_run(job(tmp_path), epochs)
    found = measure_in(tmp_path)
    assert (found.updates, found.samples_upper_bound, found.train_time_s) == (None, None, None)
    assert (found.syncs[0].planned, found.syncs[0].observed) == (None, None)
    known = measure_in(tmp_path, run_record(num_epochs=3, accum_grad=None, max_seqs=None))
    assert (known.updates, known.samples_upper_bound) == (None, None)


def test_epochs_after_the_last_one_asked_for_are_not_counted(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0), dev(2.5), dev(1.0), dev(float("nan"))])
    found = measure_in(tmp_path)
    assert found.state == "finished"
    assert found.best == EpochValue(epoch=2, value=2.0)
    assert found.warnings == ("2 epochs after epoch 3, the last one asked for, are not counted",)


def test_k27_through_the_parser(tmp_path: Path) -> None:
    """K27: epoch 2 diverged, 3 is not complete, 4 is planned; the inf of a derived score is no divergence."""
    write(job(tmp_path) / "output" / "learning_rates", K27)
    found = measure_in(tmp_path, replace(RUN, num_ranks=2, num_nodes=1, num_epochs=4))
    assert (found.state, found.reason) == ("diverged", "epoch 2: dev_loss_ce is nan")
    assert [item.epoch for item in found.epochs] == [1, 2]
    assert found.best == EpochValue(epoch=1, value=0.5)
    assert found.last is None
    assert found.world_size_seen == 2
    assert found.epochs[0].train_time_s == 0
    assert found.train_time_s is None  # epoch 2 does not tell


def test_k25_nan_makes_a_finished_training_diverged(tmp_path: Path) -> None:
    """K25: whatever its error rate says."""
    local_run(job(tmp_path), [dev(3.0), epoch({"train_loss_ce": math.inf, "dev_loss_ce": 1.0}), dev(0.5)])
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("diverged", "epoch 2: train_loss_ce is inf")
    assert not found.is_counted


def test_k25_the_stop_at_a_nonfinite_loss_is_a_divergence(tmp_path: Path) -> None:
    """K25: RETURNN raises within the epoch, so the file has no score of it."""
    reason = "rank 1 (local rank 1) on node 0 failed: Exception: Inf/nan score in step 7."
    local_run(job(tmp_path), [dev(3.0)], "failed", reason=reason)
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("diverged", reason)
    shutil.rmtree(job(tmp_path))
    sisyphus_job(job(tmp_path), [dev(3.0)], log="[rank1]: Exception: Inf/nan score in step 7.\n")
    write(job(tmp_path) / "error.run.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("diverged", "[rank1]: Exception: Inf/nan score in step 7.")


def test_k10_another_number_of_ranks_is_rejected(tmp_path: Path) -> None:
    """K10: two worlds of 2 ranks, each of which went well, are not one of 4."""
    local_run(job(tmp_path), [dev(3.0, ranks=2), dev(2.0, ranks=2), dev(1.0, ranks=2)])
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("rejected", "epoch 1 was trained by 2 ranks, not by 4")
    assert not found.is_counted


def test_k10_one_epoch_of_another_world_is_enough(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0, ranks=1), dev(1.0)])
    assert measure_in(tmp_path).reason == "epoch 2 was trained by 1 ranks, not by 4"


def test_k10_an_unknown_number_of_ranks_is_said(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(value, ranks=None) for value in (3.0, 2.0, 1.0)])
    found = measure_in(tmp_path)
    assert (found.state, found.world_size_seen) == ("finished", None)
    assert found.warnings == ("RETURNN did not note how many ranks took part, so 4 is not confirmed",)


def test_a_single_process_is_a_world_of_one(tmp_path: Path) -> None:
    run = replace(RUN, num_nodes=1, num_ranks=1, levels=(), scheme=None, scheme_text="single process", epoch_end=None)
    local_run(job(tmp_path), [dev(value, ranks=1) for value in (3.0, 2.0, 1.0)])
    found = measure_in(tmp_path, run)
    assert (found.state, found.syncs, found.warnings) == ("finished", (), ())


def test_local_running(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0)], "running", pid=os.getpid(), host=socket.gethostname())
    found = measure_in(tmp_path)
    assert (found.state, found.source, found.epochs_done) == ("running", "work/learning_rates", 1)


def test_local_running_on_another_host_is_believed(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0)], "running", pid=dead_pid(), host="elsewhere")
    assert measure_in(tmp_path).state == "running"


def test_local_running_whose_process_is_gone_is_partial(tmp_path: Path) -> None:
    pid = dead_pid()
    local_run(job(tmp_path), [dev(3.0)], "running", pid=pid, host=socket.gethostname())
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", f"the process {pid} that trained it is gone")


def test_local_failed_has_its_reason(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0)], "failed", reason="rank 1 was killed by SIGKILL")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("failed", "rank 1 was killed by SIGKILL")


def test_local_finished_too_early_is_partial(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0)])
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", "it ended, but only 2 of 3 epochs are complete")


def test_a_status_that_is_none_is_unreadable(tmp_path: Path) -> None:
    status(job(tmp_path), "sleeping")
    found = measure_in(tmp_path)
    assert found.state == "unreadable"
    assert found.reason == (
        f"{job(tmp_path)}/status.json: 'state' must be one of ['running', 'failed', 'finished'], got 'sleeping'"
    )
    write(job(tmp_path) / "status.json", '{"state": "run')
    assert measure_in(tmp_path).state == "unreadable"


def test_sisyphus_waiting(tmp_path: Path) -> None:
    assert measure_in(tmp_path).state == "waiting"
    assert measure_in(tmp_path).reason == f"its folder {job(tmp_path)} is not there"
    sisyphus_job(job(tmp_path), log=None)
    assert (measure_in(tmp_path).state, measure_in(tmp_path).reason) == ("waiting", "its job has not started yet")


def test_sisyphus_running_by_its_process(tmp_path: Path) -> None:
    sisyphus_job(job(tmp_path), [dev(3.0)], log="training\n")
    usage(job(tmp_path), host=socket.gethostname(), pid=os.getpid(), age_s=10 * ALIVE_FOR_S)
    assert measure_in(tmp_path).state == "running"
    pid = dead_pid()
    usage(job(tmp_path), host=socket.gethostname(), pid=pid)
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", f"the process {pid} that trained it is gone")


def test_sisyphus_running_elsewhere_by_the_age_of_its_files(tmp_path: Path) -> None:
    sisyphus_job(job(tmp_path), [dev(3.0)], log="training\n")
    usage(job(tmp_path), host="node17", pid=dead_pid(), age_s=0.5 * ALIVE_FOR_S)
    assert measure_in(tmp_path).state == "running"
    usage(job(tmp_path), host="node17", pid=dead_pid(), age_s=2 * ALIVE_FOR_S)
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", "neither its log nor its usage file changed lately")


def test_sisyphus_multi_node_logs_count(tmp_path: Path) -> None:
    """A task on several nodes leaves one log per node, and none under the plain name."""
    sisyphus_job(job(tmp_path), log=None)
    write(job(tmp_path) / "log.run.1.0")
    assert measure_in(tmp_path).state == "running"


def test_sisyphus_failed_has_the_line_of_its_log(tmp_path: Path) -> None:
    sisyphus_job(job(tmp_path), [dev(3.0)], log="noise\n\x1b[31mLaunchError\x1b[0m: rank 3 on node 1 died\nmore\n")
    write(job(tmp_path) / "error.run.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("failed", "LaunchError: rank 3 on node 1 died")
    assert found.epochs_done == 1


def test_k17_a_failing_node_is_never_finished(tmp_path: Path) -> None:
    """K17: another node may have marked the task, and Sisyphus the job, as finished."""
    sisyphus_job(job(tmp_path), [dev(3.0), dev(2.0), dev(1.0)])
    finish(job(tmp_path))
    write(job(tmp_path) / "error.run.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("failed", "marked by error.run.1, and no log says why")


def test_sisyphus_failed_before_it_started(tmp_path: Path) -> None:
    sisyphus_job(job(tmp_path), log=None)
    write(job(tmp_path) / "log.create_files.1", "ValueError: no black in PATH\n")
    write(job(tmp_path) / "error.create_files.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("failed", "ValueError: no black in PATH")


def test_a_training_whose_plot_failed_is_finished(tmp_path: Path) -> None:
    sisyphus_job(job(tmp_path), [dev(3.0), dev(2.0), dev(1.0)])
    write(job(tmp_path) / "finished.run.1")
    write(job(tmp_path) / "error.plot.1")
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("finished", None)
    assert found.warnings == ("trained, but then the task 'plot' of its job failed",)


def test_k28_a_cleaned_job_is_measured_as_before(tmp_path: Path) -> None:
    """K28: work/ deleted, logs packed."""
    sisyphus_job(job(tmp_path), [dev(3.0), dev(2.0), dev(2.5)], log="training\n")
    finish(job(tmp_path))
    before = measure_in(tmp_path)
    clean(job(tmp_path))
    assert sorted(path.name for path in job(tmp_path).iterdir()) == ["finished.tar.gz", "info", "input", "output"]
    assert measure_in(tmp_path) == before
    assert (before.state, before.source) == ("finished", "output/learning_rates")


def test_epochs_without_any_mark_are_partial(tmp_path: Path) -> None:
    write(job(tmp_path) / "work" / "learning_rates", learning_rates([dev(3.0)]))
    found = measure_in(tmp_path)
    assert (found.state, found.reason) == ("partial", "nothing in its folder says that it is being trained")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{\n1: EpochData(learningRate=0.01, error={'dev_loss_ce': 3.0}),\n2: EpochData(learn", ":3"),
        ("{\n1: EpochData(learningRate=0.01,\n error={'dev_loss_ce': __import__('os').getpid()}),\n}\n", ":3"),
        ("", ""),
    ],
)
def test_k31_a_torn_file_makes_the_training_unreadable(tmp_path: Path, text: str, line: str) -> None:
    sisyphus_job(job(tmp_path), log="training\n")
    file = write(job(tmp_path) / "work" / "learning_rates", text)
    found = measure_in(tmp_path)
    assert found.state == "unreadable"
    assert found.reason is not None
    assert found.reason.startswith(f"{file}{line}")
    assert not found.is_counted


def test_k31_a_folder_that_cannot_be_looked_at_is_unreadable(tmp_path: Path) -> None:
    found = measure_in(tmp_path, run_record(directory="x" * 300))
    assert found.state == "unreadable"
    assert found.reason is not None
    assert "File name too long" in found.reason


def test_a_training_without_dev_set_has_no_dev_score(tmp_path: Path) -> None:
    local_run(job(tmp_path), [epoch({"train_loss_ce": value}) for value in (3.0, 2.0, 1.0)])
    found = measure_in(tmp_path)
    assert (found.state, found.epochs_done, found.best, found.last) == ("finished", 3, None, None)
    assert found.score_names == ["train_loss_ce"]
    assert measure_in(tmp_path, score="train_loss_ce").best == EpochValue(epoch=3, value=1.0)


def test_another_score_can_be_asked_for_later(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0), dev(2.5)])
    found = measure_in(tmp_path).rescored("train_loss_ce", lower_is_better=False)
    assert found.best == EpochValue(epoch=1, value=3.5)
    assert (found.score, found.lower_is_better) == ("train_loss_ce", False)


def test_json_round_trip_with_numbers_that_json_has_no_word_for(tmp_path: Path) -> None:
    write(job(tmp_path) / "output" / "learning_rates", K27)
    run = replace(RUN, num_ranks=2, num_nodes=1, num_epochs=4, options={"learning_rate": 0.5})
    found = measure_in(tmp_path, run)
    text = found.to_json()
    plain = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert plain["epochs"][0]["scores"]["dev_loss_ce:exp"] == "inf"
    again = Measurement.from_dict(plain, source="results.json")
    assert again.to_json() == text
    assert again.run == run
    assert again.epochs[0] == found.epochs[0]
    assert math.isnan(again.epochs[1].scores["dev_loss_ce"])


def test_a_result_of_another_kind_is_refused(tmp_path: Path) -> None:
    local_run(job(tmp_path), [dev(3.0), dev(2.0), dev(2.5)])
    plain = json.loads(measure_in(tmp_path).to_json())
    with pytest.raises(ReadError, match=r"^r\.json: expected the result of a training in format 1: 2$"):
        Measurement.from_dict({**plain, "format": 2}, source="r.json")
    with pytest.raises(ReadError, match=r"^r\.json: Measurement: missing \['state'\], unknown \['stat'\]; written by"):
        Measurement.from_dict({("stat" if key == "state" else key): plain[key] for key in plain}, source="r.json")
    with pytest.raises(ReadError, match=r"^r\.json: is not the result of a training: "):
        Measurement.from_dict({**plain, "epochs": 3}, source="r.json")
