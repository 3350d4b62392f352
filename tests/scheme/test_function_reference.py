"""K04: a function is found again in a clean interpreter and is the same, or it is refused when the graph is built."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import syncopate
from syncopate import Cluster, TrainingConfig, custom, with_scheme
from syncopate.errors import SchemeError
from syncopate.returnn_io.write import config_text
from syncopate.scheme.function import FunctionReference, source_digest

RECIPE = Path(syncopate.__file__).parents[1]

HOOKS = '''
"""Hooks of a user."""
import functools

GAMMA = 0.5

def halve(*, module, epoch_step_idx, factor=0.5, shifts=(), **_kwargs):
    """Makes the parameters smaller."""
    # The first comment.
    for parameter in module:
        parameter[0] = parameter[0] * factor + sum(shifts)
    return epoch_step_idx, factor, type(factor).__name__, list(shifts)

def same_name(module):
    return 1

first_same_name = same_name

def same_name(module):
    return 2

def decorator(function):
    @functools.wraps(function)
    def wrapped(**kwargs):
        return function(**kwargs) + 1
    return wrapped

@decorator
def decorated(*, module, epoch_step_idx, **_kwargs):
    return 10

def anonymous_decorator(function):
    def wrapped(**kwargs):
        return function(**kwargs)
    return wrapped

@anonymous_decorator
def hidden(*, module, epoch_step_idx, **_kwargs):
    return 10

def factory(constant):
    def made(*, module, epoch_step_idx, **_kwargs):
        return constant
    return made

nested = factory(1)
shortest = lambda *, module, epoch_step_idx, **_kwargs: 0

class Hook:
    def __call__(self, *, module, epoch_step_idx, **_kwargs):
        return 0
    def method(self, *, module, epoch_step_idx, **_kwargs):
        return 0
    @staticmethod
    def static(*, module, epoch_step_idx, **_kwargs):
        return 0

def generator(*, module, epoch_step_idx, **_kwargs):
    yield 1

async def coroutine(*, module, epoch_step_idx, **_kwargs):
    return 1

def closed(*, module, epoch_step_idx):
    return 1

def positional(module, epoch_step_idx, /, **_kwargs):
    return 1

def other(*, module, step, **_kwargs):
    return 1
'''


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    """A module of a user, which can be imported here and in the programs that the tests start."""
    (tmp_path / "user_hooks.py").write_text(HOOKS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(RECIPE)]))
    yield importlib.import_module("user_hooks")
    del sys.modules["user_hooks"]


def message(call):
    with pytest.raises(SchemeError) as caught:
        call()
    return str(caught.value)


def called_from_config(scheme, tmp_path):
    """What the scheme's function gives in an interpreter that has nothing but the text of the config."""
    config = with_scheme(TrainingConfig(config={"backend": "torch"}), scheme, Cluster(num_gpus_per_node=2))
    path = tmp_path / "returnn.config"
    path.write_text(config_text(config), encoding="utf-8")
    code = """
import json, sys
values = {}
exec(open(sys.argv[1], encoding="utf-8").read(), values)
from syncopate.scheme.function import FunctionReference
function = FunctionReference.from_dict(values["torch_distributed"]["syncopate"]["hook"]["function"]).load()
module = [[4.0]]
print(json.dumps([function(module=module, epoch_step_idx=3, later=1), module]))
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_k04_a_function_of_a_module_works_in_a_clean_interpreter(hooks, tmp_path):
    module = [[4.0]]
    expected = list(hooks.halve(module=module, epoch_step_idx=3))
    assert called_from_config(custom(hooks.halve), tmp_path) == [expected, module] == [[3, 0.5, "float", []], [[2.0]]]


def test_k04_a_partial_works_in_a_clean_interpreter(hooks, tmp_path):
    """Its arguments are those that were given: 2.0 does not become 2 on the way."""
    function = functools.partial(functools.partial(hooks.halve, factor=1.0), factor=2.0, shifts=(1, 0.5))
    module = [[4.0]]
    expected = list(function(module=module, epoch_step_idx=3))
    assert called_from_config(custom(function), tmp_path) == [expected, module]
    assert expected == [3, 2.0, "float", [1, 0.5]]
    assert type(FunctionReference.of(functools.partial(hooks.halve, factor=2)).load().keywords["factor"]) is int


def test_k04_a_decorated_function_that_keeps_its_name_works(hooks, tmp_path):
    assert called_from_config(custom(hooks.decorated), tmp_path)[0] == 11


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nested", "function factory.<locals>.made of module user_hooks is no top-level function"),
        ("shortest", "function <lambda> of module user_hooks is a lambda"),
        ("hidden", "function anonymous_decorator.<locals>.wrapped of module user_hooks is no top-level function"),
        ("Hook.static", "function Hook.static of module user_hooks is no top-level function"),
        ("Hook.method", "function Hook.method of module user_hooks is no top-level function"),
        ("first_same_name", "is not what its module holds under that name (decorated, or defined again?)"),
        ("generator", "function generator of module user_hooks is a coroutine or a generator"),
        ("coroutine", "function coroutine of module user_hooks is a coroutine or a generator"),
    ],
)
def test_k04_other_functions_are_refused(hooks, name, reason):
    function = functools.reduce(getattr, name.split("."), hooks)
    for given in (function, functools.partial(function), functools.partial(function, 1)):
        text = message(lambda given=given: custom(given))
        assert reason in text
        assert text.endswith(
            "; use a function defined at the top level of a module, or functools.partial of one with plain arguments"
        )


def test_k04_what_is_no_function_is_refused(hooks):
    for given in (hooks.Hook(), hooks.Hook, hooks.Hook().method, print, len, functools, None, "halve", 3):
        assert f"{given!r} is no plain function and could not be found again" in message(
            lambda given=given: custom(given)
        )


def test_k04_a_function_of_the_running_script_is_refused():
    code = """
