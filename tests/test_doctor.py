"""What the doctor says in setups that lack something: real folders, asked by a python that has no syncopate itself."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.doctor import signature
from syncopate.doctor.manager import I6_CORE_PACKAGES
from syncopate.doctor.signature import I6_CORE, SISYPHUS, missing
from syncopate.doctor.training import why_not_seen
from syncopate.errors import ComponentError
from syncopate.version import __version__
from tests.returnn_wheels import write_python

REPOSITORY = Path(__file__).resolve().parents[1]
RECIPE = REPOSITORY / "recipe"
BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"

LINKED = "import sys; sys.path.insert(0, 'recipe')\nfrom syncopate.settings import configure\n"
LOCAL_ENGINE = """
def engine():
    from sisyphus.localengine import LocalEngine
    return LocalEngine(cpu=4)
"""
SELECTOR = """
def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine
    from sisyphus.simple_linux_utility_for_resource_management_engine import (
        SimpleLinuxUtilityForResourceManagementEngine as Slurm,
    )
    return EngineSelector({"short": LocalEngine(cpu=2), "long": Slurm(default_rqmt={"mem": 1})}, default_engine="long")
"""
OLD_I6_CORE = """
class ReturnnTrainingJob:
    def __init__(self, returnn_config, *, log_verbosity=3, device="gpu", num_epochs=1, save_interval=1,
                 keep_epochs=None, horovod_num_processes=None, returnn_python_exe=None, returnn_root=None):
        pass
    def create_returnn_config(cls, returnn_config, log_verbosity, device, num_epochs, save_interval, keep_epochs,
                              horovod_num_processes): ...
    def _relink(self, src, dst): ...
    def _get_run_cmd(self): ...
    def create_files(self): ...
    def plot(self): ...
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """An environment that sees all that is installed, but neither syncopate nor i6_core, and has no programs."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    installed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(installed) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


@pytest.fixture
def setup(tmp_path):
    """A user's folder: own i6_core, syncopate linked beside it, no settings yet."""
    folder = tmp_path / "setup"
    (folder / "recipe").mkdir(parents=True)
    (folder / "work").mkdir()
    for name in ("syncopate", "i6_core"):
        (folder / "recipe" / name).symlink_to(RECIPE / name)
    return folder


