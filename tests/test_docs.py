"""What the documentation shows works: its Python is executed, and each of its commands is run by a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

# By the first words of a command: the test that runs it.
RUN_BY = {
    "git clone": "tests/test_fresh_clone.py::test_a_new_user_gets_a_table",
    "cd syncopate": "tests/test_fresh_clone.py::test_a_new_user_gets_a_table",
    "make demo": "tests/test_fresh_clone.py::test_a_new_user_gets_a_table",
    "make test": "tests/test_docs.py::test_make_runs_these_tests",
    "make test-all": "tests/test_docs.py::test_make_runs_these_tests",
    "make check": "tests/test_docs.py::test_make_runs_these_tests",
    "python -m syncopate run": "tests/test_quickstart.py::test_the_local_runner_trains_four_schemes_to_the_table",
    "python -m syncopate manage": (
        "tests/slurm/test_quickstart.py::test_four_schemes_are_trained_on_two_nodes_to_the_table"
    ),
    "python -m syncopate compare": "tests/test_quickstart.py::test_the_table_can_be_asked_for_in_every_format",
    "python -m syncopate doctor": "tests/test_your_setup.py::test_compare_and_doctor_in_the_users_folder",
    "cp -r setups/slurm": "tests/test_setups.py::test_the_page_makes_a_setup_that_is_taken_on_this_host",
    "hostname >": "tests/test_setups.py::test_the_page_makes_a_setup_that_is_taken_on_this_host",
    "python -m syncopate doctor --slurm": "tests/slurm/test_doctor_slurm.py::test_a_good_setup",
    "SYNCOPATE_SETUP=slurm sis manager": "tests/slurm/test_faults.py::test_requeued_it_goes_on_from_its_checkpoint",
    "SYNCOPATE_SETUP=loopback_slurm python -m syncopate manage": (
        "tests/slurm/test_quickstart.py::test_four_schemes_are_trained_on_two_nodes_to_the_table"
    ),
    "sudo apt-get install": "tests/slurm/test_cluster.py::test_missing_packages_are_named_in_one_line",
    "make cluster-up": "tests/slurm/test_cluster.py::test_the_makefile_starts_and_stops_it",
    "make cluster-down": "tests/slurm/test_cluster.py::test_the_makefile_starts_and_stops_it",
    'eval "$(setups/loopback_slurm/cluster env)"': (
        "tests/slurm/test_cluster.py::test_the_environment_for_a_shell_is_enough_to_ask_the_cluster"
    ),
    "squeue": "tests/slurm/test_cluster.py::test_the_environment_for_a_shell_is_enough_to_ask_the_cluster",
    "ln -s": "tests/test_your_setup.py::test_the_helpers_sweep_runs_to_the_table",
    "sis manager -r config/sync_sweep.py": "tests/test_your_setup.py::test_the_helpers_sweep_runs_to_the_table",
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    return [
        (page.name, line.strip())
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line.strip() and not line.startswith("#")
    ]


# The Python of this page belongs into several files of a setup, which its own test makes.
ELSEWHERE = {"your_setup.md": "tests/test_your_setup.py"}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name not in ELSEWHERE],
    ids=lambda page: page.name,
)
def test_python_of_a_page_runs(page, tmp_path):
    code = "\n".join(blocks(page, "python"))
    if "SyncTrainingJob" in code:
        pytest.importorskip("sisyphus", reason="Sisyphus is not installed (see `make setup`)")
    for name in ("recipe", "setups", "settings.py"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_command_shown_is_run_by_a_test():
    assert commands()
    for page, command in commands():
        start = max((key for key in RUN_BY if command.startswith(key)), key=len, default=None)
        assert start is not None, f"{page} shows {command!r}, which no test runs"
        file, name = RUN_BY[start].split("::")
        assert f"def {name}(" in (REPOSITORY / file).read_text(encoding="utf-8"), RUN_BY[start]


def test_make_runs_these_tests():
    """Running `make test` inside of it would not end; what it calls is what runs us."""

    def recipe(target: str) -> str:
        done = subprocess.run(["make", "-n", target], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout

    assert '.venv/bin/python -m pytest -m "not full"' in recipe("test")
    assert ".venv/bin/python -m pytest\n" in recipe("test-all")
    assert ".venv/bin/ruff check ." in recipe("check")
    assert ".venv/bin/mypy" in recipe("check")


def test_pages_name_files_that_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
