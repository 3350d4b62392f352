"""The user's own helper makes a sweep's jobs: what it is asked for, what it may not do, what stays its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_sisyphus

HERE = Path(__file__).parent
START = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from sisyphus import tk
import sisyphus.global_settings as gs
from types import SimpleNamespace
import user_recipe as user
from syncopate import Cluster, Sweep, ddp, hierarchical, param_avg
CLUSTER = Cluster(num_nodes=1, num_gpus_per_node=4)
TWO_NODES = Cluster(num_nodes=2, num_gpus_per_node=4)

def sweep(**kwargs):
    return Sweep("s", **{{"train": user.train, "cluster": CLUSTER, "num_epochs": 10, "baseline": "ddp", **kwargs}})
"""


def last_line_of_error(done):
    return done.stderr.strip().splitlines()[-1]


def test_the_jobs_are_those_of_the_helper_called_without_us(setup_folder, python):
    """The same ids where the dict is the same, and nothing but what was asked for in them."""
    python(
        START
        + """
s = sweep()
plain = s.add("ddp", ddp(buffers=None))
two = s.add("psync", param_avg(every=100, epoch_end="as_is"), cluster=TWO_NODES, num_epochs=10)
alone = s.add("single", None, cluster=Cluster(), num_epochs=40)
assert s.score == "dev_loss_ce"
ours = {name: trial.job.job_id() for name, trial in (("ddp", plain), ("psync", two), ("single", alone))}
config = plain.job.returnn_config
assert config.get("torch_distributed") == {"reduce_type": "grad"}, config.get("torch_distributed")
assert config.get("random_seed") is None and config.get("dataset_random_seed_offset") is None
assert config.get("use_horovod") is True  # i6_core's, part of the id
assert plain.job.rqmt["gpu"] == 4 and two.job.rqmt["gpu"] == 4 and two.job.rqmt["multi_node_slots"] == 2
assert alone.job.rqmt["gpu"] == 1 and alone.job.horovod_num_processes is None
assert set(plain.checkpoints) == set(range(1, 11))

from sisyphus.job import created_jobs
created_jobs.clear()
calls = {
    "ddp": dict(updates={"torch_distributed": {"reduce_type": "grad"}},
                kwargs=dict(horovod_num_processes=4, distributed_launch_cmd="torchrun"), epochs=10),
    "psync": dict(updates={"torch_distributed": {"reduce_type": "param", "param_sync_step": 100}},
                  kwargs=dict(horovod_num_processes=8, distributed_launch_cmd="torchrun", multi_node_slots=2),
                  epochs=10),
    "single": dict(updates={}, kwargs={}, epochs=40),
}
for name, call in calls.items():
    sync = SimpleNamespace(config_updates=call["updates"], training_kwargs=call["kwargs"])
    theirs = user.train(name, sync=sync, num_epochs=call["epochs"]).get_training_job()
    assert theirs.job_id() == ours[name], name
    assert ours[name].startswith("i6_core/returnn/training/ReturnnTrainingJob."), ours[name]
""",
        cwd=setup_folder,
    )


def test_options_to_carry_over_and_seeds_reach_the_config(setup_folder, python):
    python(
        START
        + """
s = sweep(torch_distributed={"dataset_distribution": "shard", "timeout_sec": 99}, seeds=[1, 2])
trial = s.add("psync", param_avg(every=10), base_lr=0.25)
one, two = trial.jobs
assert one.returnn_config.get("torch_distributed") == {
    "dataset_distribution": "shard", "timeout_sec": 99, "reduce_type": "param", "param_sync_step": 10,
    "sync_at_epoch_end": True, "sync_complete_frac": True}
assert (one.returnn_config.get("random_seed"), two.returnn_config.get("random_seed")) == (1, 2)
gap = two.returnn_config.get("dataset_random_seed_offset") - one.returnn_config.get("dataset_random_seed_offset")
assert gap > 1_000_000
assert one.returnn_config.get("learning_rates")[0] == 0.25
assert [run.name for run in trial.runs] == ["psync,base_lr=0.25,seed1", "psync,base_lr=0.25,seed2"]
assert user.BASE["train"]["partition_epoch"] == 2 and "torch_distributed" not in user.BASE
""",
        cwd=setup_folder,
    )


@pytest.mark.parametrize("name", ["classic", "V2", "no prolog"])
def test_every_config_class_is_adapted_and_written_the_same_twice(setup_folder, python, name):
    python(
        START
        + f"""
import copy, os, pickle
s = sweep()
trial = s.add("psync", param_avg(every=10), config_class=user.CONFIG_CLASSES[{name!r}])
from syncopate.jobs.adapt import adapt
job = trial.job
before = (job.job_id(), copy.deepcopy(job.returnn_config.config), copy.deepcopy(job.returnn_config.post_config))
adapt(job, CLUSTER, where="here")
assert (job.job_id(), job.returnn_config.config, job.returnn_config.post_config) == before
job._sis_setup_directory()
os.chdir(job._sis_path("work"))
written = job.out_returnn_config_file.get_path()
texts = []
for _ in range(2):
    job.create_files()
    texts.append(open(written).read())
assert texts[0] == texts[1] and "param_sync_step" in texts[0]
assert job.returnn_config.config == before[1]
assert "syncopate.launch.rank" in open("rnn.sh").read()
""",
        cwd=setup_folder,
    )


