"""
The values that RETURNN writes as Python source, read by walking the syntax tree: nothing is ever executed.

Understood are numbers, strings, True, False, None, lists, tuples, dicts, ``nan``, ``inf``, ``float('nan')``, and what
numpy 2 shows of its scalars: ``np.float64(0.1)``, ``np.True_``. Anything else is an error that quotes its source.
"""

from __future__ import annotations

import ast
import math
import re

from syncopate.errors import ReadError

_MAX_DEPTH = 20
_MAX_QUOTE = 100

_FLOATS = ("float16", "float32", "float64", "float128", "longdouble")
_INTS = ("int8", "int16", "int32", "int64", "longlong", "uint8", "uint16", "uint32", "uint64", "ulonglong")
_FLOAT = (float, (float, int, str))
_CONVERSIONS: dict[str, tuple[type, tuple[type, ...]]] = {
    **dict.fromkeys(_FLOATS, _FLOAT),
    **dict.fromkeys(_INTS, (int, (int,))),
    "str_": (str, (str,)),
    "bool_": (bool, (bool,)),
}
"""By the name of a numpy scalar: what it is read as, and what may stand in its parentheses."""
_NUMPY_CONSTANTS = {"True_": True, "False_": False}
_NAMES = {"nan": math.nan, "inf": math.inf}

# With numpy 2, RETURNN quotes the repr of a np.float64 that is not finite, and then cannot read its own file again.
_QUOTED_NUMPY = re.compile(r"np\.float64\((nan|inf|-inf)\)")


class SourceLiterals:
    """
    Reads the values in one source text. Every method raises :class:`ReadError` at what RETURNN does not write.

    :param text: Python source of one expression
    :param source: its file, for messages
    """

    def __init__(self, text: str, *, source: str) -> None:
        self._text = text.lstrip(" \t")
        self._source = source

    def syntax_tree(self) -> ast.expr:
        """:return: the expression"""
        try:
            return ast.parse(self._text, mode="eval").body
        except SyntaxError as exc:
            lines = self._text.split("\n")
            line = min(exc.lineno or 1, len(lines))
            reason = f"was cut off, or RETURNN did not write it ({exc.msg[:_MAX_QUOTE]})"
            raise ReadError(f"{self._source}:{line}: {reason}: {_quote(lines[line - 1])}") from exc
        except ValueError as exc:
            raise ReadError(f"{self._source}:1: is no text ({exc}): {_quote(self._text)}") from exc
        except (RecursionError, MemoryError) as exc:
            raise ReadError(f"{self._source}:1: is nested too deeply: {_quote(self._text)}") from exc

    def value(self, node: ast.expr, depth: int = 0) -> object:
        """
        :param node: a part of the tree
        :param depth: levels of nesting around it
        :return: its value
        """
        if depth > _MAX_DEPTH:
            raise self.error(node, f"more than {_MAX_DEPTH} levels of nesting")
        inner = depth + 1
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as constant):
                return constant
            case ast.Name(id=name) if name in _NAMES:
                return _NAMES[name]
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._int_or_float(operand, "what follows a sign", inner)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._int_or_float(operand, "what follows a sign", inner)
            case ast.List(elts=items):
                return [self.value(item, inner) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item, inner) for item in items)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {self.key(key, value, inner): self.value(value, inner) for key, value in pairs}
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) if name in _NUMPY_CONSTANTS:
                return _NUMPY_CONSTANTS[name]
            case ast.Call(func=ast.Name(id="float"), args=[argument], keywords=[]):
                number = self.value(argument, inner)
                quoted = _QUOTED_NUMPY.fullmatch(number) if isinstance(number, str) else None
                return self._converted(node, _FLOAT, quoted[1] if quoted else number)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name), args=[argument], keywords=[]
            ) if name in _CONVERSIONS:
                return self._converted(node, _CONVERSIONS[name], self.value(argument, inner))
        raise self.error(node, "RETURNN writes nothing like this")

    def number(self, node: ast.expr, what: str) -> float:
        """
        :param node: a part of the tree
        :param what: what it is, for messages
        :return: its value, which must be a number
        """
        try:
            return float(self._int_or_float(node, what, 0))
        except OverflowError as exc:
            raise self.error(node, f"{what} is too large") from exc

    def key(self, node: ast.expr | None, value: ast.expr, depth: int = 0) -> object:
        """
        :param node: the key of a dict; None is how the tree says ``**``
        :param value: the value that belongs to it
        :param depth: levels of nesting around it
        :return: the value of the key
        """
        if node is None:
            raise self.error(value, "expected 'key: value', got '**' before")
        key = self.value(node, depth)
        try:
            hash(key)
        except TypeError as exc:
            raise self.error(node, "cannot be the key of a dict") from exc
        return key

    def error(self, node: ast.expr | ast.keyword, what: str) -> ReadError:
        """
        :param node: the offending part of the tree
        :param what: what is wrong with it
        :return: the error to raise, with file, line and source
        """
        segment = ast.get_source_segment(self._text, node) or ""
        return ReadError(f"{self._source}:{node.lineno}: {what}: {_quote(segment)}")

    def _int_or_float(self, node: ast.expr, what: str, depth: int) -> int | float:
        value = self.value(node, depth)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(node, f"{what} must be a number, got")
        return value

    def _converted(self, node: ast.expr, conversion: tuple[type, tuple[type, ...]], argument: object) -> object:
        result, allowed = conversion
        if type(argument) not in allowed:
            raise self.error(node, "RETURNN writes no such argument")
        try:
            return result(argument)
        except (ValueError, OverflowError) as exc:
            raise self.error(node, f"is no number ({exc})") from exc


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTE else text[:_MAX_QUOTE] + " ...")
