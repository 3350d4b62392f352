"""The setups as Sisyphus executes them, and how one of them is chosen."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.errors import SiteError
from syncopate.settings.choice import chosen_setup
from tests.test_docs import blocks

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "setups.md"
CLUSTERS = ["slurm", "rwth_claix"]

ASK = """
import json, os
import sisyphus.global_settings as gs
from sisyphus import Job, Task, toolkit

class Training(Job):
    def __init__(self, number, rqmt):
        self.rqmt = rqmt
    def tasks(self):
        yield Task("run", resume="run", rqmt=self.rqmt)
        yield Task("plot", mini_task=True)
    def run(self):
        pass
    plot = run

engine = toolkit.cached_engine()
submitted, grown = [], []
for number, rqmt in enumerate({cases!r}):
    job = Training(number, rqmt)
    for task in job.tasks():
        task.set_job(job)
        final = engine.get_rqmt(task, 1)
        used = engine.get_used_engine_by_rqmt(final)
        more = {{**engine.add_defaults_to_rqmt(task, task.rqmt()), "mem": 999999}}
        grown.append(gs.check_engine_limits(more, task)["mem"])
        submitted.append(used.options(final) if hasattr(used, "options") else [type(used).__name__, final])
job._sis_environment.modify_environment()
print(json.dumps(dict(submitted=submitted, grown=grown, environment=dict(os.environ))))
"""
K15 = {"cpu": 16, "gpu": 4, "mem": 100, "time": 30 / 3600, "multi_node_slots": 2}
ADDED = ["--export=ALL,SRUN_CPUS_PER_TASK=16,SLURM_WAIT=120", "--open-mode=append", "--requeue"]


@pytest.fixture
def asked(setup_folder, python):
    """What is submitted for these requirements, and then for the short task of the same job, under a setup."""

    def ask(setup, *cases, env=None):
        code = ASK.format(cases=list(cases))
        done = python(code, cwd=setup_folder, env={"SYNCOPATE_SETUP": setup, **(env or {})})
        return json.loads(done.stdout.splitlines()[-1])

    return ask


@pytest.fixture
def without_slurm(tmp_path):
    """An environment in which no program of SLURM is found."""
    (tmp_path / "no_programs").mkdir()
    return {"PATH": str(tmp_path / "no_programs")}


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize(("setup", "partition"), [("slurm", "gpu"), ("rwth_claix", "c23g")])
def test_k15_the_call_of_sbatch_for_eight_gpus_on_two_nodes_and_half_a_minute(asked, without_slurm, setup, partition):
    found = asked(setup, K15, env={**without_slurm, "SYNCOPATE_ACCOUNT": "project1"})
    assert found["submitted"] == [
        [
            *(
                "--mem=100G",
                "--gres=gpu:4",
                "--cpus-per-task=16",
                "--time=1",
                "--export=all",
                "--ntasks=2",
                "--nodes=2",
            ),
            *(*ADDED, f"--partition={partition}", "--account=project1"),
        ],
        ["LocalEngine", {"cpu": 1, "mem": 1, "time": 1, "engine": "short"}],
    ]
    assert found["environment"]["SYNCOPATE_ENGINE"] == "slurm"


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize("setup", CLUSTERS)
def test_a_cluster_without_an_account_and_with_it_in_the_environment_of_sbatch(asked, setup):
    """What sbatch reads itself is left to it."""
    found = asked(setup, {"time": 2}, env={"SYNCOPATE_ACCOUNT": "", "SBATCH_ACCOUNT": "project2"})
    partition = {"slurm": "cpu", "rwth_claix": "c23ms"}[setup]
    assert found["submitted"][0] == [
        *("--mem=2G", "--cpus-per-task=1", "--time=120", "--export=all", "--ntasks-per-node=1"),
        *(
            "--export=ALL,SRUN_CPUS_PER_TASK=1,SLURM_WAIT=120",
            "--open-mode=append",
            "--requeue",
            f"--partition={partition}",
        ),
    ]


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize(("setup", "with_gpus_gb", "without_gb"), [("slurm", 480, 480), ("rwth_claix", 488, 990)])
def test_a_training_that_is_too_long_is_cut_and_memory_that_grew_is_capped(asked, setup, with_gpus_gb, without_gb):
    found = asked(setup, {**K15, "time": 30}, {"cpu": 1})
    assert "--time=1440" in found["submitted"][0]
    assert found["grown"] == [with_gpus_gb, 999999, without_gb, 999999]  # short tasks are not for SLURM


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize("setup", [*CLUSTERS, "local"])
def test_tasks_keep_the_variables_of_slurm_and_of_the_collectives(asked, setup):
    env = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2", "NCCL_DEBUG": "INFO", "UNRELATED": "1"}
    found = asked(setup, {}, env=env)
    assert {name: found["environment"].get(name) for name in env} == {**env, "UNRELATED": None}


@pytest.mark.needs_sisyphus
def test_the_local_setup_asks_for_all_nodes_together_on_this_host(asked, without_slurm):
    found = asked("local", {"cpu": 2, "mem": 4, "multi_node_slots": 2}, env=without_slurm)
    assert found["submitted"][0] == ["LocalEngine", {"cpu": 4, "mem": 8, "time": 1}]
    assert found["environment"]["SYNCOPATE_ENGINE"] == "local"


@pytest.mark.needs_sisyphus
def test_a_task_is_told_the_setup_since_it_may_run_on_a_host_of_another_name(tmp_path, python):
    folder = copied(tmp_path)
    (folder / "setups" / "slurm" / "hosts").write_text(f"{socket.gethostname()}\n", encoding="utf-8")
    show = "import os, sisyphus.global_settings; print(os.environ['SYNCOPATE_SETUP'])"
    assert python(show, cwd=folder, env={"SYNCOPATE_SETUP": ""}).stdout == "slurm\n"
    assert python(show, cwd=folder, env={"SYNCOPATE_SETUP": "local"}).stdout == "local\n"


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize("program", ["sbatch", "squeue"])
@pytest.mark.parametrize("setup", CLUSTERS)
def test_the_doctor_names_partitions_and_programs_that_are_missing(setup_folder, tmp_path, setup, program):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in {"sbatch", "squeue"} - {program}:
        (programs / name).touch(mode=0o755)
    said = doctor(setup_folder, env={"SYNCOPATE_SETUP": setup, "PATH": str(programs)})
    names = {"slurm": "gpu, cpu", "rwth_claix": "c23g, c23ms, c23mm, c23ml"}[setup]
    assert said["engine"] == (
        f"note SlurmEngine can run a training on several nodes of the partitions {names}; there is no {program} on the"
        " PATH here, where sis would call it"
    )


def doctor(folder: Path, *, env: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "syncopate", "doctor", "--no-torch"],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return {rest.partition(":")[0]: f"{state} {rest.partition(': ')[2]}" for state, rest in lines}


def copied(parent: Path) -> Path:
    """A folder as a user's own clone, in which setups can be changed."""
    folder = parent / "clone"
    folder.mkdir()
    for name in ("recipe", "configs"):
        (folder / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "setups", folder / "setups", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "settings.py", folder)
    return folder


