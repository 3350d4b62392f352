"""Where a task goes in a cluster, what no partition gives, and which words ``sbatch`` gets."""

from __future__ import annotations

import copy
import math

import pytest

from syncopate.errors import SiteError
from syncopate.site import NodeShape, Partition, Site
from syncopate.site.sbatch_args import SbatchArgs
from syncopate.site.submission import as_submitted, whole_minutes_h

BIG = Partition(
    name="big", shape=NodeShape(gpus=4, gpu_mem_gb=96, cpus=96, mem_gb=488), max_time_h=24, max_nodes=8, whole_node=True
)
SMALL = Partition(
    name="small",
    shape=NodeShape(gpus=2, gpu_name="rtx", gpu_mem_gb=11, cpus=32, mem_gb=128),
    max_time_h=168,
    sbatch_args=["--qos=small"],
)
CPU = Partition(name="cpu", shape=NodeShape(cpus=48, mem_gb=190.5), max_time_h=72)
FAT = Partition(name="fat", shape=NodeShape(cpus=48, mem_gb=1000), max_time_h=12, max_nodes=1)
SITE = Site(partitions=[SMALL, BIG, CPU, FAT])
SHAPES = (
    "'small' (2 rtx GPUs of 11 GB, 32 CPUs, 128 GB per node, at most 168 h) has {}; 'big' (4 GPUs of 96 GB, 96 CPUs,"
    " 488 GB per node, at most 8 nodes and 24 h) has {}; 'cpu' (48 CPUs, 190.5 GB per node, at most 72 h) has {}; 'fat'"
    " (48 CPUs, 1000 GB per node, at most 1 node and 12 h) has {}; ask for less, or for more nodes with less each"
)


def rqmt(**changes):
    return {"cpu": 1, "mem": 4, "time": 1, **changes}


def name_of(partition_args):
    return SbatchArgs(partition_args["sbatch_args"]).value("partition")


@pytest.mark.parametrize(
    ("asked", "partition"),
    [
        (rqmt(), "cpu"),
        (rqmt(gpu=0, gpu_mem=80), "cpu"),  # the memory of no GPU is no need
        (rqmt(mem=190), "cpu"),
        (rqmt(mem=190.5), "fat"),  # Sisyphus asks SLURM for 191
        (rqmt(mem=500, time=99), "fat"),  # cut to 12 h
        (rqmt(cpu=96), "big"),  # no partition without GPUs has so many CPUs
        (rqmt(multi_node_slots=2, mem=400), "big"),
        (rqmt(time=100), "cpu"),  # cut to 72 h, rather than on GPUs that nobody uses
        (rqmt(gpu=1), "small"),
        (rqmt(gpu=2, gpu_mem=11), "small"),
        (rqmt(gpu=2, gpu_mem=11.5), "big"),
        (rqmt(gpu=3), "big"),
        (rqmt(gpu=1, cpu=33), "big"),
        (rqmt(gpu=1, mem=129), "big"),
        (rqmt(gpu=1, gpu_name="rtx"), "small"),
        (rqmt(gpu=1, gpu_name="h100"), "big"),  # its GPUs have no name
        (rqmt(gpu=4, multi_node_slots=8, time=24), "big"),
        (rqmt(gpu=1, multi_node_slots=9), "small"),
    ],
)
def test_the_first_partition_that_gives_it(asked, partition):
    assert name_of(SITE.route(asked)) == partition


def test_a_short_partition_that_comes_first_takes_no_long_task():
    devel = Partition(name="devel", shape=BIG.shape, max_time_h=0.5)
    site = Site(partitions=[devel, BIG])
    assert name_of(site.route(rqmt(gpu=1, time=0.5))) == "devel"
    assert name_of(site.route(rqmt(gpu=1, time=20))) == "big"
    cut = site.route(rqmt(gpu=1, time=48))
    assert (name_of(cut), cut["time"]) == ("big", 24)


@pytest.mark.parametrize("asked", [1, 24, 24.0, 0.01])
def test_a_time_that_the_partition_gives_is_left_as_it_is(asked):
    routed = SITE.route(rqmt(gpu=4, time=asked))
    assert routed["time"] is asked
    assert "time" not in SITE.route({"cpu": 1, "mem": 1})


