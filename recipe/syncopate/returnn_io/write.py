"""The text of a RETURNN config: the same for a Sisyphus job and for a local run."""

from __future__ import annotations

import math
import os
import pprint
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncopate.errors import ConfigError
from syncopate.returnn_io.training_config import ProducedFile, TrainingConfig, unwritable

LEARNING_RATE_FILE = "learning_rates"

HASHED_DEFAULTS = {"task": "train", "target": "classes", "learning_rate_file": LEARNING_RATE_FILE}
"""What i6_core's training job writes into every config, and hashes. Ours write the same."""

STOP_IN_TIME = {"stop_for_resubmission_when_low_time_left": True}
"""Where SLURM's time limit would cut an epoch short, RETURNN ends after the one before; the next start goes on."""


def run_options(config: TrainingConfig, *, device: str, num_epochs: int, model: str) -> TrainingConfig:
    """
    :param config: what is to be trained
    :param device: "gpu" or "cpu"
    :param num_epochs: epochs to train
    :param model: prefix of the checkpoints
    :return: a copy with the options that belong to this run; what post_config says wins over defaults
    """
    unhashed = {
        "log": ["./returnn.log"],
        "log_verbosity": 5,
        "save_interval": 1,
        **STOP_IN_TIME,
        **config.post_config,
        "device": device,
        "model": model,
        "num_epochs": num_epochs,
    }
    unhashed = {key: value for key, value in unhashed.items() if key not in config.config}
    return replace(config, config={**HASHED_DEFAULTS, **config.config}, post_config=unhashed)


def config_text(config: TrainingConfig) -> str:
    """
    :param config: all options; every :class:`ProducedFile` is resolved
    :return: a Python file that RETURNN reads as a config
    :raises ConfigError: on a value that is not known yet
    """
    lines = ["#!rnn.py", ""]
    if config.python_path:
        lines += ["import sys", "", f"sys.path[:0] = {list(config.python_path)!r}", ""]
    lines += [*config.imports, ""] if config.imports else []
    options = {**config.config, **config.post_config}
    for key in sorted(options):
        value = pprint.pformat(_literal(options[key], what=key), width=120, sort_dicts=False)
        lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def write_text(path: str | Path, text: str) -> None:
    """
    :param path: file to write; it is complete or as it was before, whatever happens
    :param text: its content
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _Code:
    """Prints as the code it holds, where ``repr`` of the value would be no Python."""

    def __init__(self, code: str):
        self.code = code

    def __repr__(self) -> str:
        return self.code


def _literal(value: Any, *, what: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _Code(f"float({str(value)!r})")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Mapping):
        return {_literal(key, what=what): _literal(item, what=f"{what}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_literal(item, what=what) for item in value)
    if isinstance(value, set | frozenset):
        # In an order of its own, so that equal configs give equal texts in every process.
        items = ", ".join(sorted(repr(_literal(item, what=what)) for item in value))
        return _Code(f"{type(value).__name__}({f'[{items}]' if items else ''})")
    if isinstance(value, ProducedFile):
        raise ConfigError(f"option {what}: {value} was not made yet; resolve the config before it is written")
    raise ConfigError(unwritable(value, what=what))