@pytest.mark.needs_sisyphus
def test_the_page_makes_a_setup_that_is_taken_on_this_host(tmp_path):
    folder = copied(tmp_path)
    (folder / "bin").mkdir()
    for name in ("sbatch", "squeue"):
        (folder / "bin" / name).touch(mode=0o755)
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {name: value for name, value in os.environ.items() if name not in ("SYNCOPATE_SETUP", "SYNCOPATE_ENGINE")}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(blocks(PAGE, "bash"))],
        cwd=folder,
        env={**environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SlurmEngine can run a training on several nodes of the partitions gpu, cpu" in done.stdout
    assert (folder / "setups" / "mycluster" / "hosts").read_text() == f"{socket.gethostname()}\n"


@pytest.fixture
def setups(tmp_path):
    """A folder of setups, by the text of their file ``hosts``."""

    def make(**hosts):
        for name, text in hosts.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "settings.py").touch()
            if text is not None:
                (tmp_path / name / "hosts").write_text(text, encoding="utf-8")
        return tmp_path

    return make


NAMES = ["login1.cluster.org", "login1"]


@pytest.mark.parametrize(
    ("hosts", "chosen"),
    [
        ({"local": None, "a": None}, "local"),
        ({"local": None, "a": "login*.cluster.org\n"}, "a"),
        ({"local": None, "a": "# login1\n\n", "b": "other\n  LOGIN1  # a comment\n"}, "b"),
        ({"local": None, "a": "login\n*.org.uk\n"}, "local"),
    ],
)
def test_the_setup_for_a_host(setups, hosts, chosen):
    folder = setups(**hosts)
    assert chosen_setup(folder, {}, host_names=NAMES) == (chosen, folder / chosen / "settings.py")
    assert chosen_setup(folder, {"SYNCOPATE_SETUP": "a"}, host_names=NAMES)[0] == "a"


def test_two_setups_for_one_host(setups):
    folder = setups(local=None, a="login*", b="*.org", c="other")
    with pytest.raises(SiteError) as caught:
        chosen_setup(folder, {}, host_names=NAMES)
    assert str(caught.value) == (
        f"the setups ['a', 'b'] of {folder} are all for this host, ['login1', 'login1.cluster.org']; let one of their"
        " files hosts match it, or name one by SYNCOPATE_SETUP"
    )
    assert chosen_setup(folder, {"SYNCOPATE_SETUP": "b"}, host_names=NAMES)[0] == "b"


def test_a_setup_that_does_not_exist(setups):
    folder = setups(local=None, slurm=None)
    (folder / "no_setup").mkdir()
    with pytest.raises(SiteError) as caught:
        chosen_setup(folder, {"SYNCOPATE_SETUP": "slrum"}, host_names=NAMES)
    assert str(caught.value) == (
        f"SYNCOPATE_SETUP='slrum', but there is no {folder / 'slrum' / 'settings.py'}; setups are ['local', 'slurm']"
        " (did you mean 'slurm'?)"
    )


@pytest.mark.parametrize(
    ("host", "setup"),
    [
        ("login23-1.hpc.itc.rwth-aachen.de", "rwth_claix"),
        ("n23g0012.hpc.itc.rwth-aachen.de", "rwth_claix"),
        ("r23m0047.hpc.itc.rwth-aachen.de", "rwth_claix"),
        ("login23-1.example.org", "local"),
        ("localhost", "local"),
    ],
)
def test_hosts_of_the_shipped_setups(host, setup):
    assert chosen_setup(REPOSITORY / "setups", {}, host_names=[host])[0] == setup


def test_lines_that_nobody_could_test_are_marked():
    """A value that is neither marked nor from one of the two pages that were read is one that somebody made up."""
    lines = (REPOSITORY / "setups" / "rwth_claix" / "settings.py").read_text(encoding="utf-8").splitlines()
    site = lines[lines.index("_SITE = Site(") : lines.index("def engine():")]
    values = ("gpus=", "gpu_mem_gb=", "cpus=", "mem_gb=", "max_time_h=", "whole_node=", "account=", "host_suffix=")
    for number, line in enumerate(site):
        if any(value in line for value in values):
            assert any(mark in line or mark in site[number - 1] for mark in ("[1]", "[2]", "not tested")), line
