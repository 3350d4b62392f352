"""Trainings on a real SLURM that meet a limit: of starts, of time, of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.outcomes import check_same_result
from tests.slurm.sweeps import ALLOWED_STARTS, OWN_TRAIN_STEP, REPOSITORY, SETTINGS, SLOW, Setup, sweep_text
from tests.slurm.training import Training

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(900)]

SEVERAL_STARTS_LIMIT_S = 400.0

HUNGRY = """
import os
from syncopate.tasks.char_lm import model
from syncopate.tasks.char_lm.model import get_model

HELD = []


def train_step(**kwargs):
    model.train_step(**kwargs)
    if os.environ["RANK"] == "1":
        HELD.append(b"x" * 2**30)
"""
GPU_HUNGRY = """
import os
import torch
from syncopate.tasks.char_lm import model
from syncopate.tasks.char_lm.model import get_model


def train_step(**kwargs):
    model.train_step(**kwargs)
    if os.environ["RANK"] == "1":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
"""


@pytest.fixture(scope="module")
def make_setup(cluster, make_setup_folder, tmp_path_factory):
    def make(**options) -> Setup:
        return Setup(make_setup_folder(tmp_path_factory.mktemp("limits")), cluster, **options)

    return make


@pytest.mark.full
def test_a_worker_that_cannot_start_on_the_nodes_is_given_up(make_setup):
    """It never writes a line of log, and is not submitted for ever."""
    wrapper = """
def worker_wrapper(job, task_name, call):
    return ["/nowhere/python", *call[1:]] if "/training/" in job.job_id() and task_name == "run" else call
