"""What ``doctor --slurm`` says on a real SLURM, about settings and training pythons that lack something."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SLURM_ONLY = """
def engine():
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine as Slurm,
    )
    return Slurm(default_rqmt={"cpu": 1, "mem": 1, "gpu": 0, "time": 1})
"""
IN_BATCH_SCRIPT = """
def engine():
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine as Slurm,
    )
    class Batch(Slurm):
        def system_call(self, command, send_to_stdin=None):
            words = [part.replace(".%t.batch", ".0") for part in command]
            return super().system_call([_once(part) for part in words], send_to_stdin)
    def _once(part):
        return "--wrap=" + part.split(" ", 3)[3] if part.startswith("--wrap=srun -o ") else part
    return Batch(default_rqmt={"cpu": 1, "mem": 1, "gpu": 0, "time": 1})
"""
SLURM_CHECKS = ["SLURM engine", "SLURM programs", "SLURM version", "SLURM controller", "SLURM accounting"]
WORKER_CHECKS = ["test job", "worker", "python on nodes", "syncopate on nodes"]
RANK_CHECKS = ["RETURNN on nodes", "environment of ranks", "CPUs", "time left", "rendezvous"]
TOGETHER_CHECKS = ["shared folder", "clocks", "network"]
MEASURED = {"shared folder", "clocks"}
"""A note where this host stands still for seconds."""
LIMIT_S = 250

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """A python that finds all that is installed, but not syncopate."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    installed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(installed) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


@pytest.fixture
def script(tmp_path):
    """Makes a training python that is a script."""

    def write(*before: str, python: Path) -> Path:
        path = tmp_path / "train.sh"
        path.write_text("\n".join(["#!/bin/sh", *before, f'exec {python} "$@"', ""]))
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def stock_folder(tmp_path):
    """A user's folder, whose settings the tests write."""
    folder = tmp_path / "user"
    (folder / "recipe").mkdir(parents=True)
    for name in ("syncopate", "i6_core"):
        (folder / "recipe" / name).symlink_to(REPOSITORY / "recipe" / name)
    return folder