from syncopate import custom
from syncopate.errors import SchemeError
def hook(*, module, epoch_step_idx, **_): pass
try:
    custom(hook)
except SchemeError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=RECIPE, check=True)
    assert done.stdout.startswith(
        "function hook of module __main__ belongs to the running script, which a training cannot import; use a function"
    )


def test_a_function_without_module_or_source_is_refused(hooks):
    made = {"__name__": "no_such_module"}
    exec("def hook(*, module, epoch_step_idx, **_): pass", made)
    assert "function hook of module no_such_module: the module cannot be imported" in message(
        lambda: custom(made["hook"])
    )
    made = {"__name__": "user_hooks"}
    exec("def without_source(*, module, epoch_step_idx, **_): pass", made)
    hooks.without_source = made["without_source"]
    assert "function without_source of module user_hooks has no source to tell its versions apart" in message(
        lambda: custom(made["without_source"])
    )


@pytest.mark.parametrize("value", [object(), print, {1}, float("nan"), float("inf"), b"x"])
def test_arguments_of_a_partial_that_are_not_plain(hooks, value):
    text = message(lambda: custom(functools.partial(hooks.halve, factor=value)))
    assert text.startswith(f"functools.partial of halve: argument['factor']: {value!r} of type {type(value).__name__}")
    text = message(lambda: FunctionReference.of(functools.partial(hooks.same_name, [value])))
    assert text.startswith("functools.partial of same_name: argument[0][0]: ")


@pytest.mark.parametrize("name", ["closed", "positional", "other"])
def test_a_function_that_cannot_be_called_as_a_hook_is_refused(hooks, name):
    text = message(lambda: custom(getattr(hooks, name)))
    assert text.startswith(
        f"custom: function {name} of module user_hooks cannot be called as (module=..., epoch_step_idx=..., **_):"
        " its parameters are ("
    )
    assert text.endswith("; let it take these by name, and **_ for what later versions add")


def test_a_partial_can_make_a_function_fit(hooks):
    assert custom(functools.partial(hooks.other, step=1)).hook.function.kwargs == {"step": 1}
    assert "cannot be called as" in message(lambda: custom(functools.partial(hooks.halve, 1)))


def test_the_scheme_is_declared_and_not_trained_yet(hooks):
    scheme = custom(hooks.halve, every=2.0)
    assert scheme == custom(hooks.halve, every=2)
    assert scheme.epoch_end == "average"
    assert scheme.text == "user_hooks.halve every 2 updates"
    assert scheme.as_dict() == {
        "hook": {
            "function": {"module": "user_hooks", "name": "halve", "digest": FunctionReference.of(hooks.halve).digest},
            "every": 2,
        },
        "epoch_end": "average",
    }


# The digest

BASE = "def hook(*, module, **_):\n    x = 0.5\n    return x * 2\n"


@pytest.mark.parametrize(
    "source",
    [
        BASE + "\n\n# a comment\n",
        'def hook(*, module, **_):\n    """A docstring."""\n    x = 0.5\n    return x * 2\n',
        "def hook(*, module, **_):\n\n    x = .5  # half\n    return (x *\n            2)\n",
        "def hook(\n    *,\n    module,\n    **_,\n):\n  x = 5e-1\n\n  return x*2\n",
        "    def hook(*, module, **_):\n        x = 0.5\n        return x * 2\n",
        "def hook(*, module, **_): x = 0.5; return x * 2",
        BASE.replace("\n", "\r\n"),
    ],
)
def test_k01_comments_docstrings_and_layout_do_not_count(source):
    assert source_digest(source) == source_digest(BASE)