def test_a_limit_between_two_minutes_is_the_lower():
    partition = Partition(name="odd", shape=CPU.shape, max_time_h=0.99)
    routed = as_submitted(Site(partitions=[partition]).route(rqmt(time=5)))
    assert int(float(routed["time"]) * 60) == 59


def test_all_options():
    site = Site(partitions=[BIG, SMALL], account="rwth1", bad_nodes=["n1", "n[4-6,9]"], sbatch_args=["--qos=x", "-d y"])
    assert site.route(rqmt(gpu=4))["sbatch_args"] == [
        *("--partition=big", "--account=rwth1", "--exclusive", "--exclude=n1,n[4-6,9]", "--qos=x", "-d y")
    ]
    small = site.route(rqmt(gpu=1, gpu_mem=10, sbatch_args="-p small --mail-type END"))
    assert small["sbatch_args"] == [
        *("--account=rwth1", "--exclude=n1,n[4-6,9]", "-d y", "--qos=small", "-p", "small", "--mail-type", "END")
    ]
    assert small["gpu_name"] == "rtx"


TASKS = [
    rqmt(),
    rqmt(gpu=4, multi_node_slots=2, time=99),
    rqmt(gpu=1),
    rqmt(gpu=1, time=0.001, sbatch_args=["-p", "big", "-x", "n7,n1", "--export=HOME", "--no-requeue"]),
    rqmt(sbatch_args="--partition=unknown --open-mode truncate --export NONE -c 7"),
]


@pytest.mark.parametrize("asked", TASKS)
def test_what_is_routed_is_routed_to_itself(asked):
    """Sisyphus asks again about what was submitted."""
    site = Site(partitions=SITE.partitions, account="a", bad_nodes=["n1", "n[2-3]"], sbatch_args=["--qos=x"])
    before = copy.deepcopy(asked)
    routed = site.route(asked)
    assert asked == before
    assert site.route(routed) == routed
    submitted = as_submitted(routed)
    assert as_submitted(submitted) == submitted
    assert site.route(submitted) == submitted
    assert as_submitted(site.route(submitted)) == submitted


@pytest.mark.parametrize("own", [["-p", "big"], ["-pbig"], "--partition big", ["--partition=small", "--partition=big"]])
def test_a_partition_of_the_users_own_wins_and_is_the_only_one_looked_at(own):
    routed = SITE.route(rqmt(gpu=1, time=30, sbatch_args=own))
    assert routed["sbatch_args"] == ["--exclusive", *(own.split() if isinstance(own, str) else own)]
    assert routed["time"] == 24
    with pytest.raises(SiteError) as caught:
        SITE.route(rqmt(gpu=5, sbatch_args=own))
    assert str(caught.value) == (
        "the partition 'big' of its sbatch_args does not give 1 node with 5 GPUs, 1 CPU and 4 GB, for 1 h: 'big' (4"
        " GPUs of 96 GB, 96 CPUs, 488 GB per node, at most 8 nodes and 24 h) has too few GPUs; ask for less, or for"
        " more nodes with less each"
    )


def test_partitions_of_the_users_own_that_are_several_or_not_declared():
    several = SITE.route(rqmt(gpu=1, sbatch_args="-p small,big"))
    assert several == rqmt(gpu=1, sbatch_args=["-p", "small,big"])
    assert SITE.route(rqmt(gpu=3, time=99, sbatch_args="-p small,big"))["time"] == 24
    unknown = Site(partitions=[CPU], account="a").route(rqmt(gpu=99, time=999, sbatch_args="-p other"))
    assert unknown == rqmt(gpu=99, time=999, sbatch_args=["--account=a", "-p", "other"])


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (["-A", "mine"], ["--partition=cpu", "--exclude=n1", "-A", "mine"]),
        ("--account=mine", ["--partition=cpu", "--exclude=n1", "--account=mine"]),
        ("-x n2,n1 -J x", ["--partition=cpu", "--account=a", "--exclude=n2,n1", "-J", "x"]),
        ("-J x --exclude n2", ["--partition=cpu", "--account=a", "-J", "x", "--exclude=n2,n1"]),
        (["--exclude=n[1-2,1]"], ["--partition=cpu", "--account=a", "--exclude=n[1-2,1],n1"]),
    ],
)
def test_options_of_the_users_own_win_and_nodes_that_they_exclude_are_added(own, words):
    site = Site(partitions=[CPU], account="a", bad_nodes=["n1"])
    assert site.route(rqmt(sbatch_args=own))["sbatch_args"] == words


