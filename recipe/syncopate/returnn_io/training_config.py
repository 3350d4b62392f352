"""
A RETURNN training config as a value, for those who hold no i6_core ``ReturnnConfig``.

It can be built, checked and written without Sisyphus; in a Sisyphus graph the same value becomes a ``ReturnnConfig``
that writes the same text.
"""

from __future__ import annotations

import ast
import functools
import inspect
import keyword
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from syncopate.errors import ConfigError, SchemeError
from syncopate.scheme.declaration import known_options
from syncopate.scheme.function import FunctionReference
from syncopate.scheme.plain import Options, python_values, thawed


@known_options(ConfigError)
@dataclass(frozen=True, kw_only=True)
class ProducedFile:
    """
    A file that a function makes before anything is trained: a Sisyphus job in a graph, a cached call in a local run.

    :param make: a function of a module, called once as ``make(directory, **kwargs)``; it writes files into the
        directory, and every :class:`ProducedFile` with the same function and arguments shares that directory
    :param name: the file's path inside the directory
    :param kwargs: plain data; tuples in them arrive as lists
    :raises ConfigError: if ``make`` cannot be found again by its name, or the name leads out of the directory
    """

    make: Callable[..., None]
    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.make, functools.partial):
            raise ConfigError(
                f"ProducedFile: make must be a plain function, got {self.make!r}; give arguments in kwargs"
            )
        try:
            FunctionReference.of(self.make)
            plain = Options(self.kwargs, what="kwargs", keep_floats=True)
        except SchemeError as exc:
            raise ConfigError(f"ProducedFile: {exc}") from exc
        object.__setattr__(self, "kwargs", thawed(plain))
        path = PurePosixPath(self.name) if isinstance(self.name, str) else PurePosixPath()
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"ProducedFile: name must be a path inside the directory that is made, got {self.name!r}")

    @property
    def source(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What makes it: equal for all files of one call."""
        made_by = f"{self.make.__module__}:{self.make.__qualname__}"
        return made_by, tuple(sorted((key, repr(value)) for key, value in self.kwargs.items()))


@known_options(ConfigError)
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """
    :param config: RETURNN options that decide what is trained; all of them enter the job's id.
        Values are plain data, and :class:`ProducedFile` where a path is wanted.
    :param post_config: RETURNN options that change nothing that is trained; not in the id
    :param imports: import statements that bring functions such as ``get_model`` into the config, in the id
    :param python_path: folders in which the training finds the modules of ``imports`` that are installed nowhere, such
        as a recipe folder; made absolute, not in the id
    :param reports: the scores a training with this config is known to report, such as ``"dev_loss_ce"``.
        Empty: not known before the first epoch is done.
    :param references: a JSON file, made beside the data, of scores to compare with: ``{name: {"value": float,
        "unit": str}}``. They are shown below the table.
    :param statistics: a JSON file, made beside the data, with ``"num_train_sequences"``: no training is started with
        more ranks than sequences
    """

    config: Mapping[str, Any]
    post_config: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    references: ProducedFile | None = None
    statistics: ProducedFile | None = None

    def __post_init__(self) -> None:
        for part in ("config", "post_config"):
            options = getattr(self, part)
            if not isinstance(options, Mapping):
                raise ConfigError(f"TrainingConfig: {part} must be a dict of RETURNN options, got {options!r}")
            # A copy, so that what the caller does to its own dicts later changes nothing here.
            object.__setattr__(self, part, python_values(options))
            for key, value in getattr(self, part).items():
                _check_name(key)
                _check_writable(value, what=key)
        double = sorted(set(self.config) & set(self.post_config))
        if double:
            raise ConfigError(f"options {double} stand in config and in post_config; leave them in one of them")
        object.__setattr__(self, "imports", _words(self.imports, what="imports"))
        folders = tuple(os.path.abspath(folder) for folder in _words(self.python_path, what="python_path"))
        object.__setattr__(self, "python_path", folders)
        object.__setattr__(self, "reports", _words(self.reports, what="reports"))
        _check_imports(self.imports)
        for name in ("references", "statistics"):
            if not isinstance(getattr(self, name), ProducedFile | None):
                raise ConfigError(f"TrainingConfig: {name} must be a ProducedFile, got {getattr(self, name)!r}")

    def updated(self, changes: Mapping[str, Any]) -> TrainingConfig:
        """
        :param changes: options that replace those of ``config``
        :return: a copy with the changes
        """
        return replace(self, config={**self.config, **changes})

    def produced_files(self) -> list[ProducedFile]:
        """:return: every file that has to be made before the training starts"""
        found = list(_produced(self.config)) + list(_produced(self.post_config))
        return found + [extra for extra in (self.references, self.statistics) if extra]

    def resolved(self, path_of: Callable[[ProducedFile], Any]) -> TrainingConfig:
        """
        :param path_of: gives the path of a produced file
        :return: a copy in which every :class:`ProducedFile` of the options is replaced by what ``path_of`` gave
        """
        return replace(self, config=_resolve(self.config, path_of), post_config=_resolve(self.post_config, path_of))


def _words(words: Any, *, what: str) -> tuple[str, ...]:
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"TrainingConfig: {what} must be a tuple of strings, got {words!r}")
    return tuple(words)


def _check_name(key: Any) -> None:
    if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
        raise ConfigError(f"option {key!r} is no name that a RETURNN config can hold")


def _check_imports(imports: tuple[str, ...]) -> None:
    text = "\n".join(imports)
    try:
        tree = ast.parse(text)
    except SyntaxError as exc:
        raise ConfigError(f"TrainingConfig: imports are no Python: {exc.msg}, in {text!r}") from exc
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            raise ConfigError(f"TrainingConfig: {ast.unparse(node)!r} does nothing in a config; leave it out")
        if isinstance(node, ast.ImportFrom) and node.level:
            raise ConfigError(
                f"TrainingConfig: {ast.unparse(node)!r} is a relative import, and a config is part of no package;"
                " name the module in full"
            )


def _check_writable(value: Any, *, what: str) -> None:
    if value is None or isinstance(value, (bool, int, float, str, bytes, ProducedFile)):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            _check_writable(key, what=what)
            _check_writable(item, what=f"{what}[{key!r}]")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            _check_writable(item, what=what)
    elif not _is_known_later(value):
        raise ConfigError(unwritable(value, what=what))


def _is_known_later(value: Any) -> bool:
    """Sisyphus' paths and delayed values have a method ``get``, and are plain data when a job runs."""
    is_code = inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
    return not is_code and callable(getattr(value, "get", None))


def unwritable(value: Any, *, what: str) -> str:
    """
    :param value: what cannot be written into a config
    :param what: names the option
    :return: what is wrong with it, and what to do
    """
    return (
        f"option {what}: {value!r} of type {type(value).__name__} cannot be written into a config; use plain data, and"
        " an import line for functions"
    )


def _produced(value: Any) -> Iterator[ProducedFile]:
    if isinstance(value, ProducedFile):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _produced(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _produced(item)


def _resolve(value: Any, path_of: Callable[[ProducedFile], Any]) -> Any:
    if isinstance(value, ProducedFile):
        return path_of(value)
    if isinstance(value, Mapping):
        return {key: _resolve(item, path_of) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, path_of) for item in value]
    if isinstance(value, tuple):
        return tuple(_resolve(item, path_of) for item in value)
    return value
