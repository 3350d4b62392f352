"""Something dies, or is told to end, in the middle of trainings on two nodes of a real SLURM."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

import pytest

from tests.slurm.faults import kill_agent, kill_launcher, kill_rank, nothing, requeue, scancel
from tests.slurm.outcomes import RESOURCES, Case, act_on, check_failed, check_resumed, failed, resumed
from tests.slurm.sweeps import OWN_TRAIN_STEP, SLOW, Setup, sweep_text
from tests.slurm.training import LIMIT_S

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(600)]

LOST_EPOCHS = 40
"""Of at least 4 s: more than SLURM takes to see that a node is lost."""
NODE_LOST_LIMIT_S = 120
"""SLURM takes 30 s here to see it (SlurmdTimeout), and the training may wait for memory and connections after that."""


@pytest.fixture(scope="module")
def make_setup(cluster, make_setup_folder, tmp_path_factory):
    def make() -> Setup:
        return Setup(make_setup_folder(tmp_path_factory.mktemp("faults")), cluster)

    return make


@pytest.fixture(scope="module")
def killed_on_second_node(make_setup):
    return failed(make_setup(), rank=kill_rank(1), agent=kill_agent(1))


@pytest.fixture(scope="module")
def killed_on_first_node(make_setup):
    return failed(make_setup(), rank=kill_rank(0), agent=kill_agent(0))


@pytest.fixture(scope="module")
def requeued(make_setup):
    return resumed(make_setup(), num_gpus_per_node=1, requeued=requeue)


@pytest.fixture(scope="module")
def launchers_killed(make_setup):
    return resumed(make_setup(), num_gpus_per_node=2, first=kill_launcher(0), second=kill_launcher(1))


@pytest.fixture(scope="module")
def cancelled(make_setup):
    return resumed(make_setup(), num_gpus_per_node=2, scancel=scancel(), sigterm=scancel("--signal=TERM"))


@pytest.mark.parametrize("row", ["rank", "agent"])
def test_k14_one_that_is_killed_on_the_second_node_is_the_error_of_all(killed_on_second_node, row):
    check_failed(killed_on_second_node, row)


@pytest.mark.full
@pytest.mark.parametrize("row", ["rank", "agent"])
def test_k14_one_that_is_killed_on_the_first_node_is_the_error_of_all(killed_on_first_node, row):
    check_failed(killed_on_first_node, row)


@pytest.mark.parametrize("row", ["rank", "agent"])
def test_k13_ranks_may_use_all_cpus_of_their_node(killed_on_second_node, row):
    """4 CPUs were asked for, and 2 ranks share them. The host may have fewer."""
    for launcher, ranks, threads in killed_on_second_node.cases[row].cpus.values():
        assert ranks == launcher
        assert len(ranks) == min(4, os.cpu_count() or 0)
        assert threads == {max(1, len(ranks) // 2)}


def test_requeued_it_goes_on_from_its_checkpoint(requeued):
    check_resumed(requeued, "requeued", submissions=1)


def test_requeued_it_writes_on_in_the_same_log(requeued):
    case = requeued.cases["requeued"]
    for node in (0, 1):
        log = case.training.engine_log(case.job_id, node)
        assert log == case.training.log(node)
        _, *others = log.split("Start Job: ")
        assert len(others) == 2, log
        assert "told to end by SIGTERM" in others[0]
        assert "Load model" in others[1]
        assert "start epoch 1 " in others[0]
        assert "start epoch 1 " not in others[1]


def test_requeued_it_counts_as_one_submission_and_two_starts(requeued):
    case = requeued.cases["requeued"]
    assert case.training.attempts() == [f"{case.job_id}.0.train", f"{case.job_id}.1.train"]
    assert "told to end by SIGTERM" in case.training.ends()[f"{case.job_id}.0.train"]


@pytest.mark.full
@pytest.mark.parametrize("row", ["scancel", "sigterm"])
def test_cancelled_it_is_submitted_again(cancelled, row):
    check_resumed(cancelled, row, submissions=2)
    (end,) = cancelled[row].ends().values()
    assert "told to end by SIGTERM" in end


@pytest.mark.full
@pytest.mark.parametrize(("row", "node"), [("first", 0), ("second", 1)])
def test_a_launcher_that_is_killed_is_a_lost_node(launchers_killed, row, node):
    """The other one names it, and Sisyphus submits the training again."""
    check_resumed(launchers_killed, row, submissions=2)
    case = launchers_killed.cases[row]
    other = 1 - node
    assert case.said in case.training.engine_log(case.job_id, other)
    if other == 0:
        (end,) = case.training.ends().values()
        assert case.said in end


@pytest.mark.full
def test_a_node_that_slurm_lost(make_setup, cluster):
    """SLURM starts the training on other nodes; what still runs on the lost one ends by itself."""
    setup = make_setup()
    (setup.folder / "config" / "slow.py").write_text(SLOW.format(sleep_s=0.5), encoding="utf-8")
    case = Case(act=nothing)
    text = sweep_text("lost", {"row": ""}, base="own('slow')", num_epochs=LOST_EPOCHS, resources=RESOURCES)
    with ExitStack() as stack:
        stack.enter_context(setup)
        act_on(setup, text, {"lost/row,note=row": case}, head=OWN_TRAIN_STEP)
        training = case.training
        old = cluster.processes(case.job_id)
        lost = training.notes()[1].host
        stack.callback(cluster.start_slurmd, lost)
        cluster.kill_slurmd(lost)
        cluster.wait_for("node that is down", lambda: cluster.node_state(lost).startswith("down"), NODE_LOST_LIMIT_S)
        on_lost = {each.pid for each in old if each.node == lost}
        training.start_now(case.job_id)
        training.wait_for("second start", lambda: training.trains(start=2))
        assert lost not in {note.host for note in training.notes().values()}
        end_s = time.monotonic() + NODE_LOST_LIMIT_S
        while left := on_lost & {each.pid for each in cluster.processes() if "slurmstepd" not in each.command}:
            assert time.monotonic() < end_s, f"{left} still run on {lost}"
            time.sleep(0.5)
        training.wait_for("end of the training", lambda: training.has_ended, LIMIT_S)
    assert training.has_finished
    assert training.attempts() == [f"{case.job_id}.0.train", f"{case.job_id}.1.train"]
