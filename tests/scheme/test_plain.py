"""Plain data has one normal form, and nothing else gets in."""

from __future__ import annotations

import copy
import enum
import pickle

import numpy as np
import pytest

from syncopate.errors import SchemeError
from syncopate.scheme.plain import Options, flag, frozen, number, period, python_value, python_values, thawed, whole


class Size(enum.IntEnum):
    TWO = 2


class Word(enum.StrEnum):
    GLOO = "gloo"


def test_equal_meaning_is_equal():
    one = Options({"b": [1, 2.0], "a": {"y": None, "x": 2.0}})
    other = Options({"a": {"x": 2, "y": None}, "b": (1.0, 2)})
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other) == "{'a': {'x': 2, 'y': None}, 'b': [1, 2]}"


@pytest.mark.parametrize(("one", "other"), [(True, 1), (False, 0), ([True], [1]), ({"x": True}, {"x": 1.0}), ("1", 1)])
def test_true_and_one_are_two_things(one, other):
    """They are written as two, hashed as two, and DDP may tell them apart."""
    assert Options({"a": one}) != Options({"a": other})
    assert Options({"a": one}) == Options({"a": one})


def test_options_equal_the_dict_they_hold():
    options = Options({"a": [1, {"b": 2.0}]})
    assert options == {"a": [1, {"b": 2}]}
    assert options != {"a": object()}
    assert options != 3
    assert dict(Options()) == {}
    assert Options() == Options(None) == Options({})


def test_what_the_caller_does_later_changes_nothing():
    inner = [1, 2]
    values = {"a": inner, "b": {"c": inner}}
    options = Options(values)
    inner.append(3)
    values["d"] = 4
    assert options == {"a": [1, 2], "b": {"c": [1, 2]}}
    taken = thawed(options)
    taken["a"].append(5)
    taken["b"]["c"].append(5)
    assert options == {"a": [1, 2], "b": {"c": [1, 2]}}


def test_options_cannot_be_changed():
    options = Options({"a": 1})
    with pytest.raises(TypeError):
        options["a"] = 2
    with pytest.raises(TypeError):
        del options["a"]
    with pytest.raises(KeyError):
        _ = options["b"]


def test_options_travel():
    options = Options({"a": [1, {"b": True}], "c": 0.5})
    assert pickle.loads(pickle.dumps(options)) == copy.deepcopy(options) == copy.copy(options) == options


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(2.0), 2.0),
        (np.int64(3), 3),
        (np.True_, True),
        (np.str_("x"), "x"),
        (np.array(7), 7),
        (Size.TWO, 2),
        (Word.GLOO, "gloo"),
        (True, True),
        (10**400, 10**400),
        (None, None),
        ("ü\n", "ü\n"),
    ],
)
def test_numpy_scalars_and_members_of_enumerations_are_the_values_they_hold(value, plain):
    found = python_value(value)
    assert found == plain
    assert type(found) is type(plain)
    assert type(frozen(value, what="x")) is (int if plain == 2.0 else type(plain))


def test_containers_are_copied():
    inner = [np.float64(0.5), {1, 2}]
    values = python_values({np.str_("a"): inner, "b": (inner, frozenset({Size.TWO}))})
    assert values == {"a": [0.5, {1, 2}], "b": ([0.5, {1, 2}], frozenset({2}))}
    assert type(values["a"][0]) is float
    assert type(next(iter(values["b"][1]))) is int
    inner.append(1)
    assert len(values["a"]) == 2
    marker = object()
    assert python_values(marker) is marker


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), object(), {1, 2}, b"x", 1j, np.zeros(2), lambda: 0, ...]
)
def test_what_is_not_plain(value):
    for given, where in ((value, "opts['a']"), ([value], "opts['a'][0]"), ({"b": value}, "opts['a']['b']")):
        with pytest.raises(SchemeError) as caught:
            Options({"a": given}, what="opts")
        assert str(caught.value) == (
            f"{where}: {value!r} of type {type(value).__name__} cannot be written into a config;"
            " use None, bool, int, finite float, str, and lists, tuples or dicts of them"
        )


@pytest.mark.parametrize("values", [3, "ab", [("a", 1)], True])
def test_what_is_no_dict(values):
    with pytest.raises(SchemeError, match="opts must be a dict, got"):
        Options(values, what="opts")


def test_keys_that_are_no_strings():
    with pytest.raises(SchemeError, match=r"^opts: keys must be strings, got 1$"):
        Options({"a": 2, 1: 2}, what="opts")
    with pytest.raises(SchemeError, match=r"^opts\['a'\]: keys must be strings, got None$"):
        Options({"a": {None: 2}}, what="opts")


def test_floats_can_be_kept_for_functions():
    assert frozen([2.0, {"a": 3.0}], what="x", keep_floats=True)[0] == 2.0
    kept = Options({"a": [2.0]}, keep_floats=True)
    assert repr(kept) == "{'a': [2.0]}"
    assert kept != Options({"a": [2]}, keep_floats=True)


@pytest.mark.parametrize("value", [1, 2.0, 500, np.int64(3), np.float64(4), 10**30, 1e300, Size.TWO])
def test_periods(value):
    found = period(value, what="every")
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [0, -1, 0.5, 1.5, -2.0, True, False, None, "2", float("nan"), float("inf"), -float("inf"), [2], np.float64(0.5)],
)
def test_what_is_no_period(value):
    with pytest.raises(SchemeError) as caught:
        period(value, what="every")
    assert str(caught.value) == f"every counts updates and must be a whole number of at least 1, got {value!r}"


@pytest.mark.parametrize(("value", "found"), [(2.0, 2), (0, 0), (-1, -1), (True, None), (2.5, None), ("2", None)])
def test_whole_numbers(value, found):
    assert whole(value) == found


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1, True, "0.5", None, 1j])
def test_what_is_no_number_of_the_range(value):
    with pytest.raises(SchemeError) as caught:
        number(value, what="lr", low=0.0, high=1.0)
    assert str(caught.value) == f"lr must be a number of at least 0 and at most 1, got {value!r}"


def test_numbers_and_flags():
    assert number(np.float32(0.5), what="lr", low=0.0) == 0.5
    assert number(10**400, what="lr", low=0.0) == 10**400
    assert flag(np.True_, what="x") is True
    for value in (1, 0, "True", None):
        with pytest.raises(SchemeError, match=rf"^x must be True or False, got {value!r}$"):
            flag(value, what="x")
