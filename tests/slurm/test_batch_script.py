"""A Sisyphus engine that runs the worker once, in the batch script, as proposed in sisyphus#316."""

from __future__ import annotations

import json

import pytest

from tests.slurm.faults import kill_agent, kill_launcher, kill_rank, nothing, scancel
from tests.slurm.outcomes import Case, act_on, check_failed, check_resumed, failed, resumed
from tests.slurm.sweeps import Setup, sweep_text

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(600)]

IN_BATCH_SCRIPT = """
_engine_of_setup = engine


def engine():
    selector = _engine_of_setup()
    per_node = selector.engines["long"]

    class Batch(type(per_node)):
        def system_call(self, command, send_to_stdin=None):
            # sbatch ... -o LOG.%t.batch ... --wrap="srun -o LOG.%t WORKER"
            command = [word.replace(".%t.batch", ".0") if word.endswith(".%t.batch") else word for word in command]
            if command[-1].startswith("--wrap=srun -o ") and ".%t " in command[-1]:
                command[-1] = "--wrap=" + command[-1].split(" ", 3)[3]
            return super().system_call(command, send_to_stdin)

    selector.engines["long"] = Batch(default_rqmt=per_node.default_rqmt)
    return selector
"""


@pytest.fixture(scope="module")
def make_setup(cluster, make_setup_folder, tmp_path_factory):
    def make() -> Setup:
        return Setup(make_setup_folder(tmp_path_factory.mktemp("batch")), cluster, settings=IN_BATCH_SCRIPT)

    return make


def test_k17_one_worker_trains_on_all_nodes(make_setup, cluster):
    setup = make_setup()
    case = Case(act=nothing)
    with setup:
        act_on(setup, sweep_text("batch", {"row": ""}, num_epochs=2), {"batch/row,note=row": case})
        setup.wait_for_end()
    training = case.training
    assert training.has_finished
    assert not training.has_failed
    assert training.epochs() == [1, 2]
    assert training.attempts() == [f"{case.job_id}.0.train"]
    assert training.ends() == {}
    assert sorted(record.rank for record in training.ranks()) == [0, 1, 2, 3]
    assert sorted((record.agent, record.local_rank) for record in training.ranks()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {record.outcome.kind for record in training.ranks()} == {"finished"}
    # One worker, whose log is that of the task, and one step of SLURM with a launcher on each node.
    assert sorted(path.name for path in training.folder.glob("log.run.*")) == ["log.run.1", "log.run.1.0"]
    assert training.log().count("Start Job: ") == 1
    assert training.log().count("Job finished successfully") == 1
    assert {note.state for note in training.notes().values()} == {"complete"}
    assert cluster.sacct(case.job_id) == dict.fromkeys(
        (f"{case.job_id}_1", f"{case.job_id}_1.batch", f"{case.job_id}_1.0"), "COMPLETED"
    )
    table = json.loads(setup.compare("output/batch", "--format", "json"))
    assert [row["state"] for row in table["rows"]] == ["finished"]


@pytest.mark.full
@pytest.mark.parametrize("row", ["rank", "agent"])
def test_one_that_is_killed_on_the_second_node_is_the_error(killed, row):
    check_failed(killed, row, nodes=(0,))


@pytest.mark.full
def test_cancelled_it_is_submitted_again(interrupted):
    check_resumed(interrupted, "scancel", submissions=2)
    (end,) = interrupted["scancel"].ends().values()
    assert "told to end by SIGTERM" in end


@pytest.mark.full
@pytest.mark.parametrize("row", ["first", "second"])
def test_a_launcher_that_is_killed_is_a_lost_node(interrupted, row):
    check_resumed(interrupted, row, submissions=2)
    case = interrupted.cases[row]
    (end,) = case.training.ends().values()
    assert case.said in end


@pytest.fixture(scope="module")
def killed(make_setup):
    return failed(make_setup(), rank=kill_rank(1), agent=kill_agent(1))


@pytest.fixture(scope="module")
def interrupted(make_setup):
    return resumed(
        make_setup(), num_gpus_per_node=1, scancel=scancel(), first=kill_launcher(0), second=kill_launcher(1)
    )
