"""A :class:`~syncopate.returnn_io.training_config.TrainingConfig` where i6_core wants its ``ReturnnConfig``."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

from sisyphus import tk

from i6_core.returnn.config import ReturnnConfig
from i6_core.util import instanciate_delayed_copy
from syncopate.jobs.produce import ProduceJob
from syncopate.returnn_io.training_config import ProducedFile, TrainingConfig
from syncopate.returnn_io.write import STOP_IN_TIME, config_text

JOB_ARGUMENTS = {"log_verbosity": 5, "save_interval": 1}
"""Options that i6_core's training job refuses in a config and takes as arguments, with our defaults."""


class WrittenReturnnConfig(ReturnnConfig):
    """
    Prints as Syncopate's own writer prints it, so that a local run and a job hold the same text.

    :param config: as in ``ReturnnConfig``
    :param post_config: as in ``ReturnnConfig``
    :param imports: import statements for the top of the config, hashed
    :param python_path: folders in which their modules are found, not hashed
    """

    def __init__(
        self,
        config: dict[str, Any],
        post_config: dict[str, Any] | None = None,
        *,
        imports: tuple[str, ...] = (),
        python_path: tuple[str, ...] = (),
    ):
        super().__init__(config, post_config, python_prolog=list(imports) or None, black_formatting=False)
        self.python_path = python_path

    def _serialize(self) -> str:
        return config_text(
            TrainingConfig(
                config=instanciate_delayed_copy(self.config),
                post_config=instanciate_delayed_copy(self.post_config),
                imports=tuple(self.python_prolog or ()),
                python_path=self.python_path,
            )
        )


def as_returnn_config(config: Any, *, path_of: Callable[[ProducedFile], tk.Path] = ProduceJob.file) -> ReturnnConfig:
    """
    :param config: a ``ReturnnConfig``, or a :class:`TrainingConfig`
    :param path_of: gives a produced file as an output of its job
    :return: the config for a training job, without what i6_core's job takes as arguments of its own
    """
    if not isinstance(config, TrainingConfig):
        return config
    resolved = config.resolved(path_of)
    post_config = {key: value for key, value in resolved.post_config.items() if key not in JOB_ARGUMENTS}
    return WrittenReturnnConfig(
        dict(resolved.config), post_config, imports=config.imports, python_path=config.python_path
    )


def job_argument(config: Any, key: str) -> Any:
    """
    :param config: as in :func:`as_returnn_config`
    :param key: one of :data:`JOB_ARGUMENTS`
    :return: its value in the config, or the default
    """
    given = config.post_config if isinstance(config, TrainingConfig) else {}
    return given.get(key, JOB_ARGUMENTS[key])


def write_config(config: ReturnnConfig, path: str) -> None:
    """
    Writes a copy, since writing a ``ReturnnConfig`` changes it.

    :param config: of any class derived from i6_core's
    :param path: of the file
    """
    config = copy.deepcopy(config)
    for key, value in STOP_IN_TIME.items():
        if config.get(key) is None:
            config.post_config[key] = value
    if getattr(config, "black_formatting", False) and getattr(config, "_black_path", None) is None:
        # i6_core looks for black on the PATH when the config is built, where a `sis` of an environment that is not
        # activated has none. Without black the text is the same but for its layout.
        beside = os.path.join(os.path.dirname(sys.executable), "black")
        config._black_path = beside
        config.black_formatting = os.path.exists(beside)
    config.write(path)
