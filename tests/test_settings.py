"""What Syncopate adds to the settings of a setup that is there already, also as Sisyphus itself executes them: K16."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from syncopate.errors import DeclarationError
from syncopate.launch.kept import SLURM_NAMES
from syncopate.settings import configure

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