@pytest.fixture
def doctor(setup, bare_python, tmp_path):
    """Runs the command there: its exit code, and state and text by the name of the check."""

    def run(*arguments, settings=None, python=bare_python, pythonpath=(), programs=("black",)):
        if settings is not None:
            (setup / "settings.py").write_text(settings, encoding="utf-8")
        path = tmp_path / "programs"
        path.mkdir(exist_ok=True)
        for name in programs:
            if not (path / name).exists():
                (path / name).symlink_to("/bin/true")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SYNCOPATE_", "SIS_"))}
        done = subprocess.run(
            [str(python), "-m", "syncopate", "doctor", *map(str, arguments)],
            cwd=setup,
            env={
                **kept,
                "PYTHONPATH": os.pathsep.join([*map(str, pythonpath), "recipe"]),
                "PATH": f"{path}:/usr/bin:/bin",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr == ""
        lines = re.findall(r"^(ok|note|lacking) +([^:]+): (.*)$", done.stdout, flags=re.MULTILINE)
        assert len(lines) == len(done.stdout.splitlines())
        assert not list((setup / "work").iterdir())
        return done.returncode, {name: (state, text) for state, name, text in lines}

    return run


def lacking(found):
    return [name for name, (state, _) in found.items() if state == "lacking"]


@pytest.mark.needs_sisyphus
def test_a_setup_that_lacks_nothing(setup, doctor, bare_python):
    (setup / "configs").mkdir()
    code, found = doctor(settings=LINKED + LOCAL_ENGINE + "configure(globals(), engine='local')")
    assert (code, {state for state, _ in found.values()}) == (0, {"ok"}), found
    assert list(found) == [
        *("python", "Sisyphus", "i6_core", "packages", "black"),
        *("settings.py", "environment", "import paths", "engine"),
        *("training python", "syncopate there", "torch there"),
    ]
    assert found["python"][1].endswith(f"{bare_python}, syncopate {__version__} in {setup / 'recipe' / 'syncopate'}")
    assert found["i6_core"][1] == (
        f"{setup / 'recipe' / 'i6_core'}; commits from e21acbd of 2025-11-27 to 81d2a06 of 2026-07-17 are known to do"
    )
    assert found["import paths"][1] == "config, recipe, recipe/, configs"
    assert found["engine"][1] == "LocalEngine with 4 cpu, 0 gpu can run a training on several nodes"
    assert found["syncopate there"][1] == f"found in {RECIPE / 'syncopate'}"
    assert found["torch there"][1].startswith("backends gloo")


@pytest.mark.needs_sisyphus
def test_a_folder_without_settings_is_no_failure(doctor, setup):
    code, found = doctor("--no-torch")
    assert code == 0
    assert found["settings.py"] == ("note", f"no settings.py here ({setup}), where sis would look for it")
    assert not {"environment", "engine", "torch there"} & set(found)


@pytest.mark.needs_sisyphus
def test_settings_that_lack_everything(setup, doctor):
    (setup / "configs").mkdir()
    code, found = doctor("--no-torch", settings=LOCAL_ENGINE)
    assert (code, lacking(found)) == (1, ["engine"])
    assert found["engine"][1] == (
        "a training on 2 nodes: it asks for multi_node_slots=2, and LocalEngine refuses jobs on several nodes; call"
        ' configure(globals(), engine="local") of syncopate.settings at the end of settings.py to emulate them on this'
        " host, or give trainings a SLURM engine"
    )
    assert found["environment"] == (
        "note",
        "DEFAULT_ENVIRONMENT_KEEP has no SLURMD_NODENAME, no SLURM_ARRAY_JOB_ID, no SLURM_ARRAY_TASK_COUNT and 37 more,"
        " which trainings that Syncopate does not start would lack; end settings.py with configure(globals()) of"
        " syncopate.settings",
    )
    assert found["import paths"] == (
        "note",
        "there is a folder configs, but IMPORT_PATHS is ['config', 'recipe', 'recipe/'], so that `sis manager"
        " configs/X.py` finds no module configs; end settings.py with configure(globals()) of syncopate.settings",
    )


@pytest.mark.needs_sisyphus
def test_settings_of_a_cluster(doctor):
    able = "SimpleLinuxUtilityForResourceManagementEngine can run a training on several nodes"
    settings = LINKED + SELECTOR + "DEFAULT_ENVIRONMENT_SET['PATH'] = '/no/such'\n"
    programs = ("black", "sbatch", "squeue")
    code, found = doctor("--no-torch", settings=settings + "configure(globals())", programs=programs)
    assert code == 0
    assert found["engine"] == (
        "note",
        f"{able}; check_engine_limits is not that of Syncopate, so that a time below a minute is no limit, and SLURM"
        ' 22.05 or later may give a task one CPU; end settings.py with configure(globals(), engine="slurm") of'
        " syncopate.settings; squeue is not on the PATH of DEFAULT_ENVIRONMENT_SET, so that RETURNN cannot see how much"
        " time is left",
    )
    code, found = doctor("--no-torch", settings=settings + "configure(globals(), engine='slurm')", programs=programs)
    assert (code, found["engine"]) == (0, ("ok", able))
    code, found = doctor("--no-torch", settings=LINKED + SELECTOR + "configure(globals(), engine='local')")
    assert (code, lacking(found)) == (1, ["engine"])
    assert "SYNCOPATE_ENGINE is 'local', which starts all 2 nodes on one host" in found["engine"][1]


@pytest.mark.needs_sisyphus
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("x = 1\ny = no_such_name\n", "NameError: name 'no_such_name' is not defined (settings.py, line 2)"),
        ("raise SystemExit('not on this host')", "SystemExit: not on this host (settings.py, line 1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (settings.py, line 1)"),
        (
            LINKED + "configure(globals(), engine='lokal')",
            "DeclarationError: configure: engine must be one of ['local', 'slurm'] or None, got 'lokal' (did you mean"
            " 'local'?) (settings.py, line 3)",
        ),
    ],
)
def test_settings_that_cannot_be_loaded(doctor, settings, said):
    code, found = doctor("--no-torch", settings=settings)
    assert (code, lacking(found)) == (1, ["settings.py"])
    assert found["settings.py"][1] == f"Sisyphus cannot load it: {said}"