def test_who_shares_nodes_asks_for_no_whole_ones():
    for own in ("-s", "--oversubscribe", "--exclusive=user"):
        assert SITE.route(rqmt(gpu=4, sbatch_args=own))["sbatch_args"] == ["--partition=big", own]


@pytest.mark.parametrize(
    ("asked", "need", "reasons"),
    [
        (
            rqmt(gpu=8, cpu=16, mem=60.2, multi_node_slots=2, time=12),
            "2 nodes with 8 GPUs, 16 CPUs and 61 GB each, for 12 h",
            ("too few GPUs", "too few GPUs", "no GPUs", "no GPUs, too few nodes"),
        ),
        (
            rqmt(gpu=1, gpu_mem=141),
            "1 node with 1 GPU of 141 GB, 1 CPU and 4 GB, for 1 h",
            ("GPUs with too little memory", "GPUs with too little memory", "no GPUs", "no GPUs"),
        ),
        (
            rqmt(gpu=3, gpu_name="h100", multi_node_slots=9),
            "9 nodes with 3 h100 GPUs, 1 CPU and 4 GB each, for 1 h",
            ("too few GPUs, other GPUs", "too few nodes", "no GPUs", "no GPUs, too few nodes"),
        ),
        (
            rqmt(cpu=97, mem=2000),
            "1 node with 97 CPUs and 2000 GB, for 1 h",
            (
                "too few CPUs, too little memory",
                "too few CPUs, too little memory",
                "too few CPUs, too little memory",
                "too few CPUs, too little memory",
            ),
        ),
    ],
)
def test_what_no_partition_gives_is_refused_with_the_need_and_each_shape(asked, need, reasons):
    with pytest.raises(SiteError) as caught:
        SITE.route(asked)
    assert str(caught.value) == f"no partition gives {need}: {SHAPES.format(*reasons)}"


def test_a_task_that_cannot_go_on_needs_all_of_its_time():
    late = "too little time, after which it could not go on"
    assert name_of(SITE.route(rqmt(time=100), resumes=False)) == "small"
    with pytest.raises(SiteError) as caught:
        SITE.route(rqmt(gpu=4, time=25), resumes=False)
    assert str(caught.value) == "no partition gives 1 node with 4 GPUs, 1 CPU and 4 GB, for 25 h: " + SHAPES.format(
        "too few GPUs", late, "no GPUs", f"no GPUs, {late}"
    )


def test_times_below_an_hour_are_said_in_minutes():
    devel = Site(partitions=[Partition(name="devel", shape=NodeShape(cpus=1, mem_gb=1), max_time_h=5 / 60)])
    with pytest.raises(SiteError) as caught:
        devel.route({"cpu": 2, "time": 45 / 3600})
    assert str(caught.value) == (
        "no partition gives 1 node with 2 CPUs and 0 GB, for 0.75 min: 'devel' (1 CPU, 1 GB per node, at most 5 min)"
        " has too few CPUs; ask for less, or for more nodes with less each"
    )


def test_gpus_whose_memory_nobody_declared():
    site = Site(partitions=[Partition(name="gpu", shape=NodeShape(gpus=1, cpus=1, mem_gb=9), max_time_h=1)])
    assert name_of(site.route(rqmt(gpu=1))) == "gpu"
    with pytest.raises(SiteError) as caught:
        site.route(rqmt(gpu=1, gpu_mem=1))
    assert str(caught.value) == (
        "no partition gives 1 node with 1 GPU of 1 GB, 1 CPU and 4 GB, for 1 h: 'gpu' (1 GPU, 1 CPU, 9 GB per node, at"
        " most 1 h) has GPUs of unknown memory; ask for less, or for more nodes with less each"
    )


