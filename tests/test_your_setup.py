"""
A user's own setup, as docs/your_setup.md changes it: own i6_core, settings, recipe, and an environment for training
that knows nothing of us. The page's Python is what runs here.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.returnn_wheels import returnn_checkout, write_python
from tests.test_docs import REPOSITORY, blocks

pytestmark = [pytest.mark.needs_sisyphus, pytest.mark.timeout(900)]

PAGE = REPOSITORY / "docs" / "your_setup.md"
SETTINGS, HELPER, SWEEP = blocks(PAGE, "python")
ROWS = ["ddp", "psync10", "hierarchical", "single"]

BEFORE = """
from types import SimpleNamespace
from our_asr.train import train

GRAD = {"reduce_type": "grad", "options": {"broadcast_buffers": False}}
PARAM = {"reduce_type": "param", "param_sync_step": 10, "sync_at_epoch_end": True, "sync_complete_frac": True}

def job(name, options):
    options = {**options, "backend": "gloo", "dataset_distribution": "shard"}
    kwargs = {"horovod_num_processes": 2, "distributed_launch_cmd": "torchrun"}
    sync = SimpleNamespace(config_updates={"torch_distributed": options}, training_kwargs=kwargs)
    return train(name, sync=sync, num_epochs=2, base_lr=0.005).get_training_job()

def finished():
    from sisyphus import tk
    tk.register_output("before/finished", job("finished", GRAD).out_learning_rates)

def half():
    from sisyphus import tk
    tk.register_output("before/half", job("half", PARAM).out_learning_rates)
"""

PATHS = """
from sisyphus import tk
from sisyphus.delayed_ops import DelayedFormat

RECIPE = {recipe!r}
RETURNN_PYTHON = tk.Path({python!r}, hash_overwrite="RETURNN_PYTHON")
RETURNN_ROOT = tk.Path({root!r}, hash_overwrite="RETURNN_ROOT")
MODEL_IMPORT = [
    "import sys",
    DelayedFormat("sys.path.append('{{}}')", tk.Path(RECIPE, hash_overwrite="RECIPE")),
    "from syncopate.tasks.char_lm.model import get_model, train_step",
]
"""


def environment(folder: Path, packages: list[str]) -> Path:
    """An environment of its own that sees installed packages, but not what is installed for development."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text("\n".join(packages) + "\n", encoding="utf-8")
    python = folder / "bin" / "python"
    script = Path(sys.executable).with_name("sis")
    if script.exists():  # as pip would have put it there
        lines = script.read_text(encoding="utf-8").splitlines()
        (folder / "bin" / "sis").write_text("\n".join([f"#!{python}", *lines[1:]]) + "\n", encoding="utf-8")
        (folder / "bin" / "sis").chmod(0o755)
    return python


class UserSetup:
    """A folder with a user's own files."""

    def __init__(self, folder: Path, *, python: Path, train_python: Path, returnn_root: Path):
        self.folder = folder
        self.python = python
        shutil.copytree(REPOSITORY / "tests" / "your_setup", folder)
        recipe = folder / "recipe"
        shutil.copytree(
            REPOSITORY / "recipe" / "i6_core", recipe / "i6_core", ignore=shutil.ignore_patterns(".git", "tests")
        )
        (recipe / "syncopate").symlink_to(REPOSITORY / "recipe" / "syncopate")
        paths = PATHS.format(recipe=str(recipe), python=str(train_python), root=str(returnn_root))
        (recipe / "our_asr" / "paths.py").write_text(paths, encoding="utf-8")
        (recipe / "our_asr" / "train.py").write_text(HELPER, encoding="utf-8")
        (folder / "config").mkdir()
        (folder / "config" / "__init__.py").touch()
        (folder / "config" / "before.py").write_text(BEFORE, encoding="utf-8")
        (folder / "config" / "sync_sweep.py").write_text(SWEEP, encoding="utf-8")
        (folder / "work").mkdir()

    def adopt(self) -> None:
        """The lines for settings.py."""
        with open(self.folder / "settings.py", "a", encoding="utf-8") as settings:
            settings.write(SETTINGS)

    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "CI")}
        # As in an activated environment, where i6_core finds black.
        path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
        return {**kept, "PYTHONPATH": "recipe", "PATH": path}

    def run(self, *command: str, limit_s: float = 400) -> str:
        done = subprocess.run(
            [str(self.python), *command],
            cwd=self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )
        return done.stdout

    def sis(self, config: str) -> str:
        """A real manager, without a terminal."""
        return self.run(str(self.python.with_name("sis")), "manager", "-r", config)

    def trainings(self) -> dict[str, Path]:
        """Folders of the jobs that the helper made, by their ids."""
        return {path.name: path for path in (self.folder / "work/i6_core/returnn/training").glob("*")}