def start(folder, cluster, *arguments, environ=None):
    return subprocess.Popen(
        [sys.executable, "-m", "syncopate", "doctor", "--slurm", "--no-torch", *map(str, arguments)],
        cwd=folder,
        env={**{name: value for name, value in cluster.environ.items() if name != "PYTHONPATH"}, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process, folder, cluster, *, others=0):
    """Exit code, and state and text by the name of the check. Nothing may be left of the test job."""
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert all(line.startswith("syncopate: ") for line in stderr.splitlines()), stderr
    lines = re.findall(r"^(ok|note|lacking) +([^:]+): (.*)$", stdout, flags=re.MULTILINE)
    assert len(lines) == len(stdout.splitlines()), stdout
    assert not list(folder.rglob(".syncopate-doctor.*"))
    assert len(cluster.squeue()) == others
    if not others:
        cluster.wait_for("end of all processes", lambda: not cluster.processes())
    return process.returncode, {name: (state, text) for state, name, text in lines}


@pytest.fixture
def doctor(no_jobs):
    """Runs it in a folder, to its end."""

    def run(folder, *arguments, settings=None, environ=None, others=0):
        if settings is not None:
            (folder / "settings.py").write_text(settings, encoding="utf-8")
        process = start(folder, no_jobs, *arguments, environ=environ)
        return end(process, folder, no_jobs, others=others)

    return run


def lacking(found):
    return [name for name, (state, _) in found.items() if state == "lacking"]


def of_slurm(found):
    names = list(found)
    return names[names.index("SLURM engine") :]


def test_a_good_setup(doctor, setup_folder):
    (setup_folder / "work").mkdir()
    code, found = doctor(setup_folder)
    assert (code, of_slurm(found)) == (0, SLURM_CHECKS + WORKER_CHECKS + RANK_CHECKS + TOGETHER_CHECKS), found
    assert {found[name][0] for name in of_slurm(found) if name not in MEASURED} == {"ok"}, found
    job, *nodes = re.fullmatch(
        r"job (\d+) ran on (node\d), (node\d), after \d+ s in the queue", found["test job"][1]
    ).groups()
    assert int(job) > 0
    both = ", ".join(nodes)
    assert found["worker"][1] == f"runs once on each node, started by srun: {both}"
    assert found["syncopate on nodes"][1] == f"found as ranks import it, on {both}"
    assert found["rendezvous"][1].startswith(f"2 ranks on {both} met and added up within ")
    assert re.search(r"answers in the training python: \d:\d\d on node\d, \d:\d\d on node\d$", found["time left"][1])
    assert found["CPUs"][1].startswith(f"{min(4, os.cpu_count())} usable on each node, 4 asked for")
    assert found["network"][1] == "lo on every node"
    assert not list((setup_folder / "work").iterdir())


def test_a_training_python_that_hides_the_package(doctor, setup_folder, script, bare_python):
    python = script("unset PYTHONPATH", python=bare_python)
    code, found = doctor(setup_folder, "--python", python)
    assert (code, of_slurm(found)) == (1, SLURM_CHECKS + WORKER_CHECKS), found
    assert lacking(found) == ["syncopate there", "test job", "syncopate on nodes"]
    assert found["python on nodes"][0] == "ok"
    assert "No module named 'syncopate'" in found["test job"][1]
    assert re.fullmatch(
        rf"on node\d, node\d: {python} does not get PYTHONPATH as it was set; if it is a script, let it pass the"
        r" variable on \(apptainer and singularity do so without --cleanenv, docker with -e PYTHONPATH\)",
        found["syncopate on nodes"][1],
    )


def test_a_training_python_that_does_not_exist(doctor, setup_folder):
    code, found = doctor(setup_folder, "--python", "/no/such/python")
    assert (code, of_slurm(found)) == (1, SLURM_CHECKS + WORKER_CHECKS[:3]), found
    assert lacking(found) == ["training python", "test job", "python on nodes"]
    assert re.fullmatch(
        r"job \d+ failed: the training python '/no/such/python' does not exist, or is no program that may be executed,"
        r" on host \S+",
        found["test job"][1],
    )
    assert re.fullmatch(
        r"on node\d, node\d: /no/such/python does not exist, or is no program that may be executed; give a python that"
        r" lies on a file system of all nodes, as RETURNN_PYTHON_EXE in settings.py",
        found["python on nodes"][1],
    )


def test_settings_without_slurm_get_no_test_job(doctor, stock_folder):
    settings = "def engine():\n    from sisyphus.localengine import LocalEngine\n    return LocalEngine(cpu=4)\n"
    code, found = doctor(stock_folder, settings=settings)
    assert (code, of_slurm(found)) == (1, ["SLURM engine"])
    assert found["SLURM engine"][1].startswith(
        "LocalEngine would run the trainings, and not SLURM, so there is no test"
    )
    (stock_folder / "settings.py").unlink()
    code, found = doctor(stock_folder)
    assert (code, lacking(found)) == (1, ["SLURM engine"])
    assert found["SLURM engine"][1].startswith(f"there are no settings in {stock_folder} that say how to use SLURM")


@pytest.mark.full
def test_k16_stock_settings_keep_nothing_and_ranks_meet(doctor, stock_folder):
    environ = {"SYNCOPATE_MEETING_HOST": "127.0.0.1", "NCCL_DEBUG": "WARN"}
    code, found = doctor(stock_folder, settings=SLURM_ONLY, environ=environ)
    assert (code, lacking(found)) == (0, []), found
    assert found["environment"][0] == "note"
    assert found["environment of ranks"][1].endswith(
        " names of SLURM, NCCL_DEBUG, SYNCOPATE_MEETING_HOST reach the ranks"
    )
    assert found["rendezvous"][0] == "ok"


@pytest.mark.full
def test_names_that_lead_nowhere(doctor, stock_folder):
    code, found = doctor(stock_folder, settings=SLURM_ONLY, environ={"SYNCOPATE_MEETING_HOST": "no-such-host.invalid"})
    assert (code, lacking(found)) == (1, ["test job"])
    assert "the name 'no-such-host.invalid' of the first node of ['node1', 'node2'] cannot" in found["test job"][1]


@pytest.mark.full
def test_an_interface_that_is_not_there(doctor, stock_folder):
    environ = {"SYNCOPATE_MEETING_HOST": "127.0.0.1", "SYNCOPATE_INTERFACE": "ib7"}
    code, found = doctor(stock_folder, settings=SLURM_ONLY, environ=environ)
    assert (code, lacking(found)) == (1, ["test job", "rendezvous"])
    assert "Unable to find address for: ib7" in found["test job"][1]
    assert found["rendezvous"][1].startswith("ranks [0, 1] did not get through the exchange with the others")
    assert found["time left"][0] == "ok"


@pytest.mark.full
def test_the_worker_in_the_batch_script(doctor, stock_folder):
    environ = {"SYNCOPATE_MEETING_HOST": "127.0.0.1"}
    code, found = doctor(stock_folder, settings=IN_BATCH_SCRIPT, environ=environ)
    assert (code, lacking(found)) == (0, []), found
    assert re.fullmatch(
        r"runs once, in the batch script on node\d, and starts a launcher on each node by srun", found["worker"][1]
    )
    assert found["rendezvous"][1].startswith("2 ranks on node1, node2 met")


@pytest.mark.full
def test_one_node_with_two_ranks(doctor, setup_folder):
    code, found = doctor(setup_folder, "--nodes", "1", "--gpus-per-node", "2")
    assert (code, lacking(found)) == (0, []), found
    assert of_slurm(found) == SLURM_CHECKS + WORKER_CHECKS + RANK_CHECKS + ["shared folder"]
    assert re.fullmatch(r"runs once, on node\d", found["worker"][1])
    assert re.match(r"2 ranks on node\d met", found["rendezvous"][1])


@pytest.mark.full
def test_clocks_that_differ(doctor, setup_folder, script, bare_python, tmp_path):
    """By a python on node 1 that reads another time."""
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sitecustomize.py").write_text(
        "import os, time\n_real = time.time\n"
        "if os.environ.get('SLURM_NODEID') == '1':\n    time.time = lambda: _real() + 5\n"
    )
    python = script(f"export PYTHONPATH={tmp_path / 'ahead'}:$PYTHONPATH", python=bare_python)
    code, found = doctor(setup_folder, "--python", python)
    assert code == 0, found
    state, text = found["clocks"]
    assert state == "note"
    assert re.match(r"that of node\d is 5\.0 s ahead of that of node\d\. The rank that failed first", text)


