"""Sisyphus hashes a declaration as the same in every process, and a field that is added later changes no hash."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.needs_sisyphus

HASHES = """
import functools, json
from sisyphus.hash import short_hash
from syncopate import *
from syncopate.tasks.char_lm.text import prepare
from syncopate.scheme.function import FunctionReference

declared = {
    "cluster": Cluster(num_nodes=2, num_gpus_per_node=4),
    "cpu": Cluster(num_nodes=2, num_gpus_per_node=4, device="cpu"),
    "level": Level([[0, 1], [2, 3]], 5),
    "average": Average(optimizer_state=True),
    "ddp": ddp(options={"b": 1, "a": [True, {"z": 1, "y": 2}]}),
    "ddp bare": ddp(buffers=None),
    "psync": param_avg(every=10),
    "psync view": param_avg(every=10, epoch_end="view"),
    "hierarchical": hierarchical(node="gradients", world_every=20),
    "diloco": diloco(),
    "function": FunctionReference.of(functools.partial(prepare, seed=3, window=2)),
}
print(json.dumps({name: short_hash(value) for name, value in declared.items()}))
"""

ADDED = """
import dataclasses
from dataclasses import dataclass, field
from sisyphus.hash import short_hash
import syncopate
from syncopate import *
from syncopate.scheme.function import FunctionReference

def with_new_field(cls, **kwargs):
    new = dataclass(frozen=True, kw_only=True)(
        type(cls.__name__, (cls,), {"__annotations__": {"added": int}, "added": 3, "__module__": cls.__module__})
    )
    new.__qualname__ = cls.__qualname__
    old, default, other = cls(**kwargs), new(**kwargs), new(**kwargs, added=4)
    assert dataclasses.fields(default)[-1].name == "added"
    assert short_hash(old) == short_hash(default), cls
    assert short_hash(old) != short_hash(other), cls

with_new_field(Cluster, num_nodes=2)
with_new_field(Gradients, options={"static_graph": True})
with_new_field(Average)
with_new_field(Outer, optimizer={"class": "sgd", "lr": 1})
with_new_field(Level, group="world", every=3)
with_new_field(Scheme, levels=(Level("world", 3),))
with_new_field(FunctionReference, module="m", name="n", digest="d", args=(1,))
"""


def test_k01_hashes_are_the_same_in_two_processes(setup_folder, python):
    first, second = (
        json.loads(python(HASHES, cwd=setup_folder, env={"PYTHONHASHSEED": seed}).stdout.splitlines()[-1])
        for seed in ("1", "2")
    )
    assert first == second
    assert len(set(first.values())) == len(first)


def test_a_field_added_later_changes_no_hash(setup_folder, python):
    python(ADDED, cwd=setup_folder)


def test_what_means_the_same_has_one_hash(setup_folder, python):
    python(
        """
from sisyphus.hash import short_hash
from syncopate import *
assert short_hash(param_avg(every=2)) == short_hash(param_avg(every=2.0))
assert short_hash(Level([[1, 0], (2, 3)])) == short_hash(Level(((2, 3), [0, 1])))
assert short_hash(ddp(options={"a": 1, "b": [2.0]})) == short_hash(ddp(options={"b": (2,), "a": 1.0}))
assert short_hash(ddp(options={"a": 1})) != short_hash(ddp(options={"a": True}))
""",
        cwd=setup_folder,
    )
