"""
What the python it runs in has: its own version, RETURNN, torch. Nothing is imported but the standard library.

This file is both a module and the script that :mod:`syncopate.launch.components` hands to another python with ``-c``.
As a script it must start in any Python 3, also in one too old for the rest of Syncopate, so that this can be said.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys

MARK = "SYNCOPATE-PROBE "
"""What the line with the answer starts with: wrappers and containers like to print lines of their own."""

NEEDED_MODULES = {"tree": "dm-tree", "h5py": "h5py", "numpy": "numpy"}
"""What RETURNN imports when it trains, by the name of its package; the wheel of RETURNN declares numpy only."""


def look(returnn_root: "str | None") -> "dict[str, object]":
    """
    :param returnn_root: a checkout of RETURNN, None for the one that is installed
    :return: ``python_version``, ``torch_version``, ``returnn_version`` and ``returnn_path`` (its package), None where
        there is none; ``distributed_source``, the content of RETURNN's ``torch/distributed.py``, "" if there is none;
        ``missing`` packages
    """
    returnn = _package("returnn") if returnn_root is None else _checkout_package(returnn_root)
    torch = _package("torch")
    return {
        "python_version": ".".join(map(str, sys.version_info[:3])),
        "torch_version": torch and (_written_version(os.path.join(torch, "version.py")) or _installed_version(torch)),
        "returnn_version": returnn and _returnn_version(returnn),
        "returnn_path": returnn,
        "distributed_source": _read(os.path.join(returnn, "torch", "distributed.py")) if returnn else "",
        "missing": [package for module, package in NEEDED_MODULES.items() if importlib.util.find_spec(module) is None],
    }


def _package(name: str) -> "str | None":
    spec = importlib.util.find_spec(name)
    # A bare directory of that name is no package: its spec has no origin.
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else None


def _checkout_package(root: str) -> "str | None":
    package = os.path.join(root, "returnn")
    is_checkout = os.path.isfile(os.path.join(root, "rnn.py")) and os.path.isfile(os.path.join(package, "__init__.py"))
    return package if is_checkout else None


def _returnn_version(package: str) -> str:
    """The order is RETURNN's own: what was written when it was packed, then git."""
    root = os.path.dirname(os.path.realpath(package))
    for folder in (package, root):
        version = _written_version(os.path.join(folder, "_setup_info_generated.py"))
        if version:
            return version
    if os.path.exists(os.path.join(root, ".git")):
        return _git_version(root) or "checkout"
    return _installed_version(package) or "checkout"


def _written_version(path: str) -> "str | None":
    match = re.search(r"^(?:__version__|version)\b.*= *['\"]([^'\"]+)['\"]", _read(path), re.MULTILINE)
    return _without_leading_zeros(match.group(1)) if match else None


def _git_version(root: str) -> "str | None":
    """RETURNN's version of a checkout is the date of its last commit."""
    command = ["git", "-c", "safe.directory=*", "-C", root, "show", "-s", "--format=%ci %h", "HEAD"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return None
    date, time, _, revision = answer.split()
    version = ".".join(["1", date.replace("-", ""), time.replace(":", "")])
    return _without_leading_zeros(version) + "+git." + revision


def _without_leading_zeros(version: str) -> str:
    """As pip names it: 1.20260822.041010 is 1.20260822.41010."""
    return ".".join(str(int(part)) if part.isdigit() else part for part in version.split("."))


def _installed_version(package: str) -> "str | None":
    """What pip noted beside the package: elsewhere on the path it may have noted another installation."""
    from importlib.metadata import distributions

    folder, name = os.path.split(package)
    return next((found.version for found in distributions(name=name, path=[folder])), None)


def _read(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    # With -c the working directory comes first, where a folder torch/ or returnn/ would hide the installed one.
    if sys.path and sys.path[0] == "":
        del sys.path[0]
    sys.stdout.write("\n" + MARK + json.dumps(look(sys.argv[1] if len(sys.argv) > 1 else None)) + "\n")