@pytest.mark.full
def test_k13_fewer_cpus_than_were_asked_for(doctor, stock_folder):
    """By SLURM's own binding; without SRUN_CPUS_PER_TASK the line of settings that sets it is the cure."""
    environ = {"SYNCOPATE_MEETING_HOST": "127.0.0.1", "SLURM_CPU_BIND": "map_cpu:0"}
    code, found = doctor(stock_folder, settings=SLURM_ONLY, environ=environ)
    assert (code, lacking(found)) == (1, ["CPUs"]), found
    assert re.match(r"on node\d the ranks may use 1 of the 4 CPUs that were asked for", found["CPUs"][1])
    assert found["CPUs"][1].endswith('end settings.py with configure(globals(), engine="slurm") of syncopate.settings')


@pytest.mark.full
def test_a_training_python_without_squeue_and_variables(doctor, setup_folder, script, bare_python):
    """As a container has none."""
    python = script("unset SLURM_JOB_ID", "export PATH=/no/such/folder", python=bare_python)
    code, found = doctor(setup_folder, "--python", python)
    assert (code, lacking(found)) == (1, ["environment of ranks", "time left"]), found
    assert re.match(
        r"on node\d the training python loses SLURM_JOB_ID, which the worker has", found["environment of ranks"][1]
    )
    assert "cannot ask how much time is left: SLURM_JOB_ID is not set" in found["time left"][1]
    code, found = doctor(setup_folder, "--python", script("export PATH=/no/such/folder", python=bare_python))
    assert (code, lacking(found)) == (1, ["time left"]), found
    assert "cannot ask how much time is left: there is no squeue on its PATH" in found["time left"][1]
    assert "the worker has squeue, so if the training python enters a container" in found["time left"][1]


@pytest.mark.full
def test_gpus_that_the_training_python_does_not_see(doctor, setup_folder):
    """SLURM gives them; this host has none."""
    code, found = doctor(setup_folder, "--device", "gpu")
    assert code == 1
    assert re.match(r"on node\d the training python sees 0 GPUs, and 1 ranks need one each", found["GPUs"][1])
    assert found["rendezvous"][0] == "ok"


@pytest.mark.full
def test_a_job_that_nothing_can_run(doctor, stock_folder):
    """SLURM takes it, and has no nodes for it."""
    code, found = doctor(stock_folder, "--nodes", "9", settings=SLURM_ONLY)
    assert (code, lacking(found)) == (1, ["test job"])
    assert re.match(r"job \d+ would wait for ever: SLURM gives 'PartitionConfig' as the reason", found["test job"][1])


@pytest.mark.full
def test_a_job_that_sbatch_refuses(doctor, stock_folder):
    settings = SLURM_ONLY.replace('"time": 1', '"time": 1, "sbatch_args": "--partition=nowhere"')
    code, found = doctor(stock_folder, settings=settings)
    assert (code, lacking(found)) == (1, ["test job"])
    assert found["test job"][1].startswith(
        "sbatch refuses the test job: invalid partition specified: nowhere; Batch job submission failed: Invalid"
        " partition name specified. Compare what sinfo shows with --nodes and --gpus-per-node here"
    )


@pytest.mark.full
def test_a_queue_that_is_full(doctor, setup_folder, no_jobs):
    no_jobs.submit("--nodes=4", "--exclusive", wrap="sleep 200")
    no_jobs.wait_for("running job", lambda: "RUNNING" in no_jobs.squeue().values())
    code, found = doctor(setup_folder, "--limit-s", "60", others=1)
    assert (code, lacking(found)) == (1, ["test job"])
    assert re.fullmatch(
        r"job \d+ waited in the queue until the limit of 60 s, where SLURM gives '(Resources|Priority)' as the reason;"
        r" it is cancelled\. Give a larger --limit-s, or try again when the queue is shorter",
        found["test job"][1],
    )


@pytest.mark.full
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_whoever_interrupts_it_finds_nothing_left(setup_folder, no_jobs, signum):
    no_jobs.submit("--nodes=4", "--exclusive", wrap="sleep 200")
    no_jobs.wait_for("running job", lambda: "RUNNING" in no_jobs.squeue().values())
    process = start(setup_folder, no_jobs)
    try:
        no_jobs.wait_for("second job", lambda: len(no_jobs.squeue()) == 2)
        process.send_signal(signum)
        code, found = end(process, setup_folder, no_jobs, others=1)
    finally:
        process.kill()
    assert code == 130
    assert list(found)[-1] == "SLURM accounting"
