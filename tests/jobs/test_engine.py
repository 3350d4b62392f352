"""Trainings that the engine of a setup would refuse, or let wait for ever, are refused when they are registered."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.needs_sisyphus

HEAD = """
from syncopate.settings import configure

def slurm():
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine,
    )
    return SimpleLinuxUtilityForResourceManagementEngine(default_rqmt={"cpu": 1, "mem": "1G", "time": 1})

def local(**resources):
    from sisyphus.localengine import LocalEngine
    return LocalEngine(**resources)

def selector(**engines):
    from sisyphus.engine import EngineSelector
    return EngineSelector(engines=engines, default_engine="long")
"""
LOCAL = "\ndef engine(): return local(cpu=8, mem=6)\n"
SLURM = "\ndef engine(): return slurm()\n"
BOTH = "\ndef engine(): return selector(short=local(cpu=2), long=slurm())\n"
CONFIGURE_LOCAL = 'configure(globals(), engine="local")\n'
CONFIGURE_SLURM = 'configure(globals(), engine="slurm")\n'
CONFIGURE = "configure(globals())\n"
SITE = """
from syncopate.site import NodeShape, Partition, Site
SITE = Site(partitions=[
    Partition(name="gpu", shape=NodeShape(gpus=4, gpu_mem_gb=80, cpus=64, mem_gb=480), max_time_h=24, max_nodes=2),
    Partition(name="whole", shape=NodeShape(gpus=8, cpus=64, mem_gb=480), max_time_h=12, whole_node=True),
    Partition(name="cpu", shape=NodeShape(cpus=64, mem_gb=240), max_time_h=72),
])
configure(globals(), engine="slurm", site=SITE)
"""

ASK = """
import json
from sisyphus import Job, Task
from syncopate.errors import SweepError
from syncopate.jobs.engine import check_engine

class Training(Job):
    def __init__(self, number, rqmt):
        self.rqmt = rqmt
    def tasks(self):
        yield Task("prepare", mini_task=True)
        yield Task("run", resume="run", rqmt=self.rqmt)
    def prepare(self):
        pass
    def run(self):
        pass

answers = []
for number, rqmt in enumerate({cases!r}):
    job = Training(number, rqmt)
    {change}
    try:
        check_engine([job], names=["row 'ddp'"])
        answers.append("fits")
    except SweepError as exc:
        answers.append(str(exc))
    assert job.rqmt == rqmt == {cases!r}[number]
print(json.dumps(answers))
"""

ONE_NODE = {"cpu": 4, "mem": 2}
TWO_NODES = {**ONE_NODE, "multi_node_slots": 2}
CONFIGURE_TEXT = 'call configure(globals(), engine="local") of syncopate.settings at the end of settings.py'


@pytest.fixture
def answers(tmp_path, python):
    """What becomes of trainings with these requirements under these settings."""

    def ask(settings, *cases, change="", env=None):
        (tmp_path / "settings.py").write_text(HEAD + settings, encoding="utf-8")
        done = python(ASK.format(cases=list(cases), change=change), cwd=tmp_path, env=env)
        found = json.loads(done.stdout.splitlines()[-1])
        assert len(found) == len(cases)
        ask.warned = [line for line in done.stderr.splitlines() if line.startswith("WARNING:root:")]
        return found

    return ask


def test_local_engine_itself_refuses_nodes_only_when_a_task_is_submitted(python, tmp_path):
    """Why all this is looked at before; one slot is refused as well."""
    done = python(
        "from sisyphus.localengine import LocalEngine\n"
        "LocalEngine(cpu=9).submit_call([], '', {'cpu': 1, 'multi_node_slots': 1}, 'name', 'run', [1])",
        cwd=tmp_path,
        check=False,
    )
    assert "NotImplementedError: Multi-node slots are not implemented for local engine" in done.stderr


def test_local_engine_without_configure_takes_one_node(answers):
    one, two = answers(LOCAL, ONE_NODE, TWO_NODES)
    assert one == "fits"
    assert two == (
        "row 'ddp': it asks for multi_node_slots=2, and LocalEngine refuses jobs on several nodes;"
        f" {CONFIGURE_TEXT} to emulate them on this host, or give trainings a SLURM engine"
    )


def test_local_engine_with_configure_takes_what_it_has_room_for(answers):
    found = answers(
        LOCAL + CONFIGURE_LOCAL,
        ONE_NODE,
        TWO_NODES,
        {"cpu": 5, "multi_node_slots": 2},
        {"cpu": 9},
        {"mem": 7},
        {"gpu": 1},
    )
    assert found[:2] == ["fits", "fits"]
    refused = (
        "row 'ddp': it asks for {} on this host{}, but LocalEngine has {}, so that it would wait for ever;"
        " use fewer ranks, ask for less per rank, or give LocalEngine more in settings.py"
    )
    assert found[2:] == [
        refused.format("10 of 'cpu'", " for all 2 nodes together", 8),
        refused.format("9 of 'cpu'", "", 8),
        refused.format("7 of 'mem'", "", 6),
        refused.format("1 of 'gpu'", "", 0),
    ]


def test_gpus_that_local_engine_cannot_name(answers):
    (found,) = answers("\ndef engine(): return local(cpu=8, gpu=2)\n", {"gpu": 2})
    assert found == (
        "row 'ddp': it asks for 2 of 'gpu' on this host, but LocalEngine(available_gpus=...) names [], and it would"
        " stop the manager; name as many there as gpus=... says"
    )
    named = "\ndef engine(): return local(cpu=8, gpus=2, available_gpus='0,1')\n"
    assert answers(named, {"gpu": 2}) == ["fits"]


def test_nodes_are_emulated_only_if_the_task_is_told_so(answers):
    settings = f"""{LOCAL}
