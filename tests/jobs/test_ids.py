"""K01: what is trained decides a job's id, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_sisyphus

HERE = Path(__file__).parent
SNAPSHOT = HERE / "ids.json"


def ids_in(folder, python, *, hash_seed):
    done = python(
        f"import sys; sys.path[:0] = {[str(HERE)]!r}; import runpy; runpy.run_module('graph', run_name='__main__')",
        cwd=folder,
        env={"PYTHONHASHSEED": hash_seed},
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_k01_ids_are_those_of_the_snapshot_in_two_processes(setup_folder, python):
    """An id that changes here makes users train again what they have trained: changed behaviour is a new name."""
    first = ids_in(setup_folder, python, hash_seed="1")
    assert first == ids_in(setup_folder, python, hash_seed="2")
    assert len(set(first.values())) == len(first)
    assert first == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_k01_what_is_not_trained_changes_no_id(setup_folder, python):
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph
from syncopate import param_avg
from sisyphus.job import created_jobs
import sisyphus.hash

def new_id(**kwargs):
    created_jobs.clear()
    return graph.job(param_avg(every=10), **kwargs).job_id()

wanted = new_id()
assert new_id(time_rqmt=99, mem_rqmt=9, cpu_rqmt=5) == wanted
assert new_id(log_verbosity=3) == wanted
assert new_id(num_epochs=50) == wanted
assert new_id(config=graph.base(log_batch_size=True)) == wanted
assert graph.job(param_avg(every=10.0)).job_id() == wanted
assert graph.job(param_avg(every=11)).job_id() != wanted
""",
        cwd=setup_folder,
    )
    assert done.returncode == 0


def test_k01_custom_hooks_that_differ_in_a_constant_get_two_ids_beside_those_of_the_schemes(setup_folder, python):
    """They are not trained yet, so that the id is asked for without making the job."""
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph, hooks, inspect
from sisyphus.job import get_args
from syncopate import SyncTrainingJob, custom, with_scheme
from syncopate.errors import NotYetError

def id_of(scheme):
    config = with_scheme(graph.base(), scheme, graph.CLUSTER)
    arguments = get_args(SyncTrainingJob.__init__, (config,), dict(cluster=graph.CLUSTER, num_epochs=4))
    return SyncTrainingJob._sis_hash_static(arguments)

six = {{id_of(scheme) for scheme in graph.SCHEMES.values()}}
hooks_ids = {{id_of(custom(hooks.average_every_second)), id_of(custom(hooks.average_every_third))}}
assert len(six | hooks_ids) == 8, (six, hooks_ids)
assert id_of(custom(hooks.average_every_second, every=1.0)) in hooks_ids
try:
    graph.job(custom(hooks.average_every_second))
except NotYetError as exc:
    assert "cannot be trained yet" in str(exc), exc
else:
    raise AssertionError("a scheme that cannot be trained became a job")
""",
        cwd=setup_folder,
    )
    assert done.returncode == 0


def test_k01_two_sweeps_that_want_other_epochs_of_one_job_are_refused(setup_folder, python):
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph
from syncopate import Sweep, param_avg

for prefix, num_epochs in (("short", 25), ("long", 50)):
    sweep = Sweep(prefix, base=graph.base(), cluster=graph.CLUSTER, num_epochs=num_epochs, score="train_loss_ce")
    sweep.add(f"psync {{prefix}}", param_avg(every=10))
    sweep.register()
""",
        cwd=setup_folder,
        check=False,
    )
    assert done.returncode != 0
    error = done.stderr.strip().splitlines()[-1]
    assert "sweep 'short', row 'psync short' wants 25 epochs" in error
    assert "sweep 'long', row 'psync long' wants 50 epochs of one and the same job" in error


def test_k03_no_config_of_a_job_we_make_asks_for_horovod(setup_folder, python):
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph
for scheme in graph.SCHEMES.values():
    job = graph.job(scheme)
    assert job.returnn_config.get("use_horovod") is None
    assert job.returnn_config.get("torch_distributed")["backend"] == "gloo"
    assert job.returnn_config.get("device") == "cpu"
""",
        cwd=setup_folder,
    )
    assert done.returncode == 0


def test_requirements_are_those_of_one_node(setup_folder, python):
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph
from syncopate import Cluster, param_avg
job = graph.job(param_avg(every=10), cluster=Cluster(num_nodes=2, num_gpus_per_node=4), mem_rqmt=3, cpu_rqmt=2)
assert job.rqmt == {{"gpu": 4, "cpu": 8, "mem": 12, "time": 4, "multi_node_slots": 2}}, job.rqmt
job = graph.job(param_avg(every=10), cluster=Cluster(num_nodes=1, num_gpus_per_node=4, device="cpu"))
assert job.rqmt == {{"gpu": 0, "cpu": 8, "mem": 16, "time": 4}}, job.rqmt
""",
        cwd=setup_folder,
    )
    assert done.returncode == 0


def test_a_sweep_that_the_local_engine_cannot_hold_is_refused(setup_folder, python):
    done = python(
        f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import graph
from syncopate import Cluster, Sweep, param_avg
sweep = Sweep("wide", base=graph.base(), cluster=Cluster(num_nodes=4, num_gpus_per_node=4, device="cpu"),
              num_epochs=4, score="train_loss_ce")
sweep.add("psync10", param_avg(every=10))
sweep.register()
""",
        cwd=setup_folder,
        env={"SYNCOPATE_LOCAL_CPUS": "8"},
        check=False,
    )
    error = done.stderr.strip().splitlines()[-1]
    assert "row 'psync10': it asks for 16 of 'cpu' on this host for all 4 nodes together" in error
    assert "but LocalEngine has 8, so that it would wait for ever" in error
