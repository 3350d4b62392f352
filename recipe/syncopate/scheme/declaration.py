"""What all declarations share: errors for unknown options, and a Sisyphus state that outlives new fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from syncopate.errors import DeclarationError, did_you_mean

Declared = TypeVar("Declared", bound=Callable[..., Any])


class Declaration:
    """Base of the frozen dataclasses that a recipe builds."""

    def __sis_state__(self) -> dict[str, Any]:
        """
        :return: the fields that differ from their default. A field that is added later, with a default that means what
            was done before, then changes no old job id.
        """
        state = {}
        for entry in fields(self):  # type: ignore[arg-type]
            default = entry.default_factory() if entry.default_factory is not MISSING else entry.default
            value = getattr(self, entry.name)
            if default is MISSING or value != default:
                state[entry.name] = value
        return state


def known_options(error: type[DeclarationError], *, hint: str = "") -> Callable[[Declared], Declared]:
    """
    Decorates a class or a function whose unknown keywords are declaration errors, instead of Python's ``TypeError``.

    :param error: what is raised
    :param hint: ends the message
    """

    def decorate(target: Declared) -> Declared:
        function: Any = target.__init__ if inspect.isclass(target) else target
        known = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs:
                if name not in known:
                    raise error(
                        f"{target.__name__}: unknown option {name!r}, allowed are {known}"
                        f"{did_you_mean(name, known)}{hint}"
                    )
            return function(*args, **kwargs)

        if inspect.isclass(target):
            setattr(target, "__init__", checked)  # noqa: B010
            return target
        return checked  # type: ignore[return-value]

    return decorate
