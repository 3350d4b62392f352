"""The python that runs the manager, and what it finds."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import syncopate
from syncopate.doctor.finding import Note
from syncopate.doctor.signature import I6_CORE_KNOWN, require_i6_core_signature
from syncopate.errors import ComponentError
from syncopate.version import __version__

I6_CORE_PACKAGES = {name: name for name in ("h5py", "librosa", "matplotlib", "numpy", "soundfile")} | {
    "tree": "dm-tree"
}
"""What i6_core.returnn imports when it is imported, writes a config or plots, with the names that pip knows."""


def own_versions() -> str:
    """:return: of this python, and of syncopate"""
    place = Path(syncopate.__file__).parent
    return f"{platform.python_version()} in {sys.executable}, syncopate {__version__} in {place}"


def check_i6_core(recipe_folders: Sequence[Path]) -> str | Note:
    """
    :param recipe_folders: where Sisyphus looks for recipes, after all that Python finds by itself
    :raises ComponentError: if there is no i6_core, or it lacks something
    """
    found = require_i6_core_signature()
    hidden = [folder / "i6_core" for folder in recipe_folders if (folder / "i6_core" / "returnn").is_dir()]
    if hidden and not hidden[0].samefile(found):
        return Note(
            text=f"{found} is imported and hides {hidden[0]}, since Python finds it by itself, as after an editable"
            " installation of a clone of Syncopate; link recipe/syncopate of the clone into your recipe/ instead"
        )
    first, last = I6_CORE_KNOWN
    return f"{found}; commits from {first} to {last} are known to do"


def check_i6_core_packages() -> str:
    """
    :raises ComponentError: if packages that i6_core needs are missing
    """
    missing = [package for package in I6_CORE_PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ComponentError(
            f"i6_core imports {', '.join(missing)}, which {sys.executable} does not have; run {sys.executable} -m pip"
            f" install {' '.join(I6_CORE_PACKAGES[package] for package in missing)}"
        )
    return ", ".join(I6_CORE_PACKAGES)


def check_black(search_path: str) -> str | Note:
    """
    :param search_path: PATH of the shell that starts the manager
    :raises ComponentError: if there is no black
    """
    found = shutil.which("black", path=search_path)
    if found is not None:
        return found
    beside = Path(sys.executable).with_name("black")
    if beside.is_file():
        return Note(
            text=f"{beside} is not on the PATH, where i6_core's ReturnnConfig looks for it. Syncopate's trainings do"
            f" without; for other jobs run export PATH={beside.parent}:$PATH before sis"
        )
    raise ComponentError(
        "black is neither on the PATH nor beside this python, and i6_core's jobs format each RETURNN config with it;"
        f" run {sys.executable} -m pip install black"
    )