def check_engine_limits(current_rqmt, task):
    current_rqmt.pop("multi_node_slots", None)
    return current_rqmt
"""
    refused = (
        "row 'ddp': LocalEngine would run it on this host, but its 2 nodes are emulated there only if SYNCOPATE_ENGINE"
        " is 'local' in its environment, where it is {value}; " + CONFIGURE_TEXT
    )
    shell = {"SYNCOPATE_ENGINE": "local"}
    keep = 'job._sis_environment.keep("SYNCOPATE_ENGINE")'
    assert answers(settings, TWO_NODES, ONE_NODE) == [refused.format(value="None"), "fits"]
    assert answers(settings, TWO_NODES, env=shell) == [refused.format(value="None")]
    assert answers(settings, TWO_NODES, env=shell, change=keep) == ["fits"]
    assert answers(settings + CONFIGURE_SLURM, TWO_NODES) == [refused.format(value="'slurm'")]
    assert answers(settings + "\nCLEANUP_ENVIRONMENT = False\n", TWO_NODES, env=shell) == ["fits"]
    assert answers(settings, TWO_NODES, change='job.set_env("SYNCOPATE_ENGINE", "local")') == ["fits"]


@pytest.mark.parametrize("engine", [SLURM, BOTH])
def test_slurm_takes_nodes_unless_all_of_them_would_start_on_one_host(answers, engine):
    big = {"cpu": 99, "mem": 999, "gpu": 8, "multi_node_slots": 4}
    assert answers(engine + CONFIGURE, big, ONE_NODE) == ["fits", "fits"]
    shell = {"SYNCOPATE_ENGINE": "local"}
    refused = (
        "row 'ddp': SYNCOPATE_ENGINE is 'local', which starts all 4 nodes on one host, but the training is for"
        ' SimpleLinuxUtilityForResourceManagementEngine; call configure(globals()) without engine="local" in'
        " settings.py, and unset the variable in the shell"
    )
    assert answers(engine + CONFIGURE, big, ONE_NODE, env=shell) == [refused, "fits"]
    assert answers(engine + CONFIGURE_SLURM, big, env=shell) == ["fits"]
    forced = (
        'configure(globals())\nDEFAULT_ENVIRONMENT_SET = {**DEFAULT_ENVIRONMENT_SET, "SYNCOPATE_ENGINE": "local"}\n'
    )
    assert answers(engine + forced, big) == [refused]


GPU = "'gpu' (4 GPUs of 80 GB, 64 CPUs, 480 GB per node, at most 2 nodes and 24 h)"
WHOLE = "'whole' (8 GPUs, 64 CPUs, 480 GB per node, at most 12 h)"
CPU = "'cpu' (64 CPUs, 240 GB per node, at most 72 h)"
LESS = "ask for less, or for more nodes with less each"


def test_what_no_partition_gives_is_refused_before_it_is_submitted(answers):
    fits, gpus, memory, both = answers(
        BOTH + SITE,
        {"gpu": 4, "cpu": 8, "mem": 100, "time": 48, "multi_node_slots": 2, "gpu_mem": 80},
        {"gpu": 16, "cpu": 8, "mem": 100, "time": 4},
        {"gpu": 1, "cpu": 1, "mem": 1, "gpu_mem": 141},
        {"cpu": 65, "mem": 100, "sbatch_args": "-p cpu"},
    )
    assert fits == "fits"
    assert gpus == (
        f"row 'ddp': no partition gives 1 node with 16 GPUs, 8 CPUs and 100 GB, for 4 h: {GPU} has too few GPUs;"
        f" {WHOLE} has too few GPUs; {CPU} has no GPUs; {LESS}"
    )
    assert memory == (
        f"row 'ddp': no partition gives 1 node with 1 GPU of 141 GB, 1 CPU and 1 GB, for 1 h: {GPU} has GPUs with too"
        f" little memory; {WHOLE} has GPUs of unknown memory; {CPU} has no GPUs; {LESS}"
    )
    assert both == (
        "row 'ddp': the partition 'cpu' of its sbatch_args does not give 1 node with 65 CPUs and 100 GB, for 1 h:"
        f" {CPU} has too few CPUs; {LESS}"
    )


def test_a_task_for_local_engine_is_not_sent_to_a_partition(answers):
    found = answers(BOTH + SITE, {"engine": "short", "cpu": 2, "mem": 9999}, {"engine": "short", "cpu": 65})
    assert found[0] == "fits"
    assert found[1].startswith("row 'ddp': it asks for 65 of 'cpu' on this host, but LocalEngine has 2")


def test_gpus_that_are_billed_and_stay_idle_are_a_warning(answers):
    found = answers(
        BOTH + SITE,
        {"gpu": 4, "time": 1},
        {"gpu": 6, "time": 48},
        {"gpu": 5, "time": 2.5, "multi_node_slots": 3},
        {"gpu": 8, "time": 1},
        {"gpu": 1, "time": 1, "sbatch_args": "-p whole,gpu"},
    )
    assert found == ["fits"] * 5
    said = "WARNING:root:row 'ddp': the partition 'whole' bills whole nodes, and {}; {}"
    do = "train 8 ranks per node, or use a partition whose nodes are shared"
    cut, *idle = answers.warned
    assert cut.startswith("WARNING:root:48 h are more than the partition 'whole' gives, and are cut to 12 h")
    assert idle == [
        said.format("2 of 8 GPUs of its node stay idle: 12 h cost 96 GPU-hours, 24 of them for nothing", do),
        said.format("3 of 8 GPUs of the 3 nodes stay idle: 2.5 h cost 60 GPU-hours, 22.5 of them for nothing", do),
    ]


def test_the_engine_is_the_one_that_a_submission_would_go_to(answers):
    settings = f"""{BOTH}
