"""
Syncopate: compare parameter-synchronisation schemes for RETURNN trainings.

A recipe declares a :class:`Sweep` of schemes over one experiment; Sisyphus or ``python -m syncopate run`` trains each;
one table compares them. The names below are what a recipe imports; each is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncopate.cluster import Cluster
    from syncopate.jobs.training import SyncTrainingJob
    from syncopate.returnn_io.training_config import ProducedFile, TrainingConfig
    from syncopate.returnn_io.with_scheme import with_scheme
    from syncopate.scheme.level import Level
    from syncopate.scheme.named import custom, ddp, diloco, hierarchical, param_avg
    from syncopate.scheme.scheme import Scheme
    from syncopate.scheme.sync import Average, Gradients, Outer
    from syncopate.sweep.resources import Resources
    from syncopate.sweep.sweep import Sweep
    from syncopate.version import __version__

_HOME = {
    "Average": "scheme.sync",
    "Cluster": "cluster",
    "Gradients": "scheme.sync",
    "Level": "scheme.level",
    "Outer": "scheme.sync",
    "ProducedFile": "returnn_io.training_config",
    "Resources": "sweep.resources",
    "Scheme": "scheme.scheme",
    "Sweep": "sweep.sweep",
    "SyncTrainingJob": "jobs.training",
    "TrainingConfig": "returnn_io.training_config",
    "__version__": "version",
    "custom": "scheme.named",
    "ddp": "scheme.named",
    "diloco": "scheme.named",
    "hierarchical": "scheme.named",
    "param_avg": "scheme.named",
    "with_scheme": "returnn_io.with_scheme",
}

__all__ = [
    "Average",
    "Cluster",
    "Gradients",
    "Level",
    "Outer",
    "ProducedFile",
    "Resources",
    "Scheme",
    "Sweep",
    "SyncTrainingJob",
    "TrainingConfig",
    "__version__",
    "custom",
    "ddp",
    "diloco",
    "hierarchical",
    "param_avg",
    "with_scheme",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
