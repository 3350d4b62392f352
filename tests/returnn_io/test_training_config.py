"""A training config is a value of its own: checked and copied when it is built."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
import sys

import numpy as np
import pytest

from syncopate import ProducedFile, TrainingConfig
from syncopate.errors import ConfigError
from syncopate.tasks.char_lm.text import prepare

MADE = ProducedFile(make=prepare, name="train.txt", kwargs={"window": 5})


def message(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


def test_what_the_caller_does_later_changes_nothing():
    inner = {"a": [1, {"b": 2}]}
    config = {"x": inner}
    built = TrainingConfig(
        config=config, post_config={"log": inner["a"]}, reports=["dev_loss_ce"], imports=["import os"]
    )
    inner["a"].append(3)
    config["y"] = 1
    assert built.config == {"x": {"a": [1, {"b": 2}]}}
    assert built.post_config == {"log": [1, {"b": 2}]}
    assert (built.reports, built.imports) == (("dev_loss_ce",), ("import os",))
    changes = [1]
    updated = built.updated({"z": changes})
    changes.append(2)
    updated.config["x"]["a"].append(9)
    assert updated.config["z"] == [1]
    assert built.config == {"x": {"a": [1, {"b": 2}]}}


def test_values_are_plain_python():
    built = TrainingConfig(config={"lr": np.float64(0.5), "n": [np.int64(2)], "flag": np.True_, "s": {np.str_("a")}})
    assert repr(built.config) == "{'lr': 0.5, 'n': [2], 'flag': True, 's': {'a'}}"


def test_a_config_is_a_value():
    built = TrainingConfig(config={"train": {"corpus_file": MADE}}, statistics=MADE)
    assert copy.deepcopy(built) == pickle.loads(pickle.dumps(built)) == built


class Later:
    """What Sisyphus' paths and delayed values have in common: a value there is when a job runs."""

    def get(self):
        return "/a/path"

    def __call__(self):
        return Later()


def test_what_sisyphus_knows_later_is_let_through():
    value = Later()
    assert TrainingConfig(config={"a": [value]}).config["a"][0] is value


def local_function():
    """Stands for a model or a train step."""


@pytest.mark.parametrize("value", [local_function, Later, len, sys, object(), lambda: 0, np.zeros(3), 1j, Later().get])
def test_k04_what_cannot_be_written_is_refused_when_it_is_built(value):
    expected = (
        f"option train['x']: {value!r} of type {type(value).__name__} cannot be written into a config; use plain data,"
        " and an import line for functions"
    )
    assert message(lambda: TrainingConfig(config={"train": {"x": value}})) == expected
    assert "cannot be written into a config" in message(lambda: TrainingConfig(config={}, post_config={"y": (value,)}))
    assert "cannot be written into a config" in message(
        lambda: TrainingConfig(config={"y": {value if callable(value) else Later: 1}})
    )


@pytest.mark.parametrize("name", ["class", "lambda", "a b", "", "1a", "a.b", "a\n", 1, None, "é à"])
def test_names_that_a_config_cannot_hold(name):
    assert message(lambda: TrainingConfig(config={name: 1})) == (
        f"option {name!r} is no name that a RETURNN config can hold"
    )
    assert "is no name" in message(lambda: TrainingConfig(config={}, post_config={name: 1}))


