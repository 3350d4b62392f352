"""When Sisyphus takes a training for started."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_sisyphus

START = """
import os
from sisyphus import tk
import sisyphus.global_settings as gs
from syncopate import Cluster, Sweep, ddp
from syncopate.jobs.entry import training_job
from syncopate.tasks.char_lm import char_lm

s = Sweep("s", base=char_lm(), cluster=Cluster(num_nodes=2, device="cpu"), num_epochs=2, baseline="ddp",
          torch_distributed={"dataset_distribution": "shard"})
s.add("ddp", ddp())
(run,) = s.runs
job = training_job(s, run)
job._sis_setup_directory()
task = next(task for task in job.tasks() if task.name() == "run")
task.set_job(job)

def submitted(engine_name, engine_info):
    with open(task.path(gs.ENGINE_SUBMIT), "a") as log:
        log.write(repr(([1], {"mem": 1, "time": 1, "engine_name": engine_name, "engine_info": engine_info})) + "\\n")
    stamp = os.path.getmtime(task.path(gs.ENGINE_SUBMIT)) + submitted.count
    os.utime(task.path(gs.ENGINE_SUBMIT), (stamp, stamp))  # Sisyphus looks whether it is newer
    submitted.count += 1
submitted.count = 1
"""  # Sisyphus keeps what it read for a while, so each program asks once


def test_what_was_not_submitted_is_not_started(setup_folder, python):
    python(f"{START}\nassert not task.started(1)\n", cwd=setup_folder)


def test_what_slurm_started_is_started_though_it_never_wrote_a_log(setup_folder, python):
    python(
        START
        + """
submitted("slurm", [([1], "17")])
open(os.path.join(task.path(gs.JOB_LOG_ENGINE), "name.17.1.0.batch"), "w").close()
assert task.started(1)
import gzip, pickle
with gzip.open(job._sis_path("job.save")) as file:
    assert pickle.load(file).job_id() == job.job_id()
""",
        cwd=setup_folder,
    )


@pytest.mark.parametrize(
    ("engine", "info"), [("slurm", "[([1], None)]"), ("slurm", "[([1], '17')]"), ("local", "'thishost'")]
)
def test_what_was_refused_or_cancelled_while_it_waited_or_waits_in_a_manager_is_not(setup_folder, python, engine, info):
    python(f"{START}\nsubmitted({engine!r}, {info})\nassert not task.started(1)\n", cwd=setup_folder)


def test_a_log_is_a_start_on_any_engine(setup_folder, python):
    python(START + "open(task.path(gs.JOB_LOG, 1), 'w').close()\nassert task.started(1)\n", cwd=setup_folder)