@pytest.mark.needs_sisyphus
def test_settings_that_end_the_process_or_have_no_engine(doctor):
    code, found = doctor("--no-torch", settings="import os; print('bye', flush=True); os._exit(3)")
    assert (code, lacking(found)) == (1, ["settings.py"])
    assert found["settings.py"][1].endswith("ended with exit code 3 and no answer; its last words were 'bye'")
    code, found = doctor("--no-torch", settings="def engine(): return 1 / 0")
    assert (code, lacking(found)) == (1, ["engine"])
    assert found["engine"][1] == "engine() fails: ZeroDivisionError: division by zero (settings.py, line 1)"


@pytest.mark.needs_sisyphus
def test_black_that_is_not_there(doctor, bare_python):
    code, found = doctor("--no-torch", programs=())
    assert (code, lacking(found)) == (1, ["black"])
    assert found["black"][1] == (
        "black is neither on the PATH nor beside this python, and i6_core's jobs format each RETURNN config with it;"
        f" run {bare_python} -m pip install black"
    )


@pytest.mark.needs_sisyphus
def test_black_beside_a_python_that_is_not_activated(doctor, bare_python):
    beside = bare_python.with_name("black")
    beside.touch()
    try:
        code, found = doctor("--no-torch", programs=())
    finally:
        beside.unlink()
    assert code == 0
    assert found["black"] == (
        "note",
        f"{beside} is not on the PATH, where i6_core's ReturnnConfig looks for it. Syncopate's trainings do without;"
        f" for other jobs run export PATH={beside.parent}:$PATH before sis",
    )


@pytest.mark.needs_sisyphus
def test_an_old_i6_core(setup, doctor):
    folder = setup / "recipe" / "i6_core"
    folder.unlink()
    (folder / "returnn").mkdir(parents=True)
    for file in ("__init__.py", "returnn/__init__.py"):
        (folder / file).write_text("raise SystemExit('imported')")
    (folder / "returnn" / "training.py").write_text(OLD_I6_CORE)
    for file in ("returnn/config.py", "util.py"):
        shutil.copy(RECIPE / "i6_core" / file, folder / file)
    code, found = doctor("--no-torch")
    assert (code, lacking(found)) == (1, ["i6_core"])
    assert found["i6_core"][1] == (
        f"i6_core in {folder} is not as Syncopate knows it, it lacks the arguments distributed_launch_cmd,"
        " multi_node_slots of ReturnnTrainingJob.__init__ in returnn/training.py. Commits from e21acbd of 2025-11-27 to"
        f" 81d2a06 of 2026-07-17 will do; run git -C {folder} fetch && git -C {folder} checkout 81d2a06"
    )
    assert doctor("--sisyphus", pythonpath=[setup / "recipe"])[0] == 0


@pytest.mark.needs_sisyphus
def test_an_i6_core_that_hides_the_users(setup, doctor):
    """As after pip install -e of a clone that has its submodule."""
    (setup / "recipe" / "i6_core").unlink()
    (setup / "recipe" / "i6_core" / "returnn").mkdir(parents=True)
    code, found = doctor("--no-torch", pythonpath=[RECIPE])
    assert code == 0
    state, text = found["i6_core"]
    assert state == "note"
    assert text.startswith(f"{RECIPE / 'i6_core'} is imported and hides {setup / 'recipe' / 'i6_core'}, since Python")


def test_foreign_sisyphus_and_no_i6_core(tmp_path, setup, doctor):
    (tmp_path / "pypi" / "sisyphus").mkdir(parents=True)
    (tmp_path / "pypi" / "sisyphus" / "__init__.py").write_text("raise SystemExit('imported')")
    (setup / "recipe" / "i6_core").unlink()
    code, found = doctor("--no-torch", pythonpath=[tmp_path / "pypi"], settings=LOCAL_ENGINE)
    assert code == 1
    assert lacking(found)[:2] == ["Sisyphus", "i6_core"]
    assert "is PyPI's project of that name, which is unrelated" in found["Sisyphus"][1]
    assert found["settings.py"] == ("note", "not looked at, as there is no Sisyphus")
    code, found = doctor("--sisyphus", pythonpath=[tmp_path / "pypi"])
    assert (code, list(found), lacking(found)) == (1, ["Sisyphus", "i6_core"], ["Sisyphus", "i6_core"])


