"""What Syncopate adds to the settings of a setup that is there already, also as Sisyphus itself executes them: K16."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncopate.errors import DeclarationError, SiteError
from syncopate.launch.kept import SLURM_NAMES
from syncopate.settings import configure
from syncopate.site import NodeShape, Partition, Site

REPOSITORY = Path(__file__).resolve().parents[1]

LINKED = """
import sys; sys.path.insert(0, "recipe")
from syncopate.settings import configure
"""

SHOW = """
import sys
sys.path = [path for path in sys.path if not path or path not in {hidden!r}]  # as if syncopate were not installed
import json, os
import sisyphus.global_settings as gs
from sisyphus import Job, Task
class Training(Job):
    def tasks(self):
        yield Task("run")
    def run(self):
        pass
job = Training()
limited = gs.check_engine_limits(dict(cpu=2, gpu=1, mem=3, time=4, multi_node_slots=2), None)
paths = gs.IMPORT_PATHS
syncopate = sys.modules.get("syncopate")
job._sis_environment.modify_environment()
print(json.dumps(dict(environment=dict(os.environ), limited=limited, import_paths=paths, place=syncopate.__file__)))
"""


def stock() -> dict[str, Any]:
    return {
        "CLEANUP_ENVIRONMENT": True,
        "DEFAULT_ENVIRONMENT_KEEP": {"HOME"},
        "DEFAULT_ENVIRONMENT_SET": {"LANG": "en_US.UTF-8"},
        "IMPORT_PATHS": ["config", "recipe", "recipe/"],
    }


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A folder, and an environment, in which nothing is configured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNCOPATE_ENGINE", "set, so that it is taken back after the test")
    monkeypatch.delenv("SYNCOPATE_ENGINE")
    monkeypatch.delitem(sys.modules, "sisyphus.toolkit", raising=False)


SITE = Site(
    partitions=[
        Partition(name="gpu", shape=NodeShape(gpus=4, cpus=32, mem_gb=100), max_time_h=24),
        Partition(name="cpu", shape=NodeShape(cpus=16, mem_gb=50), max_time_h=48),
    ],
    host_suffix="i",
    interface="ib0",
)
ADDED = ["--export=ALL,SRUN_CPUS_PER_TASK=2,SLURM_WAIT=120", "--open-mode=append", "--requeue"]


class AskedTask:
    """What Sisyphus hands over beside a requirement."""

    def __init__(self, *, resumes=True, **rqmt):
        self._resumes = resumes
        self._rqmt = rqmt

    def rqmt(self):
        return self._rqmt

    def resumeable(self):
        return self._resumes

    def task_name(self):
        return "jobs/Training.id.run"


def limits_of(**given):
    settings = stock()
    configure(settings, engine="slurm", **given)
    return settings["check_engine_limits"]


def as_sisyphus_sees(folder, python, text, *, env=None):
    (folder / "recipe").mkdir()
    (folder / "recipe" / "syncopate").symlink_to(REPOSITORY / "recipe" / "syncopate")
    (folder / "settings.py").write_text(LINKED + text, encoding="utf-8")
    done = python(SHOW.format(hidden=[str(REPOSITORY / "recipe")]), cwd=folder, env=env)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert Path(seen["place"]) == folder / "recipe" / "syncopate" / "__init__.py"
    return seen


@pytest.mark.needs_sisyphus
def test_k16_what_a_task_finds_in_its_environment_on_a_cluster(tmp_path, python):
    env = {"NCCL_DEBUG": "INFO", "SLURM_JOB_NODELIST": "node[1-2]", "UNRELATED": "1", "SYNCOPATE_ENGINE": "slurm"}
    seen = as_sisyphus_sees(tmp_path, python, "configure(globals())", env=env)
    assert {name: seen["environment"].get(name) for name in env} == {**env, "UNRELATED": None}
    assert seen["limited"] == {"cpu": 2, "gpu": 1, "mem": 3, "time": 4, "multi_node_slots": 2}


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize("cleanup", [True, False])
@pytest.mark.parametrize(("engine", "slots"), [("local", None), ("slurm", 2)])
def test_k16_a_task_finds_the_engine_also_without_clean_up_and_whatever_the_shell_says(
    tmp_path, python, cleanup, engine, slots
):
    text = f"CLEANUP_ENVIRONMENT = {cleanup}\nconfigure(globals(), engine={engine!r})"
    env = {"SYNCOPATE_ENGINE": "nonsense", "UNRELATED": "1"}
    seen = as_sisyphus_sees(tmp_path, python, text, env=env)
    assert seen["environment"]["SYNCOPATE_ENGINE"] == engine
    assert seen["environment"].get("UNRELATED") == (None if cleanup else "1")
    assert seen["limited"].get("multi_node_slots") == slots


@pytest.mark.needs_sisyphus
def test_the_users_own_limits_run_on_what_all_nodes_need_together(tmp_path, python):
    text = """