def test_keywords_are_allowed_inside():
    assert (
        TrainingConfig(config={"optimizer": {"class": "adam", "a b": 1, None: 2}}).config["optimizer"]["class"]
        == "adam"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"config": [1]}, "TrainingConfig: config must be a dict of RETURNN options, got [1]"),
        (
            {"config": {}, "post_config": None},
            "TrainingConfig: post_config must be a dict of RETURNN options, got None",
        ),
        (
            {"config": {"a": 1, "b": 2}, "post_config": {"b": 2}},
            "options ['b'] stand in config and in post_config; leave them in one of them",
        ),
        (
            {"config": {}, "reports": "dev_loss_ce"},
            "TrainingConfig: reports must be a tuple of strings, got 'dev_loss_ce'",
        ),
        ({"config": {}, "imports": [1]}, "TrainingConfig: imports must be a tuple of strings, got [1]"),
        (
            {"config": {}, "imports": ("from model import",)},
            "TrainingConfig: imports are no Python: invalid syntax, in 'from model import'",
        ),
        (
            {"config": {}, "imports": ("from .model import get_model",)},
            "TrainingConfig: 'from .model import get_model' is a relative import, and a config is part of no package;"
            " name the module in full",
        ),
        (
            {"config": {}, "statistics": "text.json"},
            "TrainingConfig: statistics must be a ProducedFile, got 'text.json'",
        ),
        (
            {"config": {}, "imports": ("from __future__ import annotations",)},
            "TrainingConfig: 'from __future__ import annotations' does nothing in a config; leave it out",
        ),
        (
            {"config": {}, "python_path": "recipe"},
            "TrainingConfig: python_path must be a tuple of strings, got 'recipe'",
        ),
        ({"config": {}, "references": 3}, "TrainingConfig: references must be a ProducedFile, got 3"),
        (
            {"configs": {}},
            "TrainingConfig: unknown option 'configs', allowed are ['config', 'post_config', 'imports',"
            " 'python_path', 'reports', 'references', 'statistics'] (did you mean 'config'?)",
        ),
    ],
)
def test_configs_that_are_none(options, text):
    assert message(lambda: TrainingConfig(**options)) == text


# Produced files


def test_produced_files_are_found_and_replaced_wherever_they_are():
    config = TrainingConfig(
        config={"train": {"files": [MADE, (MADE, 1)]}, "x": 3},
        post_config={"y": MADE},
        references=ProducedFile(make=prepare, name="references.json"),
        statistics=MADE,
    )
    assert config.produced_files() == [MADE, MADE, MADE, config.references, MADE]
    resolved = config.resolved(lambda wanted: f"/data/{wanted.name}")
    assert resolved.config == {"train": {"files": ["/data/train.txt", ("/data/train.txt", 1)]}, "x": 3}
    assert resolved.post_config == {"y": "/data/train.txt"}
    assert resolved.references is config.references
    assert config.produced_files()


def test_files_of_one_call_have_one_source():
    other = ProducedFile(make=prepare, name="dev.txt", kwargs={"window": np.int64(5)})
    assert other.source == MADE.source
    assert ProducedFile(make=prepare, name="dev.txt", kwargs={"window": 6}).source != MADE.source
    assert (
        ProducedFile(make=prepare, name="x", kwargs={"b": 1, "a": 2}).source
        == ProducedFile(make=prepare, name="x", kwargs={"a": 2, "b": 1}).source
    )


def test_arguments_of_a_produced_file_are_its_own():
    kwargs = {"topics": {"a": ["text"]}, "dev_fraction": 1.0}
    made = ProducedFile(make=prepare, name="x", kwargs=kwargs)
    kwargs["topics"]["a"].append("more")
    assert made.kwargs == {"topics": {"a": ["text"]}, "dev_fraction": 1.0}
    assert type(made.kwargs["dev_fraction"]) is float
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../b", ".", None, 3, "a/.."])
def test_names_that_lead_out_of_the_folder(name):
    assert message(lambda: ProducedFile(make=prepare, name=name)) == (
        f"ProducedFile: name must be a path inside the directory that is made, got {name!r}"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda directory: None, "is a lambda and could not be found again by its name"),
        (print, "ProducedFile: <built-in function print> is no plain function"),
        (functools.partial(prepare, window=3), "ProducedFile: make must be a plain function, got functools.partial("),
        ("prepare", "ProducedFile: 'prepare' is no plain function"),
    ],
)
def test_functions_that_cannot_make_a_file(make, text):
    assert text in message(lambda: ProducedFile(make=make, name="x"))


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, prepare])
def test_arguments_that_are_not_plain(value):
    text = message(lambda: ProducedFile(make=prepare, name="x", kwargs={"a": value}))
    assert text.startswith(f"ProducedFile: kwargs['a']: {value!r} of type")
    assert "kwargs must be a dict" in message(lambda: ProducedFile(make=prepare, name="x", kwargs=[1]))


def test_a_function_of_a_config_can_make_a_file(tmp_path, monkeypatch):
    (tmp_path / "user_data.py").write_text("def make(directory):\n    pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    made = ProducedFile(make=importlib.import_module("user_data").make, name="x.txt")
    assert made.source == ("user_data:make", ())