def test_packages_of_i6_core_that_are_missing(doctor, tmp_path):
    """A python without site-packages."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    code, found = doctor("--no-torch", "--python", sys.executable, python=python)
    assert code == 1
    assert found["packages"][1] == (
        f"i6_core imports h5py, librosa, matplotlib, numpy, soundfile, tree, which {sys.executable} does not have; run"
        f" {sys.executable} -m pip install h5py librosa matplotlib numpy soundfile dm-tree"
    )


@pytest.mark.needs_sisyphus
def test_the_training_python_of_the_settings_is_asked(doctor, tmp_path):
    python = write_python(tmp_path / "train.sh")
    settings = f"RETURNN_PYTHON_EXE = {str(python)!r}\n"
    code, found = doctor("--no-torch", settings=SELECTOR + settings)
    assert code == 0
    assert found["training python"][1].endswith(f"{python} from RETURNN_PYTHON_EXE")
    code, found = doctor("--no-torch", settings=SELECTOR + settings + "RETURNN_ROOT = '/no/such/folder'")
    assert (code, lacking(found)) == (1, ["training python"])
    assert (
        f"training python '{python}': sees no checkout of RETURNN in '/no/such/folder'" in found["training python"][1]
    )
    code, found = doctor("--no-torch", "--python", "/no/such/python")
    assert (code, lacking(found)) == (1, ["training python"])
    assert found["training python"][1].startswith("training python '/no/such/python': does not exist")
    assert "syncopate there" not in found


def script(path, before):
    """A wrapper around a python that has nothing installed."""
    path.write_text(f'#!/bin/sh\n{before}\nexec {BASE_PYTHON} -S "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.needs_sisyphus
def test_a_container_that_does_not_see_the_package(doctor, setup, tmp_path):
    """By the variable that is not passed on; then it is, and the same python sees it."""
    hiding = script(tmp_path / "hiding.sh", "unset PYTHONPATH")
    code, found = doctor("--no-torch", "--python", hiding)
    assert code == 1
    assert found["syncopate there"] == (
        "lacking",
        f"{hiding} does not get PYTHONPATH as it was set; if it is a script, let it pass the variable on (apptainer and"
        " singularity do so without --cleanenv, docker with -e PYTHONPATH)",
    )
    showing = script(tmp_path / "showing.sh", "echo entering the container")
    assert doctor("--no-torch", "--python", showing)[1]["syncopate there"][0] == "ok"
    broken = script(tmp_path / "broken.sh", "echo no such image >&2; exit 1")
    said = doctor("--no-torch", "--python", broken)[1]["syncopate there"]
    assert said == ("lacking", f"{broken} ended with exit code 1 and no answer; its last words were 'no such image'")


def test_why_a_package_is_not_seen(tmp_path):
    package, jobs = tmp_path / "recipe" / "syncopate", tmp_path / "work"
    nothing = {"place": None, "version": None, "error": None}
    unseen = {**nothing, "passed_on": True, "sees_folder": False, "sees_package": False}
    unlinked = {**unseen, "sees_folder": True}

    def why(found):
        return why_not_seen(found, python="c.sh", package=package, folder=jobs)

    assert why(unseen) == f"c.sh does not see {jobs}, where jobs run; if it enters a container, mount that folder"
    assert why(unlinked) == (
        f"c.sh does not see the package {package}; if it enters a container, mount {package.parent} there under the"
        " same path"
    )
    assert why({**unlinked, "place": str(package), "version": "0.0.1"}) is None
    assert why({**unseen, "passed_on": False, "place": "/opt/syncopate", "version": __version__}) is None
    assert why({**unlinked, "place": "/opt/syncopate", "version": "0.0.1"}) == (
        f"c.sh does not see the package {package}, and finds syncopate 0.0.1 in /opt/syncopate; if it enters a"
        f" container, mount {package.parent} there under the same path"
    )
    assert why({**unlinked, "error": "SyntaxError: invalid syntax"}) == (
        "c.sh fails to load syncopate (SyntaxError: invalid syntax); it needs Python 3.11 or newer"
    )


TORCH = """
class cuda:
    def device_count(): return {num_gpus}
