from __future__ import annotations

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.kept import SLURM_NAMES
from syncopate.launch.place import PORT_RANGE, PORT_TRIES, Allocation, Meeting, Place, find_place, is_loopback

TWO_NODES = Cluster(num_nodes=2, num_gpus_per_node=4)
BATCH = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[07-08]", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
"""What is set in a batch script."""
SLURM = {**BATCH, "SLURM_NODEID": "1", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}
"""What is set where srun started one launcher per node, on the second."""


def allocation_of(environ: dict[str, str], **kwargs: str) -> Allocation:
    place = find_place(TWO_NODES, environ, **kwargs)
    assert place.allocation is not None
    return place.allocation


def test_one_node_is_here_whatever_started_us() -> None:
    assert find_place(Cluster(), {}) == Place(agents_here=(0,))
    assert find_place(Cluster(num_gpus_per_node=4), SLURM) == Place(agents_here=(0,))


def test_local_engine_emulates_all_nodes_even_inside_a_slurm_job() -> None:
    place = find_place(TWO_NODES, {**SLURM, "SYNCOPATE_ENGINE": "local"})
    assert place == Place(agents_here=(0, 1))
    assert place.allocation is None, "all are here"


def test_slurm_starts_one_agent_per_node_that_meet_on_the_first_host() -> None:
    first = find_place(TWO_NODES, {**SLURM, "SLURM_NODEID": "0", "SLURM_PROCID": "0"}, key="train.1")
    second = find_place(TWO_NODES, SLURM, key="train.1")
    assert (first.agents_here, second.agents_here) == ((0,), (1,))
    assert first.allocation is not None
    assert second.allocation is not None
    assert (first.allocation.index, second.allocation.index) == (0, 1)
    assert first.allocation.hosts == second.allocation.hosts == ("gpu07", "gpu08")
    assert first.allocation.addresses == second.allocation.addresses == ("gpu07", "gpu08")
    for try_number in range(PORT_TRIES):
        assert first.allocation.meeting(try_number) == second.allocation.meeting(try_number)
    assert first.allocation.meeting(0) == Meeting(host="gpu07", port=24711, id="4711.0.train.1")
    assert not second.allocation.shares_host


def test_k17_a_launcher_in_the_batch_script_starts_no_agent_itself() -> None:
    """K17: the worker runs once, on the first node."""
    place = find_place(TWO_NODES, BATCH)
    assert place == Place(
        agents_here=(),
        allocation=Allocation(
            hosts=("gpu07", "gpu08"),
            addresses=("gpu07", "gpu08"),
            index=None,
            attempt="4711.0.train",
            first_port=24711,
        ),
    )
    assert place.allocation is not None
    assert place.allocation.attempt == allocation_of(SLURM).attempt, "the launchers it starts know each other by it"


def test_a_step_on_fewer_nodes_is_not_one_launcher_per_node() -> None:
    """As in ``srun --nodes=1`` of a script's own, or of a worker that SLURM starts once."""
    environ = {**BATCH, "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_NODES": "1"}
    assert find_place(TWO_NODES, environ) == find_place(TWO_NODES, BATCH)
    with pytest.raises(LaunchError) as caught:
        find_place(TWO_NODES, {**environ, "SLURM_NODEID": "1"})
    assert str(caught.value) == (
        "this launcher runs on node 1 without a step of SLURM on all 2 nodes; it must run once on each node (by srun),"
        " or once in the batch script"
    )


def test_a_step_of_unknown_size() -> None:
    """Kept by half, so nothing is guessed."""
    environ = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_NUM_NODES"}
    with pytest.raises(LaunchError, match=r"^SLURM_STEP_NUM_NODES must be set, but is not, so the 2 nodes of the"):
        find_place(TWO_NODES, environ)


def test_a_requeued_job_meets_under_another_id_on_a_port_in_range() -> None:
    allocation = allocation_of({**SLURM, "SLURM_JOB_ID": "98765432", "SLURM_RESTART_COUNT": "2"})
    assert allocation.meeting(0) == Meeting(host="gpu07", port=25432, id="98765432.2.train")
    attempts = {allocation_of({**SLURM, "SLURM_RESTART_COUNT": count}).attempt for count in ("", "0", "1", "2")}
    assert attempts == {"4711.0.train", "4711.1.train", "4711.2.train"}


