"""The sweeps that a config declares."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from syncopate.errors import SweepError
from syncopate.sweep.registry import collecting

if TYPE_CHECKING:
    from syncopate.sweep.sweep import Sweep


def load_sweeps(config: str | Path) -> list[Sweep]:
    """
    Runs ``py()`` of a config and collects the sweeps it registers, checked, without Sisyphus.

    :param config: a Python file such as ``configs/quickstart.py``
    :raises SweepError: if there is no such file, no ``py()`` in it, or it registers no sweep
    """
    path = Path(config)
    if path.suffix != ".py" or not path.is_file():
        raise SweepError(f"{config} is no Python file; give a config such as configs/quickstart.py")
    # The name it has for Sisyphus, so that functions defined in it are found under one name in both.
    name = ".".join((*path.parent.parts[-1:], path.stem))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "py", None)):
        raise SweepError(f"{config} has no function py(); declare the sweep in one, as in configs/quickstart.py")
    with collecting() as sweeps:
        module.py()
    if not sweeps:
        raise SweepError(f"{config}: py() registers no sweep; end it with sweep.register()")
    return sweeps
