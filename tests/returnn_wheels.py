"""
RETURNNs other than the installed one, fetched from PyPI once per folder: plain functions for any test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from syncopate.launch.versions import TESTED_RETURNN

OLD_RETURNN = "1.20260822.41010"
"""A RETURNN without synchronisation levels and without training on the CPU."""


def old_returnn_target(tmp_dir: Path) -> Path:
    """
    :param tmp_dir: where to keep it; a second call with the same folder fetches nothing
    :return: a folder for PYTHONPATH that has the old RETURNN's wheel unpacked in it
    """
    target = tmp_dir / f"returnn-{OLD_RETURNN}-target"
    if not target.exists():
        partial = _fresh(tmp_dir / "returnn-old-partial")
        _pip("install", "--no-deps", "--target", str(partial), f"returnn=={OLD_RETURNN}")
        partial.rename(target)
    return target


def returnn_checkout(tmp_dir: Path) -> Path:
    """
    :param tmp_dir: where to keep it; a second call with the same folder fetches nothing
    :return: a folder as a checkout of the tested RETURNN is, with ``rnn.py``: its source distribution (no ``.git``)
    """
    checkout = tmp_dir / f"returnn-{TESTED_RETURNN}"
    if not checkout.exists():
        partial = _fresh(tmp_dir / "returnn-checkout-partial")
        # Without build isolation: pip wants metadata of what it downloads, and would fetch setuptools to make it.
        options = ["--no-deps", "--no-binary", "returnn", "--no-build-isolation", "--dest", str(partial)]
        _pip("download", *options, f"returnn=={TESTED_RETURNN}")
        (archive,) = partial.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        (partial / checkout.name).rename(checkout)
    return checkout


def write_python(
    path: Path, *, pythonpath: Path | None = None, before: str = "", python: Path | str = sys.executable
) -> Path:
    """
    :param path: where to write it
    :param pythonpath: what that python finds before anything installed
    :param before: shell commands to run first
    :param python: interpreter that it starts
    :return: a training python as people have them: a script that starts an interpreter
    """
    path.write_text(
        f'#!/bin/sh\n{before}\n{"" if pythonpath is None else f"export PYTHONPATH={pythonpath}"}\nexec {python} "$@"\n'
    )
    path.chmod(0o755)
    return path


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"pip {' '.join(arguments)}: {done.stderr}"
