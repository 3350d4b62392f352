"""Asking pythons what they have: K08, with the real older RETURNN."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncopate.errors import ClusterError, ComponentError
from syncopate.launch import components
from syncopate.launch.components import (
    TESTED_RETURNN,
    TrainingPython,
    check_training_python,
    own_training_python,
    probe_training_python,
    returnn_features,
)
from syncopate.launch.versions import CONTEXT_METHODS, is_older
from tests.returnn_wheels import OLD_RETURNN, old_returnn_target, returnn_checkout, write_python

RECIPE = Path(components.__file__).parents[2]


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def found() -> TrainingPython:
    return probe_training_python(sys.executable)


def installed_source() -> str:
    spec = importlib.util.find_spec("returnn")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "torch" / "distributed.py").read_text(encoding="utf-8")


def error_of(python: str | Path, **options: object) -> str:
    with pytest.raises(ComponentError) as caught:
        probe_training_python(python, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_our_own_python_can_train(found: TrainingPython) -> None:
    assert found.python == sys.executable
    assert found.returnn_root is None
    assert found.python_version == ".".join(map(str, sys.version_info[:3]))
    assert found.returnn_version == importlib.metadata.version("returnn") == TESTED_RETURNN
    assert found.torch_version == importlib.metadata.version("torch")
    assert (found.has_sync_levels, found.has_cpu_training) == (True, True)
    assert (found.unfit_methods, found.missing_packages) == ((), ())
    assert os.path.isfile(os.path.join(found.returnn_path, "torch", "distributed.py"))
    for device in ("cpu", "gpu"):
        check_training_python(found, device=device)


def test_asking_from_inside_gives_the_same_answer(found: TrainingPython) -> None:
    assert own_training_python(python=sys.executable) == found


def test_k08_an_older_returnn_is_refused_with_both_versions(tmp_path: Path, downloads: Path) -> None:
    python = write_python(tmp_path / "python", pythonpath=old_returnn_target(downloads))
    old = probe_training_python(python)
    assert old.returnn_version == OLD_RETURNN
    assert (old.has_sync_levels, old.has_cpu_training) == (False, False)
    with pytest.raises(ComponentError) as caught:
        check_training_python(old, device="cpu")
    assert str(caught.value) == (
        f"training python '{python}': RETURNN 1.20260822.41010 in {old.returnn_path} is too old for a training on cpu:"
        ' it lacks synchronisation levels (option "sync" of torch_distributed); training on the CPU;'
        " DistributedContext's methods as Syncopate knows them"
        " (control_sync_levels(epoch_update_step_idx, update_step, world, no_data),"
        " step_after_param_update(module, optimizer, epoch_update_step_idx),"
        " step_after_epoch(module, optimizer, global_train_step), destroy_process_groups())."
        f" Syncopate is tested with RETURNN 1.20261022.211313: run {python} -m pip install 'returnn==1.20261022.211313'"
    )
    with pytest.raises(ComponentError, match="is too old for a training on gpu") as caught:
        check_training_python(old, device="gpu")
    assert "CPU" not in str(caught.value)


def test_k08_a_rank_can_refuse_it_in_its_first_second(downloads: Path) -> None:
    code = (
        "import sys, time; start = time.monotonic()\n"
        "from syncopate.launch.components import check_training_python, own_training_python\n"
        "try: check_training_python(own_training_python(python='P'), device='gpu')\n"
        "except Exception as exc: print(exc)\n"
        "assert 'torch' not in sys.modules and 'returnn' not in sys.modules\n"
        "print(time.monotonic() - start)"
    )
    path = os.pathsep.join([str(old_returnn_target(downloads)), str(RECIPE)])
    message, elapsed_s = run_python("-c", code, pythonpath=path)
    assert message.startswith("training python 'P': RETURNN 1.20260822.41010 in ")
    assert float(elapsed_s) < 1


def test_a_checkout_is_used_before_what_is_installed(downloads: Path, tmp_path: Path) -> None:
    checkout = returnn_checkout(downloads)
    python = write_python(tmp_path / "python", pythonpath=old_returnn_target(downloads))
    for interpreter in (sys.executable, python):
        found = probe_training_python(interpreter, returnn_root=checkout)
        assert (found.returnn_root, found.returnn_path) == (str(checkout), str(checkout / "returnn"))
        assert found.returnn_version == TESTED_RETURNN
        check_training_python(found, device="cpu")


def test_a_checkout_on_pythonpath_counts_and_not_the_wheel_beneath(downloads: Path, tmp_path: Path) -> None:
    python = write_python(tmp_path / "python", pythonpath=returnn_checkout(downloads))
    assert probe_training_python(python).returnn_path == str(returnn_checkout(downloads) / "returnn")


def test_the_remedy_for_an_old_checkout_is_to_update_it(tmp_path: Path, found: TrainingPython) -> None:
    root = make_checkout(tmp_path / "returnn.git", distributed="class DistributedContext:\n    pass\n")
    old = probe_training_python(sys.executable, returnn_root=root)
    with pytest.raises(
        ComponentError, match=rf"update the checkout \(git -C {root} pull\), or use the wheel of that version$"
    ):
        check_training_python(old, device="gpu")


def make_checkout(root: Path, *, distributed: str | None) -> Path:
    (root / "returnn" / "torch").mkdir(parents=True)
    (root / "rnn.py").touch()
    (root / "returnn" / "__init__.py").write_text("raise SystemExit('imported')")
    if distributed is not None:
        (root / "returnn" / "torch" / "distributed.py").write_text(distributed)
    return root


def test_the_version_of_a_git_checkout_is_its_commit_as_returnn_says_it(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "returnn", distributed="")
    assert probe_training_python(sys.executable, returnn_root=root).returnn_version == "checkout"
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    dates = {"GIT_AUTHOR_DATE": "2025-01-02T03:04:05+0100", "GIT_COMMITTER_DATE": "2026-03-04T05:06:07+0200"}
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert probe_training_python(sys.executable, returnn_root=root).returnn_version == "checkout"
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True, env={**os.environ, **dates})
    rev = subprocess.run([*git, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout
    version = probe_training_python(sys.executable, returnn_root=root).returnn_version
    assert version == f"1.20260304.50607+git.{rev.strip()}"
    assert is_older(version, than=TESTED_RETURNN)


def test_a_returnn_from_before_torch_is_too_old_and_no_crash(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "returnn", distributed=None)
    (root / "_setup_info_generated.py").write_text("version = '1.20210101.000001'\n")
    found = probe_training_python(sys.executable, returnn_root=root)
    assert found.returnn_version == "1.20210101.1"
    with pytest.raises(
        ComponentError, match=r"RETURNN 1\.20210101\.1 in .* is too old .* lacks synchronisation levels"
    ):
        check_training_python(found, device="gpu")


def test_a_broken_returnn_is_named(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "returnn", distributed="class DistributedContext(:\n")
    assert f"{root}/returnn/torch/distributed.py is no Python (line 1: invalid syntax)" in error_of(
        sys.executable, returnn_root=root
    )


def test_the_version_of_an_installed_returnn_is_what_pip_noted_beside_it(tmp_path: Path) -> None:
    (tmp_path / "returnn").mkdir()
    (tmp_path / "returnn" / "__init__.py").touch()
    python = write_python(tmp_path / "python", pythonpath=tmp_path)
    assert probe_training_python(python).returnn_version == "checkout"
    (tmp_path / "returnn-1.20250101.1.dist-info").mkdir()
    (tmp_path / "returnn-1.20250101.1.dist-info" / "METADATA").write_text("Name: returnn\nVersion: 1.20250101.1\n")
    assert probe_training_python(python).returnn_version == "1.20250101.1"


def test_neither_torch_nor_returnn_is_imported_and_it_is_quick(tmp_path: Path) -> None:
    for package in ("torch", "returnn", "tree", "numpy", "h5py"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '9.9.9+x'\n")
    (tmp_path / "returnn" / "_setup_info_generated.py").write_text("version = '1.20300101.010203'\n")
    (tmp_path / "returnn" / "torch").mkdir()
    (tmp_path / "returnn" / "torch" / "distributed.py").write_text(installed_source())
    python = write_python(tmp_path / "python", pythonpath=tmp_path)
    elapsed_s = []
    for _ in range(3):
        start = time.monotonic()
        found = probe_training_python(python)
        elapsed_s.append(time.monotonic() - start)
    assert (found.torch_version, found.returnn_version) == ("9.9.9+x", "1.20300101.10203")
    check_training_python(found, device="cpu")
    assert min(elapsed_s) < 1


def test_the_working_directory_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "returnn"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    found = probe_training_python(sys.executable)
    assert found.returnn_version == TESTED_RETURNN
    assert found.torch_version == importlib.metadata.version("torch")


def test_a_wrapper_may_print_what_it_likes(tmp_path: Path, found: TrainingPython) -> None:
    python = write_python(tmp_path / "python", before="set -x\necho INFO: mounting; printf 'no newline' >&2")
    assert probe_training_python(python) == dataclasses.replace(found, python=str(python))


def test_a_python_without_returnn_and_torch(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert error_of(bare) == (
        f"training python '{bare}': has no RETURNN; run {bare} -m pip install 'returnn=={TESTED_RETURNN}',"
        " or give the folder of a checkout"
    )
    root = make_checkout(tmp_path / "returnn", distributed=installed_source())
    found = probe_training_python(bare, returnn_root=root)
    assert found.torch_version is None
    assert found.missing_packages == ("dm-tree", "h5py", "numpy")
    with pytest.raises(ComponentError, match=rf"^training python '{bare}': has no torch; install PyTorch into it"):
        check_training_python(found, device="gpu")
    with pytest.raises(ComponentError) as caught:
        check_training_python(dataclasses.replace(found, torch_version="2.13.0"), device="gpu")
    assert str(caught.value) == (
        f"training python '{bare}': has no dm-tree, no h5py, no numpy, which RETURNN needs to train;"
        f" run {bare} -m pip install dm-tree h5py numpy"
    )


def test_a_folder_named_torch_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    root = make_checkout(tmp_path / "returnn.git", distributed="")
    assert probe_training_python(python, returnn_root=root).torch_version is None


def test_a_folder_without_rnn_py_is_no_checkout(tmp_path: Path, found: TrainingPython) -> None:
    site_packages = os.path.dirname(found.returnn_path)
    for root in (tmp_path / "nowhere", site_packages):
        assert error_of(sys.executable, returnn_root=root).startswith(
            f"training python '{sys.executable}': sees no checkout of RETURNN in '{root}', that is a folder with rnn.py"
            " and returnn/; give the folder of a checkout"
        )


@pytest.mark.parametrize("python", ["/nowhere/python", "no-such-python"])
def test_a_python_that_does_not_exist(python: str) -> None:
    assert error_of(python) == (
        f"training python '{python}': does not exist; give the interpreter that has RETURNN and torch, or a script that"
        " starts it"
    )


def test_a_python_that_may_not_be_executed(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n")
    for python in (path, tmp_path):
        assert error_of(python) == (
            f"training python '{python}': is no program that may be executed; run chmod +x {python}, or give the file"
            " and not its folder"
        )


@pytest.mark.parametrize("content", ['exec python "$@"\n', "#!/nowhere/sh\n"])
def test_a_script_whose_first_line_starts_nothing(tmp_path: Path, content: str) -> None:
    python = tmp_path / "python"
    python.write_text(content)
    python.chmod(0o755)
    message = error_of(python)
    assert message.startswith(f"training python '{python}': cannot be started (")
    assert message.endswith("the first line of a script must name an interpreter that exists, such as #!/bin/bash")


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    assert error_of("echo").startswith("training python 'echo': did not answer as a Python 3 does, its last words were")
    failing = write_python(tmp_path / "python", before="echo 'container image not found' >&2; exit 3")
    assert "its last words were 'container image not found'; give the interpreter that has RETURNN" in error_of(failing)


def is_alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_python_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    python = write_python(tmp_path / "python", before=f"sleep 300 & echo $! > {tmp_path}/pid; wait")
    start = time.monotonic()
    assert error_of(python, timeout_s=0.5) == (
        f"training python '{python}': did not answer within 0.5 s; try by hand whether it runs -c 'print(1)', and allow"
        " more time if its container or file system is that slow"
    )
    assert time.monotonic() - start < 10
    pid = (tmp_path / "pid").read_text().strip()
    deadline = time.monotonic() + 10  # it was killed, but a busy host may let it die a little later
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_old_python_is_refused(found: TrainingPython) -> None:
    with pytest.raises(
        ComponentError, match=r"is Python 3\.9\.18, too old for Syncopate, which .* needs 3\.11 or newer"
    ):
        check_training_python(dataclasses.replace(found, python_version="3.9.18"), device="gpu")


def test_the_cpu_is_needed_only_where_it_trains(found: TrainingPython) -> None:
    gpu_only = dataclasses.replace(found, has_cpu_training=False)
    check_training_python(gpu_only, device="gpu")
    with pytest.raises(ComponentError, match=r"does not fit for a training on cpu: it lacks training on the CPU\."):
        check_training_python(gpu_only, device="cpu")
    with pytest.raises(
        ClusterError, match=r"device must be one of \['gpu', 'cpu'\], got 'cpus' \(did you mean 'cpu'\?\)"
    ):
        check_training_python(found, device="cpus")


@pytest.mark.parametrize("method", CONTEXT_METHODS)
def test_a_method_that_was_renamed_or_has_other_arguments_is_unfit(method: str) -> None:
    source = installed_source()
    assert source.count(f"def {method}(") == 1
    renamed = returnn_features(source.replace(f"def {method}(", f"def renamed_{method}("))
    changed = returnn_features(source.replace(f"def {method}(", f"def {method}(a_new_one, "))
    for features in (renamed, changed):
        assert [unfit.split("(")[0] for unfit in features.unfit_methods] == [method]
        assert any(method in lack for lack in features.lacks(device="gpu"))


def test_features_go_by_what_the_source_does_not_by_what_it_mentions() -> None:
    source = installed_source()
    assert not returnn_features(source.replace('self._opts.get("sync", None)', "None")).has_sync_levels
    assert returnn_features(source.replace('self._opts.get("sync", None)', 'self._opts["sync"]')).has_sync_levels
    assert not returnn_features(source.replace('param.device.type == "cpu"', "False")).has_cpu_training
    mention = '"""sync cpu"""\nclass DistributedContext:\n    def control_sync_levels(self):\n        "sync and cpu"\n'
    assert not returnn_features(mention).has_sync_levels
    assert not returnn_features("").has_cpu_training


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("1.20260822.41010", True),
        ("1.20260822.041010+git.b46ff5f", True),
        ("1.20261022.211312", True),
        (TESTED_RETURNN, False),
        (TESTED_RETURNN + "+git.a6e5adc.dirty", False),
        ("1.20270101.0", False),
        ("checkout", False),
    ],
)
def test_versions_compare_by_number(version: str, older: bool) -> None:
    assert is_older(version, than=TESTED_RETURNN) is older


def run_python(*arguments: str, pythonpath: str | Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(pythonpath)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def ask_without_site_packages(call: str, folder: Path) -> list[str]:
    """:param folder: the only folder beside the standard library; syncopate is linked into it"""
    (folder / "syncopate").symlink_to(RECIPE / "syncopate")
    code = (
        f"import sys; from syncopate.launch.components import {call}\n"
        f"try: print({call}())\n"
        "except Exception as exc: print(type(exc).__name__, exc)\n"
        "assert 'sisyphus' not in sys.modules and 'i6_core' not in sys.modules"
    )
    return run_python("-S", "-c", code, pythonpath=folder)


@pytest.mark.parametrize("kind", ["package", "module"])
def test_pypi_sisyphus_is_foreign(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "sisyphus" / "__init__.py" if kind == "package" else tmp_path / "sisyphus.py"
    place.parent.mkdir(exist_ok=True)
    place.write_text("raise SystemExit('imported')")
    assert ask_without_site_packages("sisyphus_state", tmp_path) == ["foreign"]
    (tmp_path / "syncopate").unlink()
    assert ask_without_site_packages("require_sisyphus", tmp_path) == [
        f"ComponentError the package 'sisyphus' in {place} is PyPI's project of that name, which is unrelated to RWTH's"
        " workflow manager; run pip uninstall sisyphus, then pip install"
        " 'git+https://github.com/rwth-i6/sisyphus@21ba6848130e6e725470af600b0925b95d2c388a'"
    ]


@pytest.mark.parametrize("kind", ["nothing", "folder"])
def test_sisyphus_is_absent(tmp_path: Path, kind: str) -> None:
    if kind == "folder":  # of a clone: the package is one folder deeper
        (tmp_path / "sisyphus" / "sisyphus").mkdir(parents=True)
    assert ask_without_site_packages("sisyphus_state", tmp_path) == ["absent"]
    (tmp_path / "syncopate").unlink()
    assert ask_without_site_packages("require_sisyphus", tmp_path) == [
        "ComponentError Sisyphus is not installed; run pip install"
        " 'git+https://github.com/rwth-i6/sisyphus@21ba6848130e6e725470af600b0925b95d2c388a'"
        " (PyPI's 'sisyphus' is an unrelated project)"
    ]


@pytest.mark.needs_sisyphus
def test_the_real_sisyphus_and_i6_core() -> None:
    code = (
        "from syncopate.launch.components import *; require_sisyphus(); require_i6_core()\n"
        "print(sisyphus_state(), i6_core_state())"
    )
    assert run_python("-c", code, pythonpath=RECIPE) == ["rwth rwth"]


def test_i6_core_is_absent_while_its_submodule_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "i6_core").mkdir()
    assert ask_without_site_packages("i6_core_state", tmp_path) == ["absent"]
    (tmp_path / "syncopate").unlink()
    (message,) = ask_without_site_packages("require_i6_core", tmp_path)
    assert message == (
        "ComponentError i6_core is not found; in a clone of Syncopate run git submodule update --init recipe/i6_core,"
        " in your own setup clone https://github.com/rwth-i6/i6_core into recipe/, and start from the folder that holds"
        " recipe/"
    )


def test_another_i6_core_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "i6_core").mkdir()
    (tmp_path / "i6_core" / "__init__.py").touch()
    (message,) = ask_without_site_packages("require_i6_core", tmp_path)
    assert message.startswith(
        f"ComponentError the package 'i6_core' in {tmp_path}/i6_core/__init__.py is another one: it has"
    )