def test_an_adapted_job_stays_the_job_it_was_in_a_worker_too(setup_folder, python):
    python(
        START
        + """
import gzip, pickle
from i6_core.returnn import ReturnnTrainingJob
from syncopate.jobs.adapt import adapt
job = sweep().add("psync", param_avg(every=10), job_class=user.OurTrainingJob).job
outputs = {name: path.get_path() for name, path in job._sis_outputs.items()}
name, identity = job.job_id(), id(job)
adapt(job, CLUSTER, where="here")
adapt(job, CLUSTER, where="again")
assert job.job_id() == name and id(job) == identity and job.info() == "ours"
assert isinstance(job, user.OurTrainingJob) and isinstance(job, ReturnnTrainingJob)
assert type(job).__name__ == "OurTrainingJob" and str(job).count("OurTrainingJob")
assert {key: path.get_path() for key, path in job._sis_outputs.items()} == outputs
assert job._sis_hash() == name.encode()
job._sis_setup_directory()
print(job._sis_path("job.save"))
""",
        cwd=setup_folder,
    )
    python(
        START
        + """
import glob, gzip, pickle
(saved,) = glob.glob("work/user_recipe/OurTrainingJob.*/job.save")
with gzip.open(saved) as file:
    job = pickle.load(file)
from syncopate.jobs.adapt import AdaptedTraining
assert isinstance(job, AdaptedTraining) and isinstance(job, user.OurTrainingJob)
assert job.syncopate_cluster == CLUSTER
assert type(job).run is AdaptedTraining.run
assert [task.name() for task in job.tasks()] == ["create_files", "run", "plot"]
assert job.out_learning_rates.get_path().endswith("/output/learning_rates")
""",
        cwd=setup_folder,
    )


FAULTS = [
    (
        "returns nothing",
        "the helper returned nothing; end it with `return` and its ReturnnTrainingJob, or an object with"
        " get_training_job()",
    ),
    (
        "returns another thing",
        "the helper returned dict; it must return a ReturnnTrainingJob, or an object with get_training_job()",
    ),
    ("drops the dict", "the helper's config has no torch_distributed; put sync.config_updates into the config"),
    (
        "changes the dict",
        "the helper changed torch_distributed: 'param_sync_step' is 7, it should be 10; 'timeout_sec' is 5, it should"
        " not be there",
    ),
    ("ignores the epochs", "the helper's job trains 25 epochs, num_epochs=10 was asked for; pass it on"),
    (
        "no kwargs",
        "the helper's job has horovod_num_processes=None, sync.training_kwargs wants 4; pass **sync.training_kwargs",
    ),
    ("device in the config", "the helper raised AssertionError: device in post_config would overwrite existing entry"),
]


@pytest.mark.parametrize(("fault", "error"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_a_helper_that_does_something_else_is_refused(setup_folder, python, fault, error):
    done = python(
        START + f"sweep().add('psync', param_avg(every=10), fault={fault!r})\n", cwd=setup_folder, check=False
    )
    assert done.returncode != 0
    assert last_line_of_error(done).startswith(f"syncopate.errors.SweepError: Sweep 's', row 'psync': {error}")


def test_a_single_process_with_something_to_synchronise_is_refused(setup_folder, python):
    for fault, error in (
        ("keeps a dict", "scheme None is a single process, but the helper's config says torch_distributed="),
        ("horovod alone", "the helper's config says use_horovod=True without torch_distributed"),
    ):
        done = python(
            START + f"sweep().add('one', None, cluster=Cluster(), num_epochs=40, fault={fault!r})\n",
            cwd=setup_folder,
            check=False,
        )
        assert error in last_line_of_error(done)


def test_a_dropped_seed_is_refused(setup_folder, python):
    done = python(
        START + "sweep(seeds=[3]).add('psync', param_avg(every=10), fault='drops the seed')\n",
        cwd=setup_folder,
        check=False,
    )
    assert "the helper's config says random_seed=None, sync.config_updates says 3" in last_line_of_error(done)


def test_another_device_than_the_clusters_is_refused(setup_folder, python):
    done = python(START + "sweep().add('psync', param_avg(every=10), device='cpu')\n", cwd=setup_folder, check=False)
    assert "the helper's job is for device 'cpu', the cluster for 'gpu'" in last_line_of_error(done)


def test_a_class_that_starts_its_training_itself_is_refused(setup_folder, python):
    done = python(
        START
        + """
s = sweep(baseline=None)
s.add("psync", param_avg(every=10), job_class=user.StubbornTrainingJob)
s.register()
""",
        cwd=setup_folder,
        check=False,
    )
    error = last_line_of_error(done)
    assert "the class user_recipe.StubbornTrainingJob has a run() of its own" in error


def test_k01_two_rows_that_are_one_job_are_refused(setup_folder, python):
    done = python(
        START
        + """
s = sweep(baseline=None)
s.add("psync", param_avg(every=10))
s.add("also psync", param_avg(every=10))
s.check()
""",
        cwd=setup_folder,
        check=False,
    )
    assert "'psync' and 'also psync' are the same training; leave one out" in last_line_of_error(done)
