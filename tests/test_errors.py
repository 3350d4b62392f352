"""The exception tree that the docstring draws, and the hint at the end of a message."""

from __future__ import annotations

import pickle
import re

import pytest

from syncopate import errors


def test_the_tree_is_the_one_that_is_drawn():
    drawn = re.findall(r"[└├│ ─]*([A-Z]\w+Error)( \(also \w+\))?", errors.__doc__.split("A message")[0])
    classes = {name: getattr(errors, name) for name, _ in drawn}
    assert {name for name in vars(errors) if name.endswith("Error")} == set(classes)
    assert all(issubclass(cls, errors.SyncopateError) for cls in classes.values())
    declarations = {"DeclarationError", "SchemeError", "ClusterError", "ConfigError", "SweepError", "SiteError"}
    assert {name for name, cls in classes.items() if issubclass(cls, ValueError)} == declarations
    assert issubclass(errors.NotYetError, NotImplementedError)
    assert not issubclass(errors.NotYetError, errors.DeclarationError)


def test_errors_travel_between_processes():
    """Sisyphus and pytest pickle them."""
    error = pickle.loads(pickle.dumps(errors.SweepError("what is wrong")))
    assert type(error) is errors.SweepError
    assert str(error) == "what is wrong"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("grad", " (did you mean 'gradients'?)"),
        ("PARAMETERS", ""),
        ("xyz", ""),
        (None, ""),
        (3, ""),
    ],
)
def test_did_you_mean(word, hint):
    assert errors.did_you_mean(word, ["gradients", "parameters"]) == hint
