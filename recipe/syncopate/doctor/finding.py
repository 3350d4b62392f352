"""What a check found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from syncopate.errors import SyncopateError


@dataclass(frozen=True, kw_only=True)
class Note:
    """
    What is good enough, but worth knowing.

    :param text: a sentence
    """

    text: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """
    :param name: of the check
    :param state: "lacking" if something has to be done
    :param text: a sentence
    """

    name: str
    state: Literal["ok", "note", "lacking"]
    text: str

    @property
    def line(self) -> str:
        """It as one line of text."""
        return f"{self.state:8} {self.name}: {' '.join(self.text.split())}"


def look(name: str, check: Callable[[], str | Note]) -> Finding:
    """
    :param name: of the check
    :param check: raises a SyncopateError that says what is lacking
    """
    try:
        found = check()
    except SyncopateError as exc:
        return Finding(name=name, state="lacking", text=str(exc))
    if isinstance(found, Note):
        return Finding(name=name, state="note", text=found.text)
    return Finding(name=name, state="ok", text=found)