"""
    setup = make_setup(settings=wrapper)
    with setup:
        setup.start(setup.write(sweep_text("nowhere", {"row": ""}, num_epochs=2, resources="mem_gb=2")))
        training = setup.training("nowhere/row,note=row")
        setup.wait_for_end(SEVERAL_STARTS_LIMIT_S)
    jobs = training.job_ids()
    # Sisyphus looks at its record of submissions every 30 s only, and starts another each 10 s here.
    assert ALLOWED_STARTS + 1 <= len(jobs) <= ALLOWED_STARTS + 4
    assert training.accounted().keys() == set(jobs)
    assert "retry_error(1)" in setup.manager_log()
    assert not training.has_ended
    assert training.attempts() == []


@pytest.mark.full
def test_the_time_limit(make_setup):
    """
    RETURNN stops before it where it may. Where it may not, SLURM ends the training. Both go on from the last checkpoint
    and end with the result of one that had all the time.
    """
    epochs = 10
    setup = make_setup()
    module = setup.folder / "config" / "slow.py"
    module.write_text(SLOW.format(sleep_s=0.75), encoding="utf-8")
    base = "own('slow')"
    common = {"num_epochs": epochs, "num_gpus_per_node": 1}
    text = [
        sweep_text("plain", {"plain": ""}, base=base, resources="mem_gb=2, time_h=1", **common),
        sweep_text("stops", {"stops": ""}, base=base, resources="mem_gb=2, time_h=2 / 60", **common),
        sweep_text(
            "cut",
            {"cut": ""},
            base="own('slow', stop_for_resubmission_when_low_time_left=False)",
            resources="mem_gb=2, time_h=2 / 60",
            **common,
        ),
    ]
    with setup:
        setup.start(setup.write(*text, head=OWN_TRAIN_STEP))
        plain, stops, cut = (setup.training(f"{name}/{name},note={name}") for name in ("plain", "stops", "cut"))
        for training in (plain, stops, cut):
            training.wait_for("end of the training", lambda t=training: t.has_ended, SEVERAL_STARTS_LIMIT_S)
    assert plain.accounted() == {plain.job_ids()[0]: "COMPLETED"}
    for training in (stops, cut):
        assert training.has_finished
        assert len(training.job_ids()) == len(training.attempts()) > 1
        starts = [line["progress"] for line in training.journal() if "attempt" in line]
        assert starts == sorted(starts)
        assert 0 == starts[0] < starts[-1]
        check_same_result(training, plain, epochs=epochs)
    *ended, last = stops.job_ids()
    states = stops.accounted()
    assert states[last] == "COMPLETED"
    assert "TIMEOUT" not in states.values()
    for job_id, attempt in zip(ended, stops.attempts(), strict=False):
        assert "stopping early so sisyphus can resubmit" in stops.engine_log(job_id, 0) + stops.engine_log(job_id, 1)
        assert "interrupted by SIGINT" in stops.ends()[attempt]
    *ended, last = cut.job_ids()
    states = cut.accounted()
    assert states[last] == "COMPLETED"
    assert {states[job_id] for job_id in ended} == {"TIMEOUT"}
    for attempt in cut.attempts()[:-1]:
        assert "told to end by SIGTERM" in cut.ends()[attempt]


@pytest.fixture(scope="module")
def out_of_memory(make_setup):
    """All of them in one manager. A node has 5 GB, in the eyes of the settings."""
    setup = make_setup()
    text = (REPOSITORY / "setups" / "loopback_slurm" / "settings.py").read_text(encoding="utf-8")
    assert text.count("mem_gb=16") == 1
    (setup.folder / "settings.py").write_text(text.replace("mem_gb=16", "mem_gb=5") + SETTINGS, encoding="utf-8")
    for name, code in (("hungry", HUNGRY), ("gpu_hungry", GPU_HUNGRY)):
        (setup.folder / "config" / f"{name}.py").write_text(code, encoding="utf-8")
    common = {"num_epochs": 50, "num_gpus_per_node": 1}
    text = [
        sweep_text("host", {"doubled": ""}, base="own('hungry')", resources="mem_gb=2", **common),
        sweep_text("host_capped", {"capped": ""}, base="own('hungry')", resources="mem_gb=3", **common),
        sweep_text("gpu", {"gpu": ""}, base="own('gpu_hungry')", resources="mem_gb=2", **common),
    ]
    with setup:
        setup.start(setup.write(*text, head=OWN_TRAIN_STEP))
        found = {
            row: setup.training(f"{sweep}/{row},note={row}")
            for sweep, row in (("host", "doubled"), ("host_capped", "capped"), ("gpu", "gpu"))
        }
        setup.wait_for_end(SEVERAL_STARTS_LIMIT_S)
    return found


@pytest.mark.full
@pytest.mark.parametrize(("row", "asked_gb"), [("doubled", [2, 4]), ("capped", [3, 5])])
def test_a_host_without_memory(out_of_memory, row, asked_gb):
    """Asked for once more, with twice as much, or all that there is. That is not enough either: an error."""
    training: Training = out_of_memory[row]
    if json.loads(Path(training.cluster.folder / "cluster.json").read_text())["memory_group"] is None:
        pytest.skip("the cluster has no control group that limits the memory of jobs")
    assert [each["mem"] for each in training.submissions()] == asked_gb
    for job_id in training.job_ids():
        assert training.cluster.sacct(job_id)[f"{job_id}_1.0"] == "OUT_OF_MEMORY"
    first, _ = training.job_ids()
    logs = training.engine_log(first, 0) + training.engine_log(first, 1)
    assert "The task will be submitted again, asking for more memory." in logs
    assert training.has_failed
    error = training.launch_error(0)
    assert training.launch_error(1) == error
    assert "HostMemoryError: rank 1 " in error
    assert "was killed by SIGKILL (signal 9)" in error
    assert "the memory that was asked for on host" in training.log()


@pytest.mark.full
def test_a_gpu_without_memory_is_an_error_at_once(out_of_memory):
    """More memory of the host would not help."""
    training: Training = out_of_memory["gpu"]
    assert training.has_failed
    (job_id,) = training.job_ids()
    assert training.accounted() == {job_id: "COMPLETED"}
    error = training.launch_error(0)
    assert training.launch_error(1) == error
    assert "LaunchError: rank 1 " in error
    assert "CUDA out of memory" in error
