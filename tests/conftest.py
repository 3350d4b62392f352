"""What tests share: a folder to run Sisyphus in, and the rule that nothing is skipped where it must not be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from syncopate.launch.components import i6_core_state, sisyphus_state

REPOSITORY = Path(__file__).resolve().parents[1]
HAS_SISYPHUS = sisyphus_state() == "rwth" and i6_core_state() == "rwth"


def pytest_collection_modifyitems(items):
    """Without GitHub there is no Sisyphus: its tests are skipped, but never in CI, where a missing one is a failure."""
    if HAS_SISYPHUS or os.environ.get("CI"):
        return
    for item in items:
        if "needs_sisyphus" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="Sisyphus or i6_core is not installed (see `make setup`)"))


@pytest.fixture(scope="session")
def make_setup_folder():
    """Makes folders as a user starts `sis` in: recipe, configs and settings of this repository, own work and output."""

    def make(parent: Path) -> Path:
        folder = parent / "setup"
        folder.mkdir()
        for name in ("recipe", "configs", "setups", "settings.py"):
            (folder / name).symlink_to(REPOSITORY / name)
        # Not a link to the folder: a script goes to where it is, through links.
        (folder / "scripts").mkdir()
        for script in (REPOSITORY / "scripts").iterdir():
            shutil.copy(script, folder / "scripts")
        (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
        return folder

    return make


@pytest.fixture(scope="session")
def local_quickstart(tmp_path_factory, make_setup_folder):
    """The sweep of configs/quickstart.py, trained without Sisyphus: its folder and what was printed."""
    folder = make_setup_folder(tmp_path_factory.mktemp("local"))
    done = subprocess.run(
        [".venv/bin/python", "-m", "syncopate", "run", "configs/quickstart.py"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CI")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return {"folder": folder / "runs" / "quickstart", "printed": done.stdout}


@pytest.fixture
def setup_folder(make_setup_folder, tmp_path):
    """One such folder."""
    return make_setup_folder(tmp_path)


@pytest.fixture
def python():
    """Runs a text as a program in a folder and gives what it printed; its failure is the test's."""

    def run(code: str, *, cwd: Path, env: dict[str, str] | None = None, check: bool = True):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
