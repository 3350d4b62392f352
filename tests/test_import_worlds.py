"""
Three import worlds, because the parts run in three environments: what is declared loads the standard library alone,
what trains has torch and RETURNN but no Sisyphus, what manages never has torch.

Every import counts, also one inside a function; only what is for the type checker does not.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import syncopate

PACKAGE = Path(syncopate.__file__).parent
CONFIGS = PACKAGE.parents[1] / "configs"
SHIPPED = sorted(path for path in CONFIGS.glob("*.py") if path.name != "helper_example.py")
"""helper_example.py stands for a recipe of the user's own, which imports what it likes."""
STANDARD = set(sys.stdlib_module_names)

DECLARE = {"errors", "version", "settings", "cluster", "scheme", "sweep", "returnn_io", "launch", "local", "site"}
TRAIN = {"runtime"}
MANAGE = {"jobs", "compare", "tasks", "doctor"}
ENTRY = {"__init__", "__main__"}
"""They load whatever was asked for, when it was asked for."""

MAY_IMPORT = {
    "declare": (DECLARE, set()),
    "train": (DECLARE | TRAIN, {"torch", "returnn", "tree"}),
    "manage": (DECLARE | MANAGE, {"scipy", "matplotlib"}),
    "jobs": (DECLARE | MANAGE, {"scipy", "matplotlib", "sisyphus", "i6_core"}),
}
"""By world: parts of the package, and packages of others."""

EXCEPTIONS = {
    "launch/rank_check.py": {"torch"},  # a rank of the test job
    # Sweep.register() puts the sweep into Sisyphus' graph when it is called.
    "sweep/sweep.py": {"syncopate.jobs"},
    # The process that becomes the training.
    "launch/rank.py": {"returnn"},
}

SOURCES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in SOURCES]


def world_of(name: str) -> str:
    """The world of a file of the package."""
    part = name.removesuffix(".py").split("/")[0]
    if part in DECLARE:
        return "declare"
    if part in TRAIN or (part == "tasks" and name.endswith("/model.py")):
        return "train"
    if part in MANAGE:
        return "jobs" if part == "jobs" else "manage"
    assert part in ENTRY, f"{name} is in no import world; say in tests/test_import_worlds.py in which it is"
    return "entry"


def imports_of(tree: ast.AST) -> set[str]:
    """Packages that the code imports, as ``torch`` or ``syncopate.part``, wherever it does."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {".".join(alias.name.split(".")[:2]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "syncopate" else [module]
            found |= {".".join(name.split(".")[:2]) for name in names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            first = node.args[0] if node.args else None
            found |= {first.value} if isinstance(first, ast.Constant) and isinstance(first.value, str) else set()
        found |= imports_of(node)
    return {name if name.startswith("syncopate") else name.split(".")[0] for name in found}


def test_the_walk_finds_imports_wherever_they_are():
    tree = ast.parse(
        """
from __future__ import annotations
import os.path, torch.nn as nn
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import numpy
from syncopate import ddp
from syncopate.scheme.level import Level
def f():
    if x:
        try:
            from returnn.config import Config
        except ImportError:
            import importlib; importlib.import_module("scipy.stats")
class C:
    import tree
"""
    )
    assert imports_of(tree) == {
        *("__future__", "os", "torch", "typing", "syncopate.ddp", "syncopate.scheme", "returnn", "importlib", "scipy"),
        "tree",
    }


@pytest.mark.parametrize(("path", "name"), list(zip(SOURCES, NAMES, strict=True)), ids=NAMES)
def test_a_file_imports_only_what_its_world_has(path, name):
    world = world_of(name)
    if world == "entry":
        return
    parts, others = MAY_IMPORT[world]
    allowed = STANDARD | others | {"syncopate"} | {f"syncopate.{part}" for part in parts} | EXCEPTIONS.get(name, set())
    found = imports_of(ast.parse(path.read_text(encoding="utf-8")))
    # A public name, such as `from syncopate import Cluster`, is what its home is.
    homes = {f"syncopate.{public}": f"syncopate.{home.split('.')[0]}" for public, home in syncopate._HOME.items()}
    found = {homes.get(imported, imported) for imported in found}
    assert found <= allowed, f"{name} is in the world {world!r} and imports {sorted(found - allowed)}"


def test_every_exception_is_needed():
    for name, packages in EXCEPTIONS.items():
        assert packages <= imports_of(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))), name


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_config_imports_only_syncopate(path):
    found = imports_of(ast.parse(path.read_text(encoding="utf-8")))
    assert {name.split(".")[0] for name in found} == {"syncopate"}


def loaded_by(*modules: str, path: str = "", cwd: Path = PACKAGE.parent) -> set[str]:
    """The packages of others that are loaded in a process of its own after these modules were imported."""
    code = (
        f"import sys, json, importlib; sys.path.insert(0, {path or str(PACKAGE.parent)!r})\n"
        f"for name in {list(modules)!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1])) - STANDARD


def modules_of(world: str) -> list[str]:
    names = [name.removesuffix(".py").removesuffix("/__init__") for name in NAMES if world_of(name) == world]
    return [f"syncopate.{name.replace('/', '.')}" for name in names]


def test_the_declare_world_loads_nothing_of_others():
    """Whatever Python starts with, such as hooks of an editable installation, is there without us."""
    assert len(modules_of("declare")) > 20
    assert loaded_by(*modules_of("declare")) - loaded_by() == {"syncopate"}


def test_comparing_and_making_data_load_no_torch():
    loaded = loaded_by(*modules_of("manage"), "syncopate.__main__")
    assert not loaded & {"torch", "returnn", "sisyphus", "i6_core"}


@pytest.mark.needs_sisyphus
def test_the_graph_loads_no_torch(setup_folder):
    loaded = loaded_by("syncopate.jobs.register", path="recipe", cwd=setup_folder)
    assert {"sisyphus", "i6_core"} <= loaded
    assert not loaded & {"torch", "returnn"}


def test_declaring_and_checking_a_shipped_sweep_loads_nothing_of_others():
    code = f"""
import json, sys
before = set(sys.modules)
sys.path.insert(0, {str(PACKAGE.parent)!r})
from syncopate.local.load import load_sweeps
for path in {list(map(str, SHIPPED))!r}:
    assert load_sweeps(path)
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=CONFIGS.parent)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) - STANDARD == {"syncopate", "configs"}