def test_memory_can_grow_to_what_a_fitting_partition_has():
    assert SITE.mem_cap_gb(rqmt()) == 1000
    assert SITE.mem_cap_gb(rqmt(mem=10**6, time=10**6)) == 1000
    assert SITE.mem_cap_gb(rqmt(multi_node_slots=2)) == 488
    assert SITE.mem_cap_gb(rqmt(gpu=1)) == 488
    assert SITE.mem_cap_gb(rqmt(gpu=1, sbatch_args="-p small")) == 128
    assert SITE.mem_cap_gb(rqmt(sbatch_args="-p cpu")) == 190
    assert SITE.mem_cap_gb(rqmt(sbatch_args="-p other")) == math.inf
    assert name_of(SITE.route(rqmt(mem=SITE.mem_cap_gb(rqmt())))) == "fat"
    with pytest.raises(SiteError, match=r"^no partition gives 1 node with 9 GPUs, 1 CPU and 4 GB, for 1 h: 'small'"):
        SITE.mem_cap_gb(rqmt(gpu=9))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"mem": "8G"}, "the requirement 'mem' (GB per node) must be a number above 0, got '8G'"),
        ({"time": math.inf}, "the requirement 'time' (hours) must be a number above 0, got inf"),
        ({"gpu": 1.5}, "the requirement 'gpu' (GPUs per node) must be a whole number, got 1.5"),
        ({"cpu": -1}, "the requirement 'cpu' (CPUs per node) must be a number above 0, got -1"),
        (
            {"gpu": 1, "gpu_name": "a b"},
            "the requirement 'gpu_name' must be a name without spaces, commas and colons, got 'a b'",
        ),
        ({"sbatch_args": 3}, "sbatch_args must be a text, or a list of texts such as ['--qos=long'], got 3"),
        ({"sbatch_args": [3]}, "sbatch_args must be a text, or a list of texts such as ['--qos=long'], got [3]"),
        ({"sbatch_args": "gpu -x n1"}, "sbatch_args must begin with an option such as '--qos=long', got ['gpu']"),
    ],
)
def test_requirements_that_cannot_be_read(asked, text):
    with pytest.raises(SiteError) as caught:
        SITE.route(rqmt(**asked))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: NodeShape(cpus=0, mem_gb=1), "NodeShape: cpus must be an int of at least 1, got 0"),
        (lambda: NodeShape(cpus=1, mem_gb="8G"), "NodeShape: mem_gb must be a number above 0, got '8G'"),
        (lambda: NodeShape(cpus=1, mem_gb=0.5), "NodeShape: mem_gb must be at least 1, got 0.5"),
        (lambda: NodeShape(cpus=1, mem_gb=1, gpus=True), "NodeShape: gpus must be an int of at least 0, got True"),
        (
            lambda: NodeShape(cpus=1, mem_gb=1, gpu_mem_gb=80),
            "NodeShape: gpu_name and gpu_mem_gb are for nodes with GPUs, but gpus is 0",
        ),
        (
            lambda: NodeShape(cpus=1, mem_gb=1, gpus=1, gpu_name="a,b"),
            "NodeShape: gpu_name must be a name without spaces, commas and colons, got 'a,b'",
        ),
        (
            lambda: NodeShape(cpus=1, mem=1),
            "NodeShape: unknown option 'mem', allowed are ['cpus', 'mem_gb', 'gpus', 'gpu_name', 'gpu_mem_gb'] (did you"
            " mean 'mem_gb'?)",
        ),
        (
            lambda: Partition(name="a b", shape=CPU.shape, max_time_h=1),
            "Partition: name must be a name without spaces, commas and colons, got 'a b'",
        ),
        (
            lambda: Partition(name="a", shape={"cpus": 1}, max_time_h=1),
            "Partition 'a': shape must be a NodeShape(...), got {'cpus': 1}",
        ),
        (
            lambda: Partition(name="a", shape=CPU.shape, max_time_h=0.01),
            "Partition 'a': max_time_h must be a minute or more, got 0.01",
        ),
        (
            lambda: Partition(name="a", shape=CPU.shape, max_time_h=1, max_nodes=0),
            "Partition 'a': max_nodes must be an int of at least 1, got 0",
        ),
        (
            lambda: Partition(name="a", shape=CPU.shape, max_time_h=1, whole_node="yes"),
            "Partition 'a': whole_node must be True or False, got 'yes'",
        ),
        (lambda: Site(partitions=[]), "Site: partitions must be one or more Partition(...), got []"),
        (lambda: Site(partitions=["gpu"]), "Site: partitions must be one or more Partition(...), got ['gpu']"),
        (lambda: Site(partitions="gpu"), "Site: partitions must be a list, got 'gpu'"),
        (
            lambda: Site(partitions=[CPU, CPU]),
            "Site: partitions must have different names, got ['cpu', 'cpu']",
        ),
        (
            lambda: Site(partitions=[CPU], bad_nodes="n1"),
            "Site: bad_nodes must be a list, got 'n1'",
        ),
        (
            lambda: Site(partitions=[CPU], bad_nodes=["n1 n2"]),
            "Site: bad_nodes must be names of nodes without spaces, got 'n1 n2'",
        ),
        (
            lambda: Site(partitions=[CPU], account=""),
            "Site: account must be a name without spaces, commas and colons, got ''",
        ),
        (
            lambda: Site(partitions=[CPU], host_suffix=None),
            "Site: host_suffix must be a text without spaces, got None",
        ),
    ],
)
def test_a_site_that_is_described_wrongly(declare, text):
    with pytest.raises(SiteError) as caught:
        declare()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("seconds", "minutes"),
    [(0, 1), (1, 1), (30, 1), (60, 1), (61, 2), (90, 2), (420, 7), (3600, 60), (86400, 1440), (86401, 1441)],
)
def test_k15_times_are_whole_minutes_rounded_up_as_sisyphus_counts_them(seconds, minutes):
    rounded_h = whole_minutes_h(seconds / 3600)
    assert int(float(rounded_h) * 60) == minutes
    assert whole_minutes_h(rounded_h) == rounded_h


