"""Asking for more memory: once, for the host's alone, and within what the setup has."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.needs_sisyphus

DECLARED = {"cpu": 2, "mem": 8, "time": 4}
FULL = {"out_of_memory": True, "used_time": 3.99, "max": {"rss": 7.9}}


@pytest.fixture
def memory(monkeypatch):
    module = importlib.import_module("syncopate.jobs.memory")
    monkeypatch.setattr(module.gs, "check_engine_limits", lambda rqmt, task: rqmt)
    return module


def limited(monkeypatch, memory, cap_gb):
    limits = SimpleNamespace(mem_cap_gb=lambda rqmt: cap_gb)
    monkeypatch.setattr(memory.gs, "check_engine_limits", limits)


def test_a_host_out_of_memory_asks_for_twice_as_much_once(memory):
    once = memory.grow_memory({**DECLARED}, FULL, declared=DECLARED)
    assert once == {"cpu": 2, "mem": 16, "time": 4}
    assert memory.grow_memory(once, FULL, declared=DECLARED) == once


@pytest.mark.parametrize("usage", [{}, {"out_of_time": True, "used_time": 4.1}, {"max": {"rss": 7.99}}])
def test_neither_a_time_limit_nor_a_full_but_sufficient_memory_changes_anything(memory, usage):
    assert memory.grow_memory({**DECLARED}, usage, declared=DECLARED) == DECLARED


@pytest.mark.parametrize(("cap_gb", "mem"), [(12, 12), (8, 8), (4, 8), (100, 16)])
def test_growth_ends_at_what_the_partitions_have(memory, monkeypatch, cap_gb, mem):
    limited(monkeypatch, memory, cap_gb)
    assert memory.grow_memory({**DECLARED}, FULL, declared=DECLARED)["mem"] == mem


@pytest.mark.parametrize(
    ("given_mb", "cap_gb", "may"),
    [(None, 100, True), ("8192", 100, True), ("16384", 100, False), ("8192", 8, False)],
)
def test_a_task_knows_whether_another_try_may_get_more(memory, monkeypatch, given_mb, cap_gb, may):
    limited(monkeypatch, memory, cap_gb)
    environ = {} if given_mb is None else {"SLURM_MEM_PER_NODE": given_mb}
    assert memory.may_grow(DECLARED, environ) is may


def test_less_than_a_gigabyte_grows_to_something_else(memory):
    declared = {"cpu": 1, "mem": 0.4, "time": 1}
    assert memory.grow_memory({**declared}, FULL, declared=declared)["mem"] == 2
    assert not memory.may_grow(declared, {"SLURM_MEM_PER_NODE": "2048"})