def test_what_one_job_starts_is_told_apart_by_its_key() -> None:
    assert allocation_of(SLURM, key="seed2").attempt == "4711.0.seed2"


@pytest.mark.parametrize("job_id", [0, 1, 4711, 9999, 10000, 98765432])
def test_k11_every_try_has_a_port_and_an_id_of_its_own(job_id: int) -> None:
    """K11"""
    allocation = allocation_of({**SLURM, "SLURM_JOB_ID": str(job_id)})
    meetings = [allocation.meeting(number) for number in range(PORT_TRIES)]
    assert len({meeting.port for meeting in meetings}) == PORT_TRIES
    assert len({meeting.id for meeting in meetings}) == PORT_TRIES
    assert all(PORT_RANGE[0] <= meeting.port < PORT_RANGE[1] for meeting in meetings)


def test_k11_jobs_that_follow_each_other_never_try_the_same_ports() -> None:
    """K11: they often share a host."""
    ports = [
        allocation_of({**SLURM, "SLURM_JOB_ID": str(job_id)}).meeting(number).port
        for job_id in range(500, 600)
        for number in range(PORT_TRIES)
    ]
    assert len(set(ports)) == len(ports)


def test_names_of_the_fast_network() -> None:
    allocation = allocation_of({**SLURM, "SLURM_JOB_NODELIST": "jwb[0001-0002]", "SYNCOPATE_HOST_SUFFIX": "i"})
    assert allocation.hosts == ("jwb0001", "jwb0002"), "SLURM's names stay"
    assert allocation.addresses == ("jwb0001i", "jwb0002i")
    assert allocation.meeting(0).host == "jwb0001i"


def test_another_name_of_the_first_node() -> None:
    allocation = allocation_of({**SLURM, "SYNCOPATE_MEETING_HOST": "10.1.2.3"})
    assert allocation.addresses == ("10.1.2.3", "gpu08")
    assert allocation.meeting(1).host == "10.1.2.3"
    assert not allocation.shares_host
    both = allocation_of({**SLURM, "SYNCOPATE_MEETING_HOST": "head", "SYNCOPATE_HOST_SUFFIX": "-ib"})
    assert both.addresses == ("head", "gpu08-ib")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_several_nodes_of_slurm_on_one_host(host: str) -> None:
    """As in a cluster made for rehearsals: SLURM's names lead nowhere."""
    allocation = allocation_of({**SLURM, "SYNCOPATE_MEETING_HOST": host, "SYNCOPATE_HOST_SUFFIX": "i"})
    assert allocation.addresses == (host, host)
    assert allocation.shares_host
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.1.2.3", "gpu07", "localhost2", "::2", "127.0.0.1.example.org"])
def test_no_loopback(host: str) -> None:
    assert not is_loopback(host)


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
        " 'SLURM_RESTART_COUNT', 'SLURM_STEP_ID', 'SLURM_STEP_NUM_NODES'} (syncopate.launch.kept.kept_names lists all"
        " that is of use)."
        " To emulate all nodes on one host: DEFAULT_ENVIRONMENT_SET['SYNCOPATE_ENGINE'] = 'local'."
    )


def test_k10_no_node_number() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a,b"}
    with pytest.raises(LaunchError, match=r"^SLURM_NODEID or SLURM_PROCID must be set, but is not, so the 2 nodes"):
        find_place(TWO_NODES, environ)


def test_the_named_cure_is_among_what_settings_keep() -> None:
    """K16"""
    named = {
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_RESTART_COUNT",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_NODES",
    }
    assert named <= {*SLURM_NAMES}


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
    with pytest.raises(LaunchError, match=r"^SLURM_STEP_NUM_NODES must be a number, got '2\(x\)'"):
        find_place(TWO_NODES, {**SLURM, "SLURM_STEP_NUM_NODES": "2(x)"})
    with pytest.raises(LaunchError, match=r"^find_place: key must consist of .* got 'a/b'"):
        find_place(TWO_NODES, SLURM, key="a/b")
