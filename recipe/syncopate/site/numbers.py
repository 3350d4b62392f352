"""Numbers of a site, checked one by one; each function raises :class:`SiteError` with what is allowed."""

from __future__ import annotations

import math
from typing import Any

from syncopate.errors import SiteError

_NEARLY = 6
"""Decimals of a number of minutes that count: ``7 / 60 * 60`` is 7."""


def count(value: Any, *, what: str, least: int) -> int:
    """
    :param value: a whole number
    :param what: names it in an error
    :param least: it may be
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SiteError(f"{what} must be an int of at least {least}, got {value!r}")
    return value


def amount(value: Any, *, what: str) -> float:
    """
    :param value: a number above 0
    :param what: names it in an error, with its unit
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SiteError(f"{what} must be a number above 0, got {value!r}")
    return value


def word(value: Any, *, what: str) -> str:
    """
    :param value: a name as SLURM takes it
    :param what: names it in an error
    """
    if not isinstance(value, str) or not value or any(char.isspace() or char in ",:" for char in value):
        raise SiteError(f"{what} must be a name without spaces, commas and colons, got {value!r}")
    if value.startswith("-"):
        raise SiteError(f"{what} must not begin with '-', got {value!r}: sbatch would take it for an option")
    return value


def minutes_up(time_h: float) -> int:
    """
    :param time_h: hours
    :return: minutes that are enough for it. SLURM counts in minutes, and takes 0 for "no limit".
    """
    return max(1, math.ceil(round(time_h * 60, _NEARLY)))


def minutes_down(time_h: float) -> int:
    """
    :param time_h: hours
    :return: whole minutes in it
    """
    return math.floor(round(time_h * 60, _NEARLY))
