"""Values that a sweep is given, checked one by one; each function raises :class:`SweepError` with what is allowed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import ConfigError, SweepError
from syncopate.returnn_io.with_scheme import checked_seed
from syncopate.scheme.plain import python_value, whole

MAX_NAME_BYTES = 120
"""Of one folder: a file system takes 255, and a run's name adds its options and its seed."""


def checked_path(name: Any, *, what: str) -> str:
    """
    :param name: of a row, or a prefix
    :param what: names it in an error
    :return: it in one normal form
    :raises SweepError: if it is no path that can be made below a folder
    """
    path = PurePosixPath(name) if isinstance(name, str) else PurePosixPath()
    is_relative = path.parts and not path.is_absolute() and ".." not in path.parts
    if not is_relative or not str(name).isprintable() or any(part != part.strip() for part in path.parts):
        raise SweepError(f"{what} must be a relative path such as 'my_experiment/sync', got {name!r}")
    for part in path.parts:
        if len(part.encode()) > MAX_NAME_BYTES:
            raise SweepError(f"{what}: a part of a path may be {MAX_NAME_BYTES} bytes long, got {part!r}")
    return str(path)


def checked_cluster(cluster: Any, *, what: str) -> Any:
    """
    :param cluster: a cluster, or None
    :param what: names it in an error
    :return: it
    """
    if cluster is not None and not isinstance(cluster, Cluster):
        raise SweepError(f"{what}: cluster must be a Cluster(num_nodes=..., num_gpus_per_node=...), got {cluster!r}")
    return cluster


def checked_int(value: Any, *, what: str) -> int:
    """
    :param value: a number
    :param what: names it in an error
    :return: it as an int of at least 1
    """
    number = None if isinstance(value, float) else whole(value)
    if number is None or number < 1:
        raise SweepError(f"{what} must be an int of at least 1, got {value!r}")
    return number


def checked_flag(value: Any, *, what: str) -> bool:
    """
    :param value: True or False
    :param what: names it in an error
    :return: it
    """
    value = python_value(value)
    if not isinstance(value, bool):
        raise SweepError(f"{what} must be True or False, got {value!r}")
    return value


def checked_target(target: Any, *, score: str, what: str) -> float | None:
    """
    :param target: a value of the score, or None
    :param score: the score
    :param what: names the sweep in an error
    :return: the target
    """
    value = python_value(target)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SweepError(f"{what}: target must be a number, the value of {score!r} to reach, got {target!r}")
    return value


def checked_file(file: Any, *, what: str) -> str | None:
    """
    :param file: a path, or None
    :param what: names it in an error
    :return: it as a string
    """
    if file is not None and not isinstance(file, str | os.PathLike):
        raise SweepError(f"{what} must be a path, got {file!r}")
    return None if file is None else os.fspath(file)


def checked_seeds(seeds: Any, *, what: str) -> tuple[int | None, ...]:
    """
    :param seeds: numbers, or None for the config's own
    :param what: names the sweep in an error
    :return: the seeds
    """
    if isinstance(seeds, str | Mapping) or not isinstance(seeds, Iterable):
        raise SweepError(f"{what}: seeds must be a list such as [1, 2, 3], got {seeds!r}")
    try:
        chosen = tuple(checked_seed(seed) for seed in seeds)
    except ConfigError as exc:
        raise SweepError(f"{what}: {exc}") from exc
    if not chosen:
        raise SweepError(f"{what}: seeds must be a list such as [1, 2, 3], got an empty one")
    if len(set(chosen)) < len(chosen):
        raise SweepError(f"{what}: seeds {list(chosen)} name one twice")
    return chosen