def check_engine_limits(current_rqmt, task):
    if current_rqmt["time"] < 0.5:
        current_rqmt["engine"] = "short"
    return current_rqmt
"""
    long, short, unknown = answers(settings, {"cpu": 4, "time": 9}, {"cpu": 4, "time": 0.1}, {"engine": "lng"})
    assert long == "fits"
    assert short.startswith(
        "row 'ddp': it asks for 4 of 'cpu' on this host, but LocalEngine has 2, so that it would wait"
    )
    assert unknown == (
        "row 'ddp': its task 'run' is for the engine 'lng', but engine() in settings.py has ['long', 'short'] (did you"
        " mean 'long'?)"
    )


def test_requirements_that_were_set_for_a_job_count(answers):
    change = 'job.set_rqmt("run", {"cpu": 9})'
    assert "it asks for 9 of 'cpu'" in answers(LOCAL, ONE_NODE, change=change)[0]
    change = 'job.update_rqmt("run", {"mem": "8G"})'
    assert "it asks for 8 of 'mem'" in answers(LOCAL, ONE_NODE, change=change)[0]


def test_limits_that_fail(answers):
    (found,) = answers(LOCAL + "\ndef check_engine_limits(rqmt, task): return rqmt['disk']\n", ONE_NODE)
    assert found == (
        "row 'ddp': check_engine_limits() of settings.py fails for the requirements {'cpu': 4, 'mem': 2.0}, with"
        " KeyError: 'disk'; so would a submission"
    )
    (found,) = answers(LOCAL + "\ndef check_engine_limits(rqmt, task): pass\n", ONE_NODE)
    assert found == (
        "row 'ddp': check_engine_limits() of settings.py gives None for the requirements {'cpu': 4, 'mem': 2.0}; it"
        " must return requirements"
    )


def test_limits_that_change_what_they_are_given_change_nothing_of_the_job(answers):
    """The comparison is in the program that asks."""
    settings = "\ndef check_engine_limits(rqmt, task):\n    rqmt['sbatch_args'].append('-x node1')\n    return rqmt\n"
    assert answers(SLURM + settings, {"cpu": 4, "sbatch_args": []}) == ["fits"]
