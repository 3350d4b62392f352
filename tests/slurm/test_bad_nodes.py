"""Nodes that do not find each other, or lack something: trainings on a real SLURM say so, and never train alone."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.cluster import Cluster as Nodes
from syncopate.launch.place import find_place
from tests.slurm.sweeps import Setup, sweep_text
from tests.slurm.training import ENDED_LIMIT_S, Training

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(600)]

SAID = {
    "no_list": ["SLURM_JOB_NODELIST must be set, but is not", "DEFAULT_ENVIRONMENT_KEEP"],
    "torn_list": ["cannot read the host list 'node[1-'", "']' is missing"],
    "short_list": ["the cluster has 2 nodes", "but SLURM gave 1", "SLURM_JOB_NODELIST=node1"],
    "no_such_host": ["the name 'node", ".invalid' of the first node", "cannot be resolved", "SYNCOPATE_HOST_SUFFIX"],
    "is_itself": ["resolves '127.1', the first node, to 127.0.0.1, which is itself", "/etc/hosts"],
}
VARIABLES = {
    "no_list": {"SLURM_JOB_NODELIST": ""},
    "torn_list": {"SLURM_JOB_NODELIST": "node[1-"},
    "short_list": {"SLURM_JOB_NODELIST": "node1"},
    "no_such_host": {"SYNCOPATE_MEETING_HOST": "", "SYNCOPATE_HOST_SUFFIX": ".invalid"},
    # A name, for the resolver, of every host for itself. The interface is given, since this host's own name may lead
    # to its loopback interface as well, which is another error.
    "is_itself": {"SYNCOPATE_MEETING_HOST": "127.1", "SYNCOPATE_INTERFACE": "lo"},
}
WRAPPER = """
def worker_wrapper(job, task_name, call):
    python = getattr(job, "returnn_python_exe", None)
    is_hidden = task_name == "run" and python is not None and {folder!r} in python.get_path()
    return [{script!r}, *call] if is_hidden else call
"""
HIDES = """\
#!/bin/sh
# On the second node another file system lies where the training pythons are: one is not there, one is no program.
[ "$SLURM_NODEID" = 1 ] || exec "$@"
exec {unshare} sh -c '
    mount -t tmpfs none {folder} && mkdir {folder}/broken && touch {folder}/broken/python && exec "$@"' sh "$@"
"""
HIDDEN = ("absent", "broken")
NUM_TAKEN = 20
"""Jobs whose first port is taken: the next ones."""


@pytest.fixture(scope="module")
def hiding(tmp_path_factory):
    """A folder of training pythons, and a script that runs a command so that the second node does not have them."""
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    refused = subprocess.run([*unshare, "true"], capture_output=True, text=True).stderr
    if refused and not os.environ.get("CI"):
        pytest.skip(f"this user may not have a view of the file system of its own: {refused}")
    folder = tmp_path_factory.mktemp("pythons")
    for name in ("absent", "broken"):
        (folder / name).mkdir()
        script(folder / name / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper = tmp_path_factory.mktemp("wrapper") / "hides"
    script(wrapper, HIDES.format(unshare=" ".join(unshare), folder=folder))
    return {"folder": folder, "settings": WRAPPER.format(folder=str(folder), script=str(wrapper))}


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def port(job_id: int, *, try_number: int = 0) -> int:
    """Where the nodes of a job try to meet."""
    environ = {
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NODEID": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "2",
    }
    allocation = find_place(Nodes(num_nodes=2), environ).allocation
    assert allocation is not None
    return allocation.meeting(try_number).port


@pytest.fixture(scope="module")
def trainings(cluster, make_setup_folder, tmp_path_factory, hiding):
    """All at once. Those of which the nodes do not fit together take a few seconds each."""
    setup = Setup(make_setup_folder(tmp_path_factory.mktemp("bad")), cluster, settings=hiding["settings"])
    rows = {
        row: "; ".join(f"trial.job.set_env({name!r}, {value!r})" for name, value in variables.items())
        for row, variables in VARIABLES.items()
    }
    common = {"num_epochs": 1, "num_gpus_per_node": 1}
    text = [
        sweep_text("bad", {**rows, "port_taken": ""}, **common),
        *(
            sweep_text(name, {name: ""}, options=f"python={str(hiding['folder'] / name / 'python')!r}", **common)
            for name in HIDDEN
        ),
    ]
    aliases = {row: f"bad/{row},note={row}" for row in (*rows, "port_taken")}
    aliases.update((name, f"{name}/{name},note={name}") for name in HIDDEN)
    with contextlib.ExitStack() as stack:
        last = cluster.submit(wrap="true")
        for job_id in range(last + 1, last + 1 + NUM_TAKEN):
            taken = stack.enter_context(socket.socket())
            # Whoever has it already takes it as well.
            with contextlib.suppress(OSError):
                taken.bind(("", port(job_id)))
                taken.listen()
        stack.enter_context(setup)
        setup.start(setup.write(*text))
        found = {row: setup.training(alias) for row, alias in aliases.items()}
        for name in HIDDEN:
            found[name].wait_for("start", found[name].attempts)
            found[name].wait_for("error", lambda name=name: found[name].has_failed, ENDED_LIMIT_S)
            found[name].wait_until_gone(found[name].job_ids()[0])
        setup.wait_for_end()
    assert max(job_id for training in found.values() for job_id in training.job_ids()) <= last + NUM_TAKEN
    return found


def check_error(training: Training, said: list[str]) -> None:
    """Both nodes say it, no rank was started, and it is not submitted again."""
    assert training.has_failed
    assert not training.has_finished
    assert len(training.job_ids()) == 1
    for node in (0, 1):
        error = training.launch_error(node)
        assert "LaunchError: " in error
        for part in said:
            assert part in error
    assert list(training.folder.glob("logs/*/ranks/*")) == []
    assert not (training.folder / "output" / "learning_rates").exists()


@pytest.mark.parametrize("row", SAID)
def test_k10_nodes_that_do_not_find_each_other_are_an_error(trainings, row):
    check_error(trainings[row], SAID[row])


def test_a_broken_training_python_on_the_second_node(trainings):
    """The first node, where it is a program, hears of it."""
    training = trainings["broken"]
    check_error(training, ["the training python", "does not exist, or is no program"])
    assert "LaunchError: node 1 (host node" in training.launch_error(0)


def test_no_training_python_on_the_second_node(trainings):
    """Sisyphus ends its worker there before anything of it is started. The first node does not wait for it."""
    training = trainings["absent"]
    assert training.has_failed
    assert not training.has_finished
    assert len(training.job_ids()) == 1
    assert "node 1 (host node" in training.launch_error(0)
    assert "Job isn't runnable" in training.log(0)


def test_another_port_where_the_first_is_taken(trainings):
    training = trainings["port_taken"]
    assert training.has_finished
    assert training.epochs() == [1]
    (job_id,) = training.job_ids()
    assert training.attempts() == [f"{job_id}.0.train"]
    meeting = training.notes()[0].meeting
    assert meeting.port in {port(job_id, try_number=number) for number in range(1, 5)}
    assert port(job_id) != meeting.port
    assert sorted(record.rank for record in training.ranks()) == [0, 1]