def check_engine_limits(current_rqmt, task):
    assert "multi_node_slots" not in current_rqmt
    current_rqmt["cpu"] = min(current_rqmt["cpu"], 3)
    current_rqmt["seen"] = dict(current_rqmt)
    return current_rqmt
configure(globals(), engine="local")
configure(globals(), engine="local")
"""
    limited = as_sisyphus_sees(tmp_path, python, text)["limited"]
    assert limited == {"cpu": 3, "gpu": 2, "mem": 6, "time": 4, "seen": {"cpu": 3, "gpu": 2, "mem": 6, "time": 4}}


@pytest.mark.needs_sisyphus
def test_the_shipped_setup_emulates_nodes(setup_folder, python):
    seen = json.loads(python(SHOW.format(hidden=[]), cwd=setup_folder).stdout.splitlines()[-1])
    assert seen["environment"]["SYNCOPATE_ENGINE"] == "local"
    assert seen["environment"]["PATH"] == os.environ["PATH"]
    assert seen["limited"] == {"cpu": 4, "gpu": 2, "mem": 6, "time": 4}
    assert seen["import_paths"] == ["config", "recipe", "recipe/", "configs"]


def test_nothing_is_changed_in_place_and_a_second_call_changes_nothing(tmp_path):
    (tmp_path / "configs").mkdir()
    settings = stock()
    given, before = dict(settings), copy.deepcopy(settings)
    configure(settings, engine="local")
    assert given == before
    assert settings["DEFAULT_ENVIRONMENT_KEEP"] >= {"HOME", "SYNCOPATE_ENGINE", *SLURM_NAMES}
    assert settings["DEFAULT_ENVIRONMENT_SET"] == {"LANG": "en_US.UTF-8", "SYNCOPATE_ENGINE": "local"}
    first = dict(settings)
    configure(settings, engine="local")
    configure(settings)
    assert settings == first
    rqmt = {"cpu": 1, "multi_node_slots": 4}
    assert settings["check_engine_limits"](rqmt, None) == {"cpu": 4}
    assert rqmt == {"cpu": 1, "multi_node_slots": 4}
    assert "SYNCOPATE_ENGINE" not in os.environ


@pytest.mark.parametrize("rqmt", [{"cpu": 2, "mem": 1}, {"cpu": 2, "mem": 1, "multi_node_slots": None}])
def test_a_training_on_one_node_asks_for_what_it_asked_for(rqmt):
    settings = stock()
    configure(settings, engine="local")
    assert settings["check_engine_limits"](rqmt, None) == {"cpu": 2, "mem": 1}


@pytest.mark.parametrize(
    ("folders", "before", "after"),
    [
        ([], ["recipe/", "config"], ["recipe/", "config"]),
        (["configs"], ["recipe/", "config"], ["recipe/", "config", "configs"]),
        (["configs"], ("configs", "recipe/"), ("configs", "recipe/")),
        (["configs"], ["configs/"], ["configs/"]),
    ],
)
def test_the_order_of_import_paths_is_the_users(tmp_path, folders, before, after):
    for folder in folders:
        (tmp_path / folder).mkdir()
    settings = {**stock(), "IMPORT_PATHS": before}
    configure(settings)
    assert settings["IMPORT_PATHS"] == after


def test_slurm_without_a_site():
    limits = limits_of()
    rqmt = {"cpu": 2, "mem": 999, "time": 0.01, "sbatch_args": ["-p", "x"]}
    given = copy.deepcopy(rqmt)
    assert limits(rqmt, None) == {"cpu": 2, "mem": 999, "time": 1 / 60, "sbatch_args": [*ADDED, "-p", "x"]}
    assert rqmt == given
    assert limits.mem_cap_gb(rqmt) == math.inf


def test_slurm_with_a_site():
    limits = limits_of(site=SITE)
    routed = limits({"cpu": 2, "gpu": 4, "mem": 99, "time": 24}, None)
    assert routed == {"cpu": 2, "gpu": 4, "mem": 99, "time": 24, "sbatch_args": [*ADDED, "--partition=gpu"]}
    assert limits(routed, None) == routed
    assert limits.mem_cap_gb({"gpu": 1}) == 100
    assert limits.site is SITE


def test_the_network_of_a_site_is_told_to_the_tasks():
    settings = stock()
    configure(settings, engine="slurm", site=SITE)
    assert settings["DEFAULT_ENVIRONMENT_SET"] == {
        "LANG": "en_US.UTF-8",
        "SYNCOPATE_ENGINE": "slurm",
        "SYNCOPATE_HOST_SUFFIX": "i",
        "SYNCOPATE_INTERFACE": "ib0",
    }
    assert "SYNCOPATE_HOST_SUFFIX" not in os.environ


def test_the_network_of_a_site_is_told_without_clean_up(monkeypatch):
    for name in ("SYNCOPATE_HOST_SUFFIX", "SYNCOPATE_INTERFACE"):
        monkeypatch.setenv(name, "set, so that it is taken back after the test")
    configure({**stock(), "CLEANUP_ENVIRONMENT": False}, engine="slurm", site=SITE)
    assert (os.environ["SYNCOPATE_HOST_SUFFIX"], os.environ["SYNCOPATE_INTERFACE"]) == ("i", "ib0")


def test_the_users_own_limits_see_the_partition_and_keep_the_last_word():
    def own(current_rqmt, task):
        assert current_rqmt["sbatch_args"] == ["--partition=gpu"]
        current_rqmt["sbatch_args"] += ["-p", "theirs", "--no-requeue"]
        return {**current_rqmt, "cpu": 1, "time": 0.001}

    settings = {**stock(), "check_engine_limits": own}
    configure(settings, engine="slurm", site=SITE)
    rqmt = {"cpu": 2, "gpu": 1, "time": 2}
    for _ in range(2):
        assert settings["check_engine_limits"](rqmt, None) == {
            "cpu": 1,
            "gpu": 1,
            "time": 1 / 60,
            "sbatch_args": [
                *("--export=ALL,SRUN_CPUS_PER_TASK=1,SLURM_WAIT=120", "--open-mode=append"),
                *("--partition=gpu", "-p", "theirs", "--no-requeue"),
            ],
        }
    assert rqmt == {"cpu": 2, "gpu": 1, "time": 2}


def test_what_grew_is_cut_and_what_was_declared_is_refused():
    limits = limits_of(site=SITE)
    declared = AskedTask(gpu=1, mem=60)
    assert limits({"gpu": 1, "mem": 120, "time": 1}, declared)["mem"] == 100
    assert limits({"gpu": 1, "mem": 99, "time": 1}, declared)["mem"] == 99
    with pytest.raises(
        SiteError,
        match=r"^jobs/Training\.id\.run: no partition gives .* for 1 h: 'gpu' .* has too little memory; 'cpu'",
    ):
        limits({"gpu": 1, "mem": 101, "time": 1}, AskedTask(gpu=1, mem=101))


def test_a_time_that_is_cut_is_said_once(caplog):
    limits = limits_of(site=SITE)
    training = AskedTask(gpu=1, time=30)
    for _ in range(3):
        assert limits({"gpu": 1, "mem": 1, "time": 30}, training)["time"] == 24
    assert [record.getMessage() for record in caplog.records] == [
        "30 h are more than the partition 'gpu' gives, and are cut to 24 h; a training goes on from its last checkpoint"
        " when it is submitted again"
    ]
    own = limits({"gpu": 1, "mem": 1, "time": 99, "sbatch_args": "-p gpu,cpu"}, training)
    assert own["time"] == 24
    assert caplog.records[1].getMessage().startswith("99 h are more than the partition 'gpu,cpu' gives")


def test_what_cannot_go_on_is_not_cut_but_when_its_time_grew():
    limits = limits_of(site=SITE)
    with pytest.raises(SiteError, match="has too little time, after which it could not go on"):
        limits({"gpu": 1, "mem": 1, "time": 30}, AskedTask(gpu=1, time=30, resumes=False))
    assert limits({"gpu": 1, "mem": 1, "time": 40}, AskedTask(gpu=1, time=20, resumes=False))["time"] == 24


def test_a_number_of_cpus_in_the_managers_environment_reaches_no_task(monkeypatch):
    """There it would win over the one that --export gives; in a task it is what the task was given."""
    settings = stock()
    configure(settings, engine="slurm")
    monkeypatch.setenv("SRUN_CPUS_PER_TASK", "64")
    settings["active_engine"] = SimpleNamespace(options=None)
    settings["check_engine_limits"]({"cpu": 1, "time": 1}, None)
    assert os.environ["SRUN_CPUS_PER_TASK"] == "64"
    settings["active_engine"] = None
    settings["check_engine_limits"]({"cpu": 1, "time": 1}, None)
    assert "SRUN_CPUS_PER_TASK" not in os.environ


def test_a_second_call_for_slurm_changes_nothing_and_another_site_is_refused():
    settings = stock()
    configure(settings, engine="slurm")
    limits = settings["check_engine_limits"]
    configure(settings, engine="slurm", site=SITE)
    assert settings["check_engine_limits"] is limits
    assert limits.site is SITE
    first = dict(settings)
    configure(settings, engine="slurm", site=SITE)
    configure(settings, engine="slurm")
    configure(settings)
    assert settings == first
    other = Site(partitions=SITE.partitions[:1])
    with pytest.raises(DeclarationError) as caught:
        configure(settings, engine="slurm", site=other)
    assert str(caught.value) == (
        f"configure: site={other!r}, but an earlier call was given {SITE!r}; a setup has one site, with all of its"
        " partitions"
    )


@pytest.mark.parametrize("engine", ["local", None])
def test_a_site_is_for_slurm(engine):
    with pytest.raises(DeclarationError) as caught:
        configure(stock(), engine=engine, site=SITE)
    assert str(caught.value) == (
        f'configure: site must be a Site(...), together with engine="slurm", got {SITE!r} with engine={engine!r}'
    )


def test_tasks_find_squeue(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "squeue").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    paths = {}
    for path in ("/no/such", "", f"/no/such:{tmp_path / 'bin'}", None):
        settings = stock()
        if path is not None:
            settings["DEFAULT_ENVIRONMENT_SET"]["PATH"] = path
        configure(settings, engine="slurm")
        configure(settings, engine="slurm")
        paths[path] = settings["DEFAULT_ENVIRONMENT_SET"].get("PATH")
    assert paths == {
        "/no/such": f"/no/such:{tmp_path / 'bin'}",
        "": str(tmp_path / "bin"),
        f"/no/such:{tmp_path / 'bin'}": f"/no/such:{tmp_path / 'bin'}",
        None: None,
    }
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = stock()
    settings["DEFAULT_ENVIRONMENT_SET"]["PATH"] = "/no/such"
    configure(settings, engine="slurm")
    assert settings["DEFAULT_ENVIRONMENT_SET"]["PATH"] == "/no/such"


def test_an_unknown_engine():
    with pytest.raises(DeclarationError) as caught:
        configure(stock(), engine="slrum")
    assert str(caught.value) == (
        "configure: engine must be one of ['local', 'slurm'] or None, got 'slrum' (did you mean 'slurm'?)"
    )


def test_two_engines_contradict_each_other():
    settings = stock()
    configure(settings, engine="local")
    with pytest.raises(DeclarationError) as caught:
        configure(settings, engine="slurm")
    assert str(caught.value) == (
        "configure: engine='slurm', but DEFAULT_ENVIRONMENT_SET['SYNCOPATE_ENGINE'] is 'local' already; one engine runs"
        " all trainings of a setup"
    )


def test_a_namespace_that_is_not_that_of_the_settings():
    with pytest.raises(DeclarationError) as caught:
        configure({"IMPORT_PATHS": []})
    assert str(caught.value) == (
        "configure: the namespace given to it has no CLEANUP_ENVIRONMENT, no DEFAULT_ENVIRONMENT_KEEP, no"
        " DEFAULT_ENVIRONMENT_SET, so it is not that of Sisyphus' settings; call configure(globals()) in settings.py"
        " itself, not in a module that it imports, and let Sisyphus load the file"
    )