"""
DISTRIBUTED = """
def is_available(): return True
def is_gloo_available(): return True
def is_nccl_available(): return {nccl}
"""


@pytest.mark.parametrize(
    ("nccl", "num_gpus", "state", "said"),
    [
        (True, 4, "ok", "backends gloo, nccl; 4 GPUs visible here"),
        (
            True,
            0,
            "note",
            "backends gloo, nccl; 0 GPUs visible here, which is right only if trainings run on other hosts",
        ),
        (
            False,
            0,
            "lacking",
            "torch of {} lacks the backend nccl, which ranks on the gpu need (backends gloo; 0 GPUs visible here);"
            " install a build with it, see pytorch.org",
        ),
    ],
)
def test_backends_and_gpus_of_the_training_python(doctor, tmp_path, nccl, num_gpus, state, said):
    """A torch without these answers is not to be had on every host."""
    torch = tmp_path / "stub" / "torch"
    (torch / "distributed").mkdir(parents=True)
    (torch / "__init__.py").write_text(TORCH.format(num_gpus=num_gpus))
    (torch / "distributed" / "__init__.py").write_text(DISTRIBUTED.format(nccl=nccl))
    (torch / "version.py").write_text("__version__ = '2.9.9'\n")
    python = write_python(tmp_path / "train.sh", pythonpath=tmp_path / "stub")
    _, found = doctor("--python", python, "--device", "gpu")
    assert found["torch there"] == (state, said.format(python))


@pytest.mark.needs_sisyphus
def test_looking_for_sisyphus_alone_is_quick():
    """Scripts ask it each time. In CPU time, which other tests do not lengthen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "syncopate", "doctor", "--sisyphus"], capture_output=True, text=True, cwd=REPOSITORY
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stdout) == (0, "ok       Sisyphus: found\nok       i6_core: found\n")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_what_is_missing_is_named_and_nothing_is_imported(tmp_path):
    (tmp_path / "util.py").write_text("raise SystemExit('imported')\ndef create_executable(path): ...\n")
    assert missing(tmp_path, I6_CORE)[0] == "ReturnnTrainingJob.__init__ in returnn/training.py"
    assert missing(tmp_path, I6_CORE)[-1] == "instanciate_delayed_copy in util.py"
    assert len(missing(tmp_path, I6_CORE)) == len(I6_CORE) - 1
    assert len(missing(tmp_path, SISYPHUS)) == len(SISYPHUS)
    (tmp_path / "util.py").write_text("def f(:\n")
    with pytest.raises(ComponentError, match=r"util\.py is no Python \(line 1: invalid syntax\); check it out anew"):
        missing(tmp_path, I6_CORE)


@pytest.mark.needs_sisyphus
def test_the_real_ones_have_all_and_any_renaming_is_noticed(tmp_path):
    for require, needed in (
        (signature.require_sisyphus_signature, SISYPHUS),
        (signature.require_i6_core_signature, I6_CORE),
    ):
        folder = require()
        assert missing(folder, needed) == []
        for one in needed:
            changed = tmp_path / one.file
            changed.parent.mkdir(exist_ok=True)
            name = one.name.split(".")[-1]
            source = (folder / one.file).read_text(encoding="utf-8")
            changed.write_text(re.sub(rf"\b{name}\b", f"{name}_renamed", source), encoding="utf-8")
            assert missing(tmp_path, [one]) == [f"{one.name} in {one.file}"]


@pytest.mark.needs_sisyphus
def test_whatever_is_imported_from_i6_core_is_looked_for():
    looked_for = {(one.file.removesuffix(".py").replace("/", "."), one.name.split(".")[0]) for one in I6_CORE}
    imported = {
        (str(node.module).removeprefix("i6_core."), alias.name)
        for path in (RECIPE / "syncopate").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("i6_core")
        for alias in node.names
    }
    assert len(imported) >= 3
    assert imported <= looked_for


@pytest.mark.needs_sisyphus
def test_the_packages_are_those_that_i6_core_imports(python, setup_folder):
    done = python(
        "import json, sys, sisyphus, i6_core.returnn\n"
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith('i6_core.') and m.__file__]))",
        cwd=setup_folder,
    )
    imported = set()
    for path in json.loads(done.stdout.splitlines()[-1]):
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).split(".")[0])
    # RETURNN is imported by jobs that are no trainings.
    assert imported - set(sys.stdlib_module_names) - {"sisyphus", "i6_core", "returnn"} == set(I6_CORE_PACKAGES)
