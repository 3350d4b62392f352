"""
Functions as part of a declaration: found again by module and name, and told apart by what they do.

A config cannot hold a function, and Sisyphus hashes one by its name alone. So a function enters as a reference
(module, name) with a digest of its source in a normal form: comments, docstrings and layout do not count, a changed
constant does. The digest covers the function's own text, not the functions and module constants it uses.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncopate.errors import SchemeError
from syncopate.scheme.declaration import Declaration
from syncopate.scheme.plain import Options, frozen, thawed

_HOW = "use a function defined at the top level of a module, or functools.partial of one with plain arguments"


@dataclass(frozen=True, kw_only=True)
class FunctionReference(Declaration):
    """
    :param module: where it is imported from
    :param name: its name there
    :param digest: SHA-256 of its source in normal form, hexadecimal
    :param args: positional arguments of a ``functools.partial``, plain data; tuples in them arrive as lists
    :param kwargs: keyword arguments of a ``functools.partial``, likewise
    """

    module: str
    name: str
    digest: str
    args: tuple[Any, ...] = ()
    kwargs: Options = field(default_factory=Options)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> FunctionReference:
        """
        :param function: a function of a module, or ``functools.partial`` of one
        :raises SchemeError: for a lambda, a nested function, a method, an object, a builtin, a coroutine or generator
            function, a function of ``__main__``, or one whose module holds something else under its name: none of them
            could be found again, or would do anything when called
        """
        if isinstance(function, functools.partial):
            inner = cls.of(function.func)
            what = f"functools.partial of {inner.name}: argument"
            return cls(
                module=inner.module,
                name=inner.name,
                digest=inner.digest,
                args=inner.args + frozen(function.args, what=what, keep_floats=True),
                kwargs=Options({**inner.kwargs, **function.keywords}, what=what, keep_floats=True),
            )
        if not inspect.isfunction(function):
            raise SchemeError(f"{function!r} is no plain function and could not be found again by its name; {_HOW}")
        shown = f"function {function.__qualname__} of module {function.__module__}"
        if function.__name__ == "<lambda>":
            raise SchemeError(f"{shown} is a lambda and could not be found again by its name; {_HOW}")
        if "." in function.__qualname__:
            raise SchemeError(f"{shown} is no top-level function and could not be found again by its name; {_HOW}")
        if function.__module__ == "__main__":
            raise SchemeError(f"{shown} belongs to the running script, which a training cannot import; {_HOW}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise SchemeError(f"{shown} is a coroutine or a generator, whose call alone does nothing; {_HOW}")
        if _imported(function.__module__, function.__name__) is not function:
            raise SchemeError(
                f"{shown} is not what its module holds under that name (decorated, or defined again?); {_HOW}"
            )
        try:
            source = inspect.getsource(function)
        except (OSError, TypeError) as exc:
            raise SchemeError(f"{shown} has no source to tell its versions apart ({exc}); {_HOW}") from exc
        return cls(module=function.__module__, name=function.__name__, digest=source_digest(source))

    def __eq__(self, other: object) -> bool:
        # Of the arguments True and 1, and 2.0 and 2, are two things: a function may tell them apart.
        return isinstance(other, FunctionReference) and repr(self.as_dict()) == repr(other.as_dict())

    def __hash__(self) -> int:
        return hash((self.module, self.name, self.digest, self.args, self.kwargs))

    def load(self) -> Callable[..., Any]:
        """
        :return: the function, with the arguments of its ``functools.partial`` bound
        :raises SchemeError: if the module holds no such function, or a changed one
        """
        function = _imported(self.module, self.name)
        if not inspect.isfunction(function):
            raise SchemeError(
                f"module {self.module} has no function {self.name}; it was there when the graph was built"
            )
        if source_digest(inspect.getsource(function)) != self.digest:
            raise SchemeError(
                f"function {self.name} of module {self.module} is not the one the graph was built with;"
                " restore it, or build the graph again"
            )
        if self.args or self.kwargs:
            return functools.partial(function, *thawed(self.args), **thawed(self.kwargs))
        return function

    def as_dict(self) -> dict[str, Any]:
        """:return: the reference as plain data, arguments left out where there are none"""
        plain = {"module": self.module, "name": self.name, "digest": self.digest}
        arguments = {"args": thawed(self.args), "kwargs": thawed(self.kwargs)}
        return plain | {key: value for key, value in arguments.items() if value}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FunctionReference:
        """
        :param plain: what :meth:`as_dict` gave
        :raises SchemeError: if it is something else
        """
        missing = [key for key in ("module", "name", "digest") if not isinstance(plain.get(key), str)]
        unknown = sorted(set(plain) - {"module", "name", "digest", "args", "kwargs"})
        if missing or unknown:
            raise SchemeError(f"{dict(plain)!r} is no reference to a function: missing {missing}, unknown {unknown}")
        return cls(
            module=plain["module"],
            name=plain["name"],
            digest=plain["digest"],
            args=frozen(plain.get("args", ()), what="args", keep_floats=True),
            kwargs=Options(plain.get("kwargs"), what="kwargs", keep_floats=True),
        )


def check_call(function: Callable[..., Any], *names: str, what: str) -> None:
    """
    :param function: a function, or ``functools.partial`` of one
    :param names: what it is called with, each by its name
    :param what: names it in an error
    :raises SchemeError: if it cannot be called like that, or takes nothing beyond it
    """
    called = f"({', '.join(f'{name}=...' for name in names)}, **_)"
    try:
        inspect.signature(function).bind(**dict.fromkeys([*names, "_added_by_a_later_version"]))
    except (TypeError, ValueError) as exc:  # ValueError: what a partial binds does not fit its function
        inner = function.func if isinstance(function, functools.partial) else function
        raise SchemeError(
            f"{what} cannot be called as {called}: its parameters are {inspect.signature(inner)}"
            f" ({exc}); let it take these by name, and **_ for what later versions add"
        ) from exc


def source_digest(source: str) -> str:
    """
    :param source: the text of one function
    :return: SHA-256 of its normal form, which has no comments, docstrings or layout, hexadecimal
    """
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, AttributeError, ValueError) as exc:
        raise SchemeError(f"function {name} of module {module}: the module cannot be imported ({exc}); {_HOW}") from exc
