"""Where a sweep enters Sisyphus' graph: an i6_core that lacks something is named before anything of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncopate.doctor.signature import require_i6_core_signature

if TYPE_CHECKING:
    from syncopate.sweep.run import Run
    from syncopate.sweep.sweep import Sweep


def register(sweep: Sweep) -> None:
    """
    :param sweep: checked
    :raises SyncopateError: if i6_core is missing or too old, or see :func:`syncopate.jobs.register.register`
    """
    require_i6_core_signature()
    from syncopate.jobs import register as graph

    graph.register(sweep)


def training_job(sweep: Sweep, run: Run) -> Any:
    """
    :param sweep: it belongs to
    :param run: what is to be trained
    :return: its job, see :func:`syncopate.jobs.register.training_job`
    :raises SyncopateError: if i6_core is missing or too old
    """
    require_i6_core_signature()
    from syncopate.jobs import register as graph

    return graph.training_job(sweep, run)
