"""Options of ``sbatch`` as Sisyphus takes them: words, or one text that it splits at spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from syncopate.errors import SiteError

_LONG = {
    "A": "account",
    "C": "constraint",
    "G": "gpus",
    "N": "nodes",
    "c": "cpus-per-task",
    "d": "dependency",
    "m": "distribution",
    "n": "ntasks",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
"""Short names of the options that a site, a partition and a task may all want to set."""


@dataclass(frozen=True, kw_only=True)
class _Option:
    """
    :param name: the long one, without dashes
    :param value: None if there is none
    :param words: as they were written
    """

    name: str
    value: str | None
    words: tuple[str, ...]


class SbatchArgs:
    """
    Options in their order; as for ``sbatch``, the last of a name counts. Nothing is changed in place.

    :param args: ``["-p", "gpu", "--time=5"]``, the same as one text, or None
    :raises SiteError: if they are nothing of that
    """

    def __init__(self, args: str | Sequence[str] | None = None) -> None:
        self._options = tuple(_options(_words(args)))

    @property
    def words(self) -> list[str]:
        """What Sisyphus puts into the call of ``sbatch``."""
        return [word for option in self._options for word in option.words]

    def __contains__(self, name: str) -> bool:
        return any(option.name == name for option in self._options)

    def value(self, name: str) -> str | None:
        """
        :param name: the long name of an option
        :return: its value, None if it is not there or has none
        """
        return next((option.value for option in reversed(self._options) if option.name == name), None)

    def with_defaults(self, *words: str) -> SbatchArgs:
        """
        :param words: options as ``--name`` or ``--name=value``
        :return: these, but for the names that are there already, in front of what is there
        """
        new = [option for option in _options(words) if option.name not in self]
        return _made([*new, *self._options])

    def with_value(self, name: str, value: str) -> SbatchArgs:
        """
        :param name: the long name of an option
        :param value: of it
        :return: that option once, where its first was or else in front, and all others
        """
        (new,) = _options([f"--{name}={value}"])
        if name not in self:
            return _made([new, *self._options])
        first = next(number for number, option in enumerate(self._options) if option.name == name)
        kept = [
            new if number == first else option
            for number, option in enumerate(self._options)
            if option.name != name or number == first
        ]
        return _made(kept)


def _made(options: Sequence[_Option]) -> SbatchArgs:
    return SbatchArgs([word for option in options for word in option.words])


def _words(args: Any) -> list[str]:
    if args is None:
        return []
    if isinstance(args, str):
        return args.split()
    if not isinstance(args, list | tuple) or not all(isinstance(word, str) for word in args):
        raise SiteError(f"sbatch_args must be a text, or a list of texts such as ['--qos=long'], got {args!r}")
    return list(args)


def _options(words: Sequence[str]) -> Iterator[_Option]:
    """A word without a dash can only be the value of the option before it, as no script follows."""
    start = 0
    for end in range(1, len(words) + 1):
        if end < len(words) and not words[end].startswith("-"):
            continue
        yield _option(tuple(words[start:end]))
        start = end


def _option(words: tuple[str, ...]) -> _Option:
    first = words[0]
    if first.startswith("--"):
        name, equals, value = first[2:].partition("=")
        attached = value if equals else None
    elif first.startswith("-") and len(first) > 1:
        name, attached = _LONG.get(first[1], first[1]), first[2:] or None
    else:
        raise SiteError(f"sbatch_args must begin with an option such as '--qos=long', got {list(words)}")
    return _Option(name=name, value=attached if attached is not None else " ".join(words[1:]) or None, words=words)