def test_k15_every_minute_of_two_days_stays_that_minute():
    for minutes in range(1, 2881):
        assert int(whole_minutes_h(minutes / 60) * 60) == minutes


def test_a_time_of_whole_hours_stays_the_same_object():
    """What is changed here no longer counts as declared, so that Sisyphus would forget that it grew."""
    assert as_submitted({"time": 4})["time"] == 4
    assert isinstance(as_submitted({"time": 4})["time"], int)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (None, ["--export=ALL,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120", "--open-mode=append", "--requeue"]),
        ("--export=A,B=1", ["--open-mode=append", "--requeue", "--export=A,B=1,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120"]),
        ("--export all", ["--open-mode=append", "--requeue", "--export=all,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120"]),
        ("--export=NONE", ["--open-mode=append", "--requeue", "--export=SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120"]),
        (
            "--export=SRUN_CPUS_PER_TASK=9,A",
            ["--open-mode=append", "--requeue", "--export=A,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120"],
        ),
        ("-c 7", ["--export=ALL,SRUN_CPUS_PER_TASK=7,SLURM_WAIT=120", "--open-mode=append", "--requeue", "-c", "7"]),
        ("--requeue", ["--export=ALL,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120", "--open-mode=append", "--requeue"]),
        ("--no-requeue", ["--export=ALL,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120", "--open-mode=append", "--no-requeue"]),
        (
            "--open-mode=truncate",
            ["--export=ALL,SRUN_CPUS_PER_TASK=4,SLURM_WAIT=120", "--requeue", "--open-mode=truncate"],
        ),
    ],
)
def test_k13_what_every_task_for_slurm_is_submitted_with(own, words):
    asked = rqmt(cpu=4) if own is None else rqmt(cpu=4, sbatch_args=own)
    assert as_submitted(asked)["sbatch_args"] == words