@pytest.mark.parametrize(
    "source",
    [
        BASE.replace("0.5", "0.25"),
        BASE.replace("2", "2.0"),
        BASE.replace("x * 2", "2 * x"),
        BASE.replace("hook", "other"),
        BASE.replace("module,", "module=None,"),
        BASE.replace("**_", "**kwargs"),
        "@decorator\n" + BASE,
        BASE.replace("    return", "    'not a docstring'\n    return"),
    ],
)
def test_k01_what_is_done_counts(source):
    assert source_digest(source) != source_digest(BASE)


def test_docstrings_of_inner_functions_and_classes_do_not_count():
    inner = "def hook():\n    class C:\n        {doc}\n        x = 1\n    def f():\n        {doc}\n    return C, f\n"
    with_docs = inner.format(doc='"""Words."""')
    without = inner.replace("        {doc}\n        x", "        x").replace("{doc}", "pass")
    assert source_digest(with_docs) == source_digest(without)


def test_the_digest_is_the_same_in_every_process_and_python():
    """``ast.dump`` is not: the value is pinned, so that another Python shows here if its normal form differs."""
    assert source_digest(BASE) == "5344f62d763534c96b3d7d9db500413d93fd377045d42fdd6710a04d7495e0b6"


def test_k01_two_functions_that_differ_in_a_constant_are_two_schemes(hooks, tmp_path):
    (tmp_path / "more_hooks.py").write_text(
        "def hook(*, module, **_):\n    return 1\n\n\ndef same(*, module, **_):\n    return 1\n\n\n"
        "def kook(*, module, **_):\n    return 2\n",
        encoding="utf-8",
    )
    more = importlib.import_module("more_hooks")
    references = [FunctionReference.of(function) for function in (more.hook, more.same, more.kook, hooks.halve)]
    assert len(set(references)) == len({reference.digest for reference in references}) == 4


def test_a_function_that_changed_since_is_refused(hooks, tmp_path):
    reference = FunctionReference.of(hooks.halve)
    path = tmp_path / "user_hooks.py"
    plain = json.dumps(reference.as_dict())
    code = f"from syncopate.scheme.function import FunctionReference; FunctionReference.from_dict({plain}).load()"

    def load():
        return subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60)

    path.write_text(HOOKS.replace("# The first comment.", "# Another comment."), encoding="utf-8")
    assert load().returncode == 0
    path.write_text(HOOKS.replace("sum(shifts)", "sum(shifts) + 1"), encoding="utf-8")
    assert (
        load()
        .stderr.strip()
        .endswith(
            "SchemeError: function halve of module user_hooks is not the one the graph was built with; restore it, or"
            " build the graph again"
        )
    )
    path.write_text(HOOKS.replace("def halve", "def halves"), encoding="utf-8")
    assert "module user_hooks has no function halve; it was there when the graph was built" in load().stderr
    path.unlink()
    assert "function halve of module user_hooks: the module cannot be imported" in load().stderr


# References as values


def test_a_reference_is_a_value(hooks):
    reference = FunctionReference.of(functools.partial(hooks.halve, factor=2, shifts=[1, True]))
    same = FunctionReference.of(functools.partial(hooks.halve, shifts=(1, True), factor=2))
    assert reference == same
    assert hash(reference) == hash(same)
    assert copy.deepcopy(reference) == pickle.loads(pickle.dumps(reference)) == reference
    assert FunctionReference.from_dict(json.loads(json.dumps(reference.as_dict()))) == reference
    assert reference.load()(module=[], epoch_step_idx=0) == (0, 2, "int", [1, True])
    for factor, shifts in ((2.0, [1, True]), (2, [1, 1]), (2, [True, True]), (2, [1.0, True])):
        other = FunctionReference.of(functools.partial(hooks.halve, factor=factor, shifts=shifts))
        assert other != reference
        assert FunctionReference.from_dict(other.as_dict()) == other


def test_positional_arguments_of_partials_add_up(hooks):
    inner = functools.partial(hooks.same_name, 1)
    assert FunctionReference.of(inner).args == (1,)
    assert FunctionReference.of(inner).load()() == 2


@pytest.mark.parametrize(
    ("plain", "text"),
    [
        ({"module": "m", "name": "n"}, "missing ['digest'], unknown []"),
        ({"module": "m", "name": None, "digest": "d", "arg": 1}, "missing ['name'], unknown ['arg']"),
    ],
)
def test_a_dict_that_is_no_reference(plain, text):
    assert message(lambda: FunctionReference.from_dict(plain)) == f"{plain!r} is no reference to a function: {text}"
