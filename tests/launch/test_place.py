from __future__ import annotations

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.kept import SLURM_NAMES
from syncopate.launch.place import Meeting, Place, find_place

TWO_NODES = Cluster(num_nodes=2, num_gpus_per_node=4)
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[07-08]", "SLURM_NODEID": "1", "SLURM_PROCID": "1"}


def test_one_node_is_here_whatever_started_us() -> None:
    assert find_place(Cluster(), {}) == Place(agents_here=(0,))
    assert find_place(Cluster(num_gpus_per_node=4), SLURM) == Place(agents_here=(0,))


def test_local_engine_emulates_all_nodes_even_inside_a_slurm_job() -> None:
    place = find_place(TWO_NODES, {**SLURM, "SYNCOPATE_ENGINE": "local"})
    assert place == Place(agents_here=(0, 1))
    assert place.all_here


def test_slurm_starts_one_agent_per_node_that_meet_on_the_first_host() -> None:
    first = find_place(TWO_NODES, {**SLURM, "SLURM_NODEID": "0", "SLURM_PROCID": "0"}, key="train.1")
    second = find_place(TWO_NODES, SLURM, key="train.1")
    assert (first.agents_here, second.agents_here) == ((0,), (1,))
    assert first.meeting == second.meeting == Meeting(host="gpu07", port=24711, id="4711.0.train.1")
    assert not second.all_here


def test_a_requeued_job_meets_under_another_id_on_a_port_in_range() -> None:
    place = find_place(TWO_NODES, {**SLURM, "SLURM_JOB_ID": "98765432", "SLURM_RESTART_COUNT": "2"})
    assert place.meeting == Meeting(host="gpu07", port=25432, id="98765432.2.train")


def test_process_number_stands_in_for_the_node_number() -> None:
    environ = {name: value for name, value in SLURM.items() if name != "SLURM_NODEID"}
    assert find_place(TWO_NODES, environ).agents_here == (1,)


@pytest.mark.parametrize("missing", ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"])
def test_k10_a_missing_variable_is_named_with_its_cause_and_cure(missing: str) -> None:
    """K10, K16: no guess, neither a world of one node nor an emulation."""
    with pytest.raises(LaunchError) as caught:
        find_place(TWO_NODES, {name: value for name, value in SLURM.items() if name != missing})
    assert str(caught.value) == (
        f"{missing} must be set, but is not, so the 2 nodes of the cluster (2x4 gpu) cannot find each other."
        " Sisyphus empties the environment before a task runs. On SLURM put into settings.py:"
        " DEFAULT_ENVIRONMENT_KEEP |= {'SLURM_JOB_ID', 'SLURM_JOB_NODELIST', 'SLURM_NODEID', 'SLURM_PROCID',"
        " 'SLURM_RESTART_COUNT'} (syncopate.launch.kept.kept_names lists all that is of use)."
        " To emulate all nodes on one host: DEFAULT_ENVIRONMENT_SET['SYNCOPATE_ENGINE'] = 'local'."
    )


def test_k10_no_node_number() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"}
    with pytest.raises(LaunchError, match=r"^SLURM_NODEID or SLURM_PROCID must be set, but is not, so the 2 nodes"):
        find_place(TWO_NODES, environ)


def test_the_named_cure_is_among_what_settings_keep() -> None:
    """K16"""
    assert {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_PROCID", "SLURM_RESTART_COUNT"} <= {
        *SLURM_NAMES
    }


def test_number_of_nodes_must_be_what_slurm_gave() -> None:
    with pytest.raises(LaunchError) as caught:
        find_place(Cluster(num_nodes=4), SLURM)
    assert str(caught.value) == (
        "the cluster has 4 nodes (4x1 gpu), but SLURM gave 2: SLURM_JOB_NODELIST=gpu[07-08]; ask SLURM for 4 nodes"
    )


def test_more_tasks_than_nodes() -> None:
    with pytest.raises(LaunchError, match=r"this is task 2 of a SLURM job with 2 nodes.*--ntasks-per-node=1"):
        find_place(TWO_NODES, {**SLURM, "SLURM_NODEID": "2"})


def test_unknown_engine() -> None:
    with pytest.raises(LaunchError) as caught:
        find_place(TWO_NODES, {"SYNCOPATE_ENGINE": "locl"})
    assert str(caught.value) == (
        "SYNCOPATE_ENGINE must be one of ['local', 'slurm'], got 'locl' (did you mean 'local'?);"
        " it is set by DEFAULT_ENVIRONMENT_SET in settings.py"
    )


def test_unreadable_values() -> None:
    with pytest.raises(LaunchError, match=r"^cannot read the host list 'gpu\[1-'"):
        find_place(TWO_NODES, {**SLURM, "SLURM_JOB_NODELIST": "gpu[1-"})
    with pytest.raises(LaunchError, match=r"^SLURM_NODEID must be a number, got 'one'"):
        find_place(TWO_NODES, {**SLURM, "SLURM_NODEID": "one"})
    with pytest.raises(LaunchError, match=r"^find_place: key must consist of .* got 'a/b'"):
        find_place(TWO_NODES, SLURM, key="a/b")
