"""
Plain data in one normal form, so that what means the same is the same: in a config, in a hash, in a comparison.

Plain are None, bool, int, finite float, str, and lists, tuples and dicts of them. Lists and tuples are one thing, as
are ``2`` and ``2.0``; ``True`` and ``1`` are two. A dict has string keys and no order. numpy's scalars are the Python
values they hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from syncopate.errors import SchemeError

_EXACT = frozenset({bool, int, float, str, bytes, type(None)})
"""Types whose values are plain already. Most are: a look at them first makes a sweep of many trainings fast."""


class Options(Mapping[str, Any]):
    """
    An immutable, hashable mapping of plain data; dicts inside it are :class:`Options` too, sequences are tuples.

    :param values: plain data
    :param what: names the owner in an error
    :param keep_floats: whether ``2.0`` stays what it is, for the arguments of a user's function
    :raises SchemeError: on anything that is not plain
    """

    def __init__(self, values: Mapping[str, Any] | None = None, *, what: str = "options", keep_floats: bool = False):
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise SchemeError(f"{what} must be a dict, got {values!r}")
        for key in values:
            if not isinstance(key, str):
                raise SchemeError(f"{what}: keys must be strings, got {key!r}")
        self._items = tuple(
            (python_value(key), frozen(values[key], what=f"{what}[{key!r}]", keep_floats=keep_floats))
            for key in sorted(values)
        )

    def __sis_state__(self) -> tuple[tuple[str, Any], ...]:
        """:return: keys and values in order, whatever else an object of this class may hold one day"""
        return self._items

    def __getitem__(self, key: str) -> Any:
        for name, value in self._items:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(key for key, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Options):
            return isinstance(other, Mapping) and thawed(self) == other
        # Not the items themselves: for Python True equals 1, though they are written, and hashed, as two things.
        return repr(self) == repr(other)

    def __repr__(self) -> str:
        return repr(thawed(self))


def frozen(value: Any, *, what: str, keep_floats: bool = False) -> Any:
    """
    :param value: plain data
    :param what: names it in an error
    :param keep_floats: whether ``2.0`` stays what it is
    :return: its immutable normal form
    :raises SchemeError: on anything that is not plain
    """
    value = python_value(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and not keep_floats else value
    if isinstance(value, list | tuple):
        return tuple(frozen(item, what=f"{what}[{index}]", keep_floats=keep_floats) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        return Options(value, what=what, keep_floats=keep_floats)
    raise SchemeError(
        f"{what}: {value!r} of type {type(value).__name__} cannot be written into a config;"
        " use None, bool, int, finite float, str, and lists, tuples or dicts of them"
    )


def thawed(value: Any) -> Any:
    """
    :param value: what :func:`frozen` gave
    :return: the same as lists and dicts, ready to be written
    """
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thawed(item) for item in value]
    return value


def python_value(value: Any) -> Any:
    """
    :param value: anything
    :return: numpy's scalars, and members of number and string enumerations, as the plain Python value they hold; all
        else as it is
    """
    if type(value) in _EXACT:
        return value
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    for kind in (int, float):
        if isinstance(value, kind) and not isinstance(value, bool):
            return kind(value)
    return str.__str__(value) if isinstance(value, str) else value


def python_values(value: Any) -> Any:
    """
    :param value: anything
    :return: a copy of its dicts, lists, tuples and sets, with every value in them as :func:`python_value` gives it
    """
    if type(value) in _EXACT:
        return value
    if isinstance(value, Mapping):
        return {python_values(key): python_values(item) for key, item in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(python_values(item) for item in value)
    return python_value(value)


def whole(value: Any) -> int | None:
    """
    :param value: anything
    :return: it as an int, 2.0 is 2; None if it is no whole number
    """
    value = python_value(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def period(value: Any, *, what: str) -> int:
    """
    :param value: a number of updates
    :param what: names it in an error
    :return: it as an int; 2.0 is 2
    :raises SchemeError: if it is no whole number of at least 1
    """
    updates = whole(value)
    if updates is None or updates < 1:
        raise SchemeError(f"{what} counts updates and must be a whole number of at least 1, got {value!r}")
    return updates


def number(value: Any, *, what: str, low: float, high: float = math.inf) -> float:
    """
    :param value: a real number
    :param what: names it in an error
    :param low: the smallest value allowed
    :param high: the largest value allowed
    :return: the value
    :raises SchemeError: if it is no finite number in the range
    """
    real = python_value(value)
    finite = isinstance(real, int | float) and not isinstance(real, bool) and abs(real) < math.inf
    if not finite or not low <= real <= high:
        bounds = f"at least {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
        raise SchemeError(f"{what} must be a number of {bounds}, got {value!r}")
    return real  # type: ignore[no-any-return]


def flag(value: Any, *, what: str) -> bool:
    """
    :param value: True or False
    :param what: names it in an error
    :return: the value
    :raises SchemeError: if it is neither
    """
    value = python_value(value)
    if not isinstance(value, bool):
        raise SchemeError(f"{what} must be True or False, got {value!r}")
    return value
