"""What a recipe imports from ``syncopate`` is there, is the real thing, and is loaded when it is first used."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import syncopate

NEEDS_SISYPHUS = {"SyncTrainingJob"}


def test_the_lists_agree():
    assert sorted(syncopate.__all__) == sorted(syncopate._HOME)
    assert syncopate.__all__ == sorted(syncopate.__all__)
    assert set(syncopate.__all__) <= set(dir(syncopate))
    tree = ast.parse(inspect.getsource(syncopate))
    checked = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("syncopate.")
        for alias in node.names
    }
    assert checked == set(syncopate.__all__), "what mypy sees is not what Python finds"


@pytest.mark.parametrize("name", sorted(set(syncopate.__all__) - NEEDS_SISYPHUS))
def test_a_name_is_the_one_of_its_module(name):
    home = importlib.import_module(f"syncopate.{syncopate._HOME[name]}")
    assert getattr(syncopate, name) is getattr(home, name)
    value = getattr(syncopate, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == home.__name__
        assert value.__doc__


@pytest.mark.needs_sisyphus
def test_the_job_is_found_where_sisyphus_is(setup_folder, python):
    done = python("import syncopate; print(syncopate.SyncTrainingJob.__module__)", cwd=setup_folder)
    assert done.stdout.split()[-1] == "syncopate.jobs.training"


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'syncopate' has no attribute 'dpp'"):
        _ = syncopate.dpp
    with pytest.raises(ImportError, match="cannot import name 'dpp'"):
        exec("from syncopate import dpp")


def test_the_version_is_the_package_s():
    assert syncopate.__version__ == importlib.import_module("syncopate.version").__version__


def test_importing_the_package_loads_nothing_of_it():
    code = "import sys, syncopate; print(sorted(name for name in sys.modules if name.startswith('syncopate')))"
    recipe = str(Path(syncopate.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=recipe)
    assert done.stdout.strip() == "['syncopate']"