@pytest.fixture(scope="module")
def make_setup(tmp_path_factory):
    root = tmp_path_factory.mktemp("users")
    installed = [path for path in sys.path if path.endswith("site-packages")]
    python = environment(root / "sis_env", installed)
    train_python = write_python(
        root / "train_python",
        before="export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1",
        python=environment(root / "train_env", installed),
    )
    checkout = returnn_checkout(tmp_path_factory.getbasetemp())
    return lambda name: UserSetup(root / name, python=python, train_python=train_python, returnn_root=checkout)


@pytest.fixture(scope="module")
def begun(make_setup):
    """One training is finished before we come."""
    setup = make_setup("theirs")
    log = setup.sis("config.before.finished")
    (trained,) = setup.trainings()
    assert (setup.trainings()[trained] / "finished.run.1").exists(), log
    return {"setup": setup, "trained": trained, "folder": setup.trainings()[trained]}


@pytest.fixture(scope="module")
def finished(begun):
    """One more is killed after its first epoch; then the page is followed, and the sweep runs to the table."""
    setup, trained = begun["setup"], begun["trained"]
    half = train_half(setup)
    before = {name: contents(setup.trainings()[name]) for name in (trained, half)}
    others = setup.folder / "work_of_others" / "training"
    shutil.copytree(setup.trainings()[trained] / "output", others / "output")
    setup.adopt()
    log = setup.sis("config/sync_sweep.py")
    return {"setup": setup, "trained": trained, "half": half, "before": before, "log": log}


