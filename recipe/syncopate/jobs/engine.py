"""
Will the engine of this setup run these trainings? Asked when they are registered, since later it is seen badly.

LocalEngine refuses what has nodes only when it is submitted, and lets what is too big wait for ever. SLURM refuses what
no partition has when it is submitted, and bills whole nodes without a word. An engine that is not what
``SYNCOPATE_ENGINE`` says starts the ranks in the wrong place. See :mod:`syncopate.settings` for the cure.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import sisyphus.global_settings as gs
from sisyphus import Task, toolkit
from sisyphus.engine import EngineBase, EngineSelector
from sisyphus.localengine import LocalEngine

from syncopate.errors import SiteError, SweepError, did_you_mean
from syncopate.launch.kept import ENGINE

_CONFIGURE_LOCAL = 'call configure(globals(), engine="local") of syncopate.settings at the end of settings.py'


def check_engine(jobs: Sequence[Any], *, names: Sequence[str]) -> None:
    """
    :param jobs: trainings, whose requirements are final
    :param names: what to call each of them in an error, such as "sweep 'sync', row 'ddp'"
    :raises SweepError: if the engine that a training is for would refuse it, or let it wait for ever, or if its ranks
        would be started in the wrong place. GPUs that would be billed and stay idle are a warning
    """
    for job, name in zip(jobs, names, strict=True):
        for task in _queued_tasks(job):
            _check_task(task, name)


def engine_of(task: Task, rqmt: dict[str, Any], *, name: str) -> EngineBase:
    """
    :param task: of a job
    :param rqmt: its requirements
    :param name: as in :func:`check_engine`
    :return: the engine it is submitted to
    :raises SweepError: if it names an engine that the setup does not have
    """
    engine = toolkit.cached_engine()
    if not isinstance(engine, EngineSelector):
        return engine
    word = rqmt.get("engine", engine.default_engine)
    if word not in engine.engines:
        raise SweepError(
            f"{name}: its task {task.name()!r} is for the engine {word!r}, but engine() in settings.py has"
            f" {sorted(engine.engines)}{did_you_mean(word, engine.engines)}"
        )
    return engine.get_used_engine_by_rqmt(rqmt)


def _queued_tasks(job: Any) -> Iterator[Task]:
    """Tasks as Sisyphus makes them once the job can run, without those for the short engine. Nothing is shared."""
    for task in job.tasks():
        if task.mini_task:
            continue
        task.set_job(job)
        overwrite, replaces = job._sis_task_rqmt_overwrite.get(task.name(), ({}, False))
        task._rqmt = copy.deepcopy({**({} if replaces else task._rqmt), **overwrite})
        yield task


def _check_task(task: Task, name: str) -> None:
    num_nodes = task.rqmt().get("multi_node_slots") or 1
    rqmt = _requirements(task, name)
    engine = engine_of(task, rqmt, name=name)
    word = _variable_in_task(task, ENGINE)
    if not isinstance(engine, LocalEngine):
        if num_nodes > 1 and word == "local":
            raise SweepError(
                f"{name}: {ENGINE} is 'local', which starts all {num_nodes} nodes on one host, but the training is for"
                f' {type(engine).__name__}; call configure(globals()) without engine="local" in settings.py, and unset'
                " the variable in the shell"
            )
        _warn_of_idle_gpus(rqmt, num_nodes=num_nodes, name=name)
        return
    if rqmt.get("multi_node_slots"):
        raise SweepError(
            f"{name}: it asks for multi_node_slots={rqmt['multi_node_slots']}, and LocalEngine refuses jobs on several"
            f" nodes; {_CONFIGURE_LOCAL} to emulate them on this host, or give trainings a SLURM engine"
        )
    if num_nodes > 1 and word != "local":
        raise SweepError(
            f"{name}: LocalEngine would run it on this host, but its {num_nodes} nodes are emulated there only if"
            f" {ENGINE} is 'local' in its environment, where it is {word!r}; {_CONFIGURE_LOCAL}"
        )
    _check_room(engine, rqmt, num_nodes=num_nodes, name=name)


def _check_room(engine: LocalEngine, rqmt: dict[str, Any], *, num_nodes: int, name: str) -> None:
    together = f" for all {num_nodes} nodes together" if num_nodes > 1 else ""
    for key, limit in engine.max_resources.items():
        wanted = rqmt.get(key, 0)
        if wanted > limit:
            raise SweepError(
                f"{name}: it asks for {wanted:g} of {key!r} on this host{together}, but LocalEngine has {limit:g}, so"
                " that it would wait for ever; use fewer ranks, ask for less per rank, or give LocalEngine more in"
                " settings.py"
            )
    wanted, named = rqmt.get("gpu", 0), sorted(engine.available_gpus)
    if wanted > len(named):
        raise SweepError(
            f"{name}: it asks for {wanted:g} of 'gpu' on this host{together}, but LocalEngine(available_gpus=...) names"
            f" {named}, and it would stop the manager; name as many there as gpus=... says"
        )


def _warn_of_idle_gpus(rqmt: dict[str, Any], *, num_nodes: int, name: str) -> None:
    site = getattr(gs.check_engine_limits, "site", None)
    partition = None if site is None else site.partition_of(rqmt)
    if partition is None or not partition.whole_node:
        return
    gpus = partition.shape.gpus
    idle = gpus - rqmt.get("gpu", 0)
    if idle > 0:
        each = f"of the {num_nodes} nodes" if num_nodes > 1 else "of its node"
        time_h = rqmt["time"]
        logging.warning(
            f"{name}: the partition {partition.name!r} bills whole nodes, and {idle:g} of {gpus} GPUs {each} stay idle:"
            f" {time_h:g} h cost {num_nodes * gpus * time_h:g} GPU-hours, {num_nodes * idle * time_h:g} of them for"
            f" nothing; train {gpus} ranks per node, or use a partition whose nodes are shared"
        )


def _requirements(task: Task, name: str) -> dict[str, Any]:
    """:return: what it will be submitted with: defaults of the engine added, then limited by the settings"""
    engine_of(task, task.rqmt(), name=name)
    try:
        rqmt = toolkit.cached_engine().get_rqmt(task, 1, update=False)
    except SiteError as exc:
        # The row says more than the name of the task, which comes before the cause.
        raise SweepError(f"{name}: {exc.__cause__ or exc}") from exc
    except Exception as exc:
        raise SweepError(
            f"{name}: check_engine_limits() of settings.py fails for the requirements {task.rqmt()}, with"
            f" {type(exc).__name__}: {exc}; so would a submission"
        ) from exc
    if not isinstance(rqmt, dict):
        raise SweepError(
            f"{name}: check_engine_limits() of settings.py gives {rqmt!r} for the requirements {task.rqmt()}; it must"
            " return requirements"
        )
    return rqmt


def _variable_in_task(task: Task, name: str) -> str | None:
    """:return: a variable as the task will find it, if the engine hands on the manager's environment"""
    environment = task._job._sis_environment
    for given in (environment.set_vars_verbatim, environment.set_vars):
        if name in given:
            return str(given[name])
    return None if environment.cleanup_env and name not in environment.keep_vars else os.environ.get(name)
