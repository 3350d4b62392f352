"""The settings of the folder that the manager is started in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import syncopate
from syncopate.doctor.ask import ask
from syncopate.doctor.finding import Note
from syncopate.errors import ComponentError
from syncopate.launch.kept import kept_names

LIMIT_S = 60
_STOCK_IMPORT_PATHS = ("config", "recipe", "recipe/")
_CONFIGURE = "end settings.py with configure(globals()) of syncopate.settings"


class Settings:
    """
    What the ``settings.py`` of a folder says, asked once.

    :param folder: that the manager is started in
    :param answer: of the probe; None if there are no settings, or no Sisyphus to load them
    :param outcome: of loading them
    """

    def __init__(self, *, folder: Path, answer: Mapping[str, Any] | None, outcome: str | Note | ComponentError) -> None:
        self.folder = folder
        self._answer = answer
        self._outcome = outcome

    @classmethod
    def of_folder(cls, folder: Path, *, has_sisyphus: bool) -> Settings:
        """
        :param folder: that the manager is started in
        :param has_sisyphus: whether the settings can be loaded
        """
        files = os.environ.get("SIS_GLOBAL_SETTINGS_FILE", "settings.py")
        if not any((folder / file).is_file() for file in files.split(":") if file):
            return cls(
                folder=folder,
                answer=None,
                outcome=Note(text=f"no {files} here ({folder}), where sis would look for it"),
            )
        if not has_sisyphus:
            return cls(folder=folder, answer=None, outcome=Note(text="not looked at, as there is no Sisyphus"))
        probe = Path(syncopate.__file__).parent / "jobs" / "settings_probe.py"
        try:
            answer = ask([sys.executable, str(probe)], cwd=folder, timeout_s=LIMIT_S)
        except ComponentError as exc:
            return cls(folder=folder, answer=None, outcome=ComponentError(f"they cannot be loaded: {exc}"))
        if answer["error"] is not None:
            return cls(
                folder=folder, answer=None, outcome=ComponentError(f"Sisyphus cannot load it: {answer['error']}")
            )
        return cls(folder=folder, answer=answer, outcome=f"{files} loads")

    @property
    def is_loaded(self) -> bool:
        """Whether there are settings, and they could be loaded."""
        return self._answer is not None

    @property
    def import_paths(self) -> tuple[str, ...]:
        """Where Sisyphus looks for recipes and configs."""
        return _STOCK_IMPORT_PATHS if self._answer is None else tuple(self._answer["import_paths"])

    @property
    def recipe_folders(self) -> tuple[Path, ...]:
        """Those of them in which recipes lie, as on Python's own path."""
        return tuple(self.folder / entry for entry in self.import_paths if entry.endswith("/"))

    @property
    def python(self) -> str | None:
        """``RETURNN_PYTHON_EXE``."""
        return None if self._answer is None else self._answer["python"]

    @property
    def returnn_root(self) -> str | None:
        """``RETURNN_ROOT``."""
        return None if self._answer is None else self._answer["returnn_root"]

    def check_loads(self) -> str | Note:
        """
        :raises ComponentError: if the settings are there, and cannot be loaded
        """
        if isinstance(self._outcome, ComponentError):
            raise self._outcome
        return self._outcome

    def check_environment(self) -> str | Note:
        """:return: whether tasks of others than Syncopate find SLURM's names; its own trainings keep them themselves"""
        assert self._answer is not None
        lost = kept_names(os.environ) - set(self._answer["environment_keep"])
        if not self._answer["cleanup"] or not lost:
            return "SLURM's names, NCCL_*, GLOO_* and SYNCOPATE_* reach the tasks"
        return Note(
            text=f"DEFAULT_ENVIRONMENT_KEEP has no {', no '.join(sorted(lost)[:3])} and {max(0, len(lost) - 3)} more,"
            f" which trainings that Syncopate does not start would lack; {_CONFIGURE}"
        )

    def check_import_paths(self) -> str | Note:
        """:return: whether ``sis manager configs/X.py`` finds its config"""
        if (self.folder / "configs").is_dir() and not {"configs", "configs/"} & set(self.import_paths):
            return Note(
                text=f"there is a folder configs, but IMPORT_PATHS is {list(self.import_paths)}, so that"
                f" `sis manager configs/X.py` finds no module configs; {_CONFIGURE}"
            )
        return ", ".join(self.import_paths)

    def check_engine(self) -> str | Note:
        """
        :return: what it can do, and what SLURM lacks here
        :raises ComponentError: if the engine cannot run a training on two nodes
        """
        assert self._answer is not None
        if self._answer["engine_error"] is not None:
            raise ComponentError(self._answer["engine_error"])
        able = f"{self._answer['engine']} can run a training on several nodes"
        slurm = self._answer["slurm"]
        if slurm is None:
            return able
        if slurm["partitions"] is not None:
            able += f" of the partitions {', '.join(slurm['partitions'])}"
        lacking = []
        if not slurm["configured"]:
            lacking.append(
                "check_engine_limits is not that of Syncopate, so that a time below a minute is no limit, and SLURM"
                ' 22.05 or later may give a task one CPU; end settings.py with configure(globals(), engine="slurm") of'
                " syncopate.settings"
            )
        if slurm["lacking"]:
            lacking.append(f"there is no {' and no '.join(slurm['lacking'])} on the PATH here, where sis would call it")
        elif slurm["tasks_lack_squeue"]:
            lacking.append(
                "squeue is not on the PATH of DEFAULT_ENVIRONMENT_SET, so that RETURNN cannot see how much time is left"
            )
        return Note(text="; ".join([able, *lacking])) if lacking else able