def train_half(setup: UserSetup) -> str:
    """Kills a training of theirs, and its manager, once the first epoch is saved."""
    known = set(setup.trainings())
    with open(setup.folder / "half.log", "wb") as log:
        manager = subprocess.Popen(
            [str(setup.python.with_name("sis")), "manager", "-r", "config.before.half"],
            cwd=setup.folder,
            env=setup.environ(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + 200
    saved: list[Path] = []
    while not saved and time.monotonic() < deadline:
        time.sleep(0.1)
        new = [path for name, path in setup.trainings().items() if name not in known]
        saved = [path for folder in new for path in folder.glob("output/models/epoch.001.opt.pt")]
    assert saved, (setup.folder / "half.log").read_text()
    os.killpg(manager.pid, signal.SIGKILL)
    manager.wait()
    folder = saved[0].parents[2]
    kill_all_of(folder)
    return folder.name


def kill_all_of(folder: Path) -> None:
    """Every process whose command names the folder, or whose working directory is in it."""
    for _ in range(5):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                cwd = os.readlink(process / "cwd")
            except OSError:
                continue
            if (folder.name in command or cwd.startswith(str(folder))) and int(process.name) != os.getpid():
                try:
                    os.kill(int(process.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        time.sleep(0.2)


def contents(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.glob("output/models/*.pt")}


def table(setup: UserSetup) -> dict[str, dict[str, str]]:
    rows = csv.DictReader((setup.folder / "output/our_asr/sync/table/table.csv").open(encoding="utf-8"))
    return {row["name"]: row for row in rows}


def test_the_helpers_sweep_runs_to_the_table(finished):
    assert (finished["setup"].folder / "output/our_asr/sync/table").exists(), finished["log"][-6000:]
    rows = table(finished["setup"])
    assert list(rows) == [*ROWS, "years ago"]
    for name in ROWS:
        assert rows[name]["state"] == "finished"
        assert rows[name]["trials"] == "2"
        assert 0 < float(rows[name]["score"]) < 2.2  # 9 symbols at random: ln 9


def test_a_recognition_of_the_users_own_is_a_column(finished):
    rows = table(finished["setup"])
    assert 0 < float(rows["psync10"]["score:dev error"]) < 90
    assert rows["ddp"]["score:dev error"] == ""


def test_ids_are_those_of_the_helper_without_us(finished):
    """What was trained before is in the table and was not trained again; what was half trained went on."""
    setup = finished["setup"]
    aliases = {path.name: path.resolve().name for path in (setup.folder / "alias/our_asr/sync").iterdir()}
    assert aliases["ddp,base_lr=0.005"] == finished["trained"]
    assert aliases["psync10,base_lr=0.005"] == finished["half"]
    assert contents(setup.trainings()[finished["trained"]]) == finished["before"][finished["trained"]]
    now = contents(setup.trainings()[finished["half"]])
    first = finished["before"][finished["half"]]
    assert now["output/models/epoch.001.pt"] == first["output/models/epoch.001.pt"]
    assert "output/models/epoch.002.pt" in now
    assert len(setup.trainings()) == 2 * len(ROWS)


def test_a_half_trained_job_is_adapted(finished):
    folder = finished["setup"].trainings()[finished["half"]]
    assert "syncopate.launch.rank" in (folder / "work" / "rnn.sh").read_text()
    assert list(folder.glob("logs/*/ranks/rank1.json"))
    assert "use_horovod = True" in (folder / "output" / "returnn.config").read_text()


def test_an_existing_training_is_read_and_not_scheduled(finished):
    row = table(finished["setup"])["years ago"]
    assert float(row["score"]) > 0
    assert row["data_passes"] == ""


def test_compare_and_doctor_in_the_users_folder(finished):
    setup = finished["setup"]
    shown = setup.run("-m", "syncopate", "compare", "output/our_asr/sync")
    assert all(name in shown for name in [*ROWS, "years ago"])
    assert "dev error" in shown
    said = setup.run("-m", "syncopate", "doctor")
    assert "settings" in said
    assert "Sisyphus" in said


def test_nothing_that_is_trained_changes_by_adapting(begun, make_setup):
    """
    K03: bit for bit the training that i6_core itself made, on one node; with dropout and a data worker. The number of
    threads is held: i6_core gives each rank all CPUs of the node, we give it its share, and on a CPU that alone changes
    last bits.
    """
    torch = pytest.importorskip("torch")
    setup = make_setup("adapted")
    setup.adopt()
    (setup.folder / "config" / "sync_sweep.py").write_text(
        SWEEP.replace("for base_lr in (0.005, 0.01)", "for base_lr in (0.005,)").split("        run = ")[0]
        + "    sweep.register()\n",
        encoding="utf-8",
    )
    log = setup.sis("config/sync_sweep.py")
    ((name, folder),) = setup.trainings().items()
    plain = begun["folder"]
    assert name == begun["trained"]
    for file in ("epoch.001.pt", "epoch.002.pt", "epoch.002.opt.pt"):
        assert (folder / "output" / "models" / file).exists(), log[-4000:]
        ours = torch.load(folder / "output" / "models" / file, weights_only=False)
        theirs = torch.load(plain / "output" / "models" / file, weights_only=False)
        assert_equal(torch, ours, theirs)


NO_PROLOG = """from i6_core.returnn import ReturnnConfigV2, ReturnnTrainingJob

from syncopate.tasks.char_lm.model import get_model, train_step


class NoPrologConfig(ReturnnConfigV2):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        assert not self.python_prolog, "our configs hold no code"
"""


@pytest.mark.parametrize("config_class", [pytest.param("ReturnnConfigV2", marks=pytest.mark.full), "NoPrologConfig"])
def test_the_same_through_v2_and_a_class_that_refuses_a_prolog(make_setup, config_class):
    """There the model's functions are values of the config."""
    setup = make_setup(config_class)
    setup.adopt()
    made = "ReturnnConfig(config, {"
    with_functions = f'{config_class}({{**config, "get_model": get_model, "train_step": train_step}}, {{'
    helper = HELPER.replace("from i6_core.returnn import ReturnnConfig, ReturnnTrainingJob\n", NO_PROLOG)
    helper = helper.replace(made, with_functions).replace(", python_prolog=paths.MODEL_IMPORT", "")
    assert config_class in helper.split("job = ")[1]
    (setup.folder / "recipe" / "our_asr" / "train.py").write_text(helper, encoding="utf-8")
    sweep = SWEEP.replace("(0.005, 0.01)", "(0.005,)").split("        sweep.add(\n")[0]
    sweep = "\n".join(line for line in sweep.splitlines() if "run.add_score" not in line)
    (setup.folder / "config" / "sync_sweep.py").write_text(f"{sweep}\n    sweep.register()\n", encoding="utf-8")
    log = setup.sis("config/sync_sweep.py")
    rows = csv.DictReader((setup.folder / "output/our_asr/sync/table/table.csv").open(encoding="utf-8"))
    states = {row["name"]: row["state"] for row in rows}
    assert states == {"ddp": "finished", "psync10": "finished"}, log[-4000:]


def assert_equal(torch, ours, theirs) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for key in ours:
            if key not in ("effective_learning_rate", "returnn_version", "torch_version"):
                assert_equal(torch, ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(torch, one, other)
    else:
        assert ours == theirs
