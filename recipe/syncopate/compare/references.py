"""Scores to compare with that no training of the sweep has made, such as that of a bigram."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncopate.errors import ReadError


@dataclass(frozen=True, kw_only=True)
class Reference:
    """
    :param value: the score
    :param unit: what it is counted in, such as "nats/char"
    """

    value: float
    unit: str


def read_references(path: Path) -> Mapping[str, Reference]:
    """
    :param path: a JSON file ``{name: {"value": float, "unit": str}}``
    :return: the references by name
    :raises ReadError: if it is something else
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ReadError(f"{path}: the references cannot be read: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise ReadError(f"{path}: the references are no JSON: {exc}") from exc
    if not isinstance(plain, dict):
        raise ReadError(f'{path}: expected references {{name: {{"value": number, "unit": text}}}}, got {plain!r}')
    return {name: _reference(name, entry, path) for name, entry in plain.items()}


def references_or_problem(path: str | None, *, base: Path) -> tuple[Mapping[str, Reference], str | None]:
    """
    For tables, which can be shown without.

    :param path: of the references, None if there are none
    :param base: the folder that it is relative to
    :return: the references by name; and why they cannot be read, None if they can
    """
    if path is None:
        return {}, None
    try:
        return read_references(base / path), None
    except ReadError as exc:
        return {}, str(exc)


def _reference(name: str, entry: object, path: Path) -> Reference:
    value = entry.get("value") if isinstance(entry, dict) else None
    unit = entry.get("unit") if isinstance(entry, dict) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value is None or not isinstance(unit, str):
        raise ReadError(
            f'{path}: reference {name!r} must be {{"value": number, "unit": text}} with a finite number, got {entry!r}'
        )
    return Reference(value=float(value), unit=unit)
