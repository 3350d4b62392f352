"""
What a level combines: :class:`Gradients`, :class:`Average`, :class:`Outer`.

Each is a class of its own with its own options, so that senseless combinations cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncopate.errors import SchemeError, did_you_mean
from syncopate.scheme.declaration import Declaration, known_options
from syncopate.scheme.plain import Options, flag, number, python_value

DDP_BUFFERS = ("rank0", None)

BUFFER_OPTIONS = ("broadcast_buffers", "forward_sync_buffers")
"""DDP's option for buffers, under its name in every torch and the one that newer ones prefer, and obey before it."""

SGD = "sgd"
OPTIMIZERS = (
    *("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop"),
    SGD,
)
"""What an outer step can be made with: the classes of ``torch.optim`` that need no more than gradients."""


@known_options(SchemeError)
@dataclass(frozen=True, kw_only=True)
class Gradients(Declaration):
    """
    The mean of the gradients, before every optimizer update; the ranks of a group never differ.

    As the only level it is ``torch.nn.parallel.DistributedDataParallel`` (DDP), which overlaps the exchange with the
    backward pass; inside a hierarchy, or with ``explicit``, the gradients are averaged after the backward pass.

    :param explicit: average after the backward pass instead of through DDP
    :param options: keyword arguments of DDP, such as ``{"find_unused_parameters": False}``
    :param buffers: what DDP does with buffers such as BatchNorm's running statistics. "rank0": every rank keeps its
        own, those of rank 0 are evaluated and saved. None: DDP's default, which broadcasts them in every forward pass,
        also in the evaluation that only rank 0 runs, where a model with buffers then aborts or hangs.
    """

    explicit: bool = False
    options: Options = field(default_factory=Options)
    buffers: str | None = "rank0"

    def __post_init__(self) -> None:
        object.__setattr__(self, "explicit", flag(self.explicit, what="Gradients: explicit"))
        object.__setattr__(self, "options", Options(self.options, what="Gradients: options"))
        object.__setattr__(self, "buffers", python_value(self.buffers))
        if self.buffers not in DDP_BUFFERS:
            raise SchemeError(f"Gradients: buffers must be one of {list(DDP_BUFFERS)}, got {self.buffers!r}")
        if self.explicit and self.options:
            raise SchemeError(
                f"Gradients: options {dict(self.options)} are for DDP, which explicit=True does not use; leave one out"
            )
        for key in ("module", "device_ids"):
            if key in self.options:
                raise SchemeError(f"Gradients: RETURNN sets DDP's {key!r} itself; leave it out of options")
        for key in BUFFER_OPTIONS:
            if self.buffers is not None and key in self.options:
                raise SchemeError(
                    f"Gradients: options say {key}={self.options[key]!r} and buffers says {self.buffers!r};"
                    " say buffers=None to decide by options"
                )

    @property
    def kind(self) -> str:
        """One word for tables and records."""
        return "gradients"


@known_options(SchemeError)
@dataclass(frozen=True, kw_only=True)
class Average(Declaration):
    """
    The mean of the parameters, after every ``every``-th optimizer update.

    :param optimizer_state: average the optimizer's state as well; otherwise each rank keeps its own until the epoch end
    :param on_cpu: average copies in host memory, for models on a GPU whose backend cannot
    """

    optimizer_state: bool = False
    on_cpu: bool = False

    def __post_init__(self) -> None:
        for name in ("optimizer_state", "on_cpu"):
            object.__setattr__(self, name, flag(getattr(self, name), what=f"Average: {name}"))

    @property
    def kind(self) -> str:
        """One word for tables and records."""
        return "parameters and optimizer state" if self.optimizer_state else "parameters"


@known_options(SchemeError)
@dataclass(frozen=True, kw_only=True)
class Outer(Declaration):
    """
    An outer optimizer step on the mean pseudo-gradient (consensus minus a rank's parameters) at the end of a round.

    :param optimizer: the outer optimizer, a dict with ``"class"``, one of :data:`OPTIMIZERS`, ``"lr"`` and its other
        options. Those of "sgd" are checked here: momentum, nesterov.
    """

    optimizer: Options

    def __post_init__(self) -> None:
        optimizer = self.optimizer
        if not isinstance(optimizer, Mapping) or not isinstance(optimizer.get("class"), str):
            raise SchemeError(
                'Outer: optimizer must be a dict with a "class", such as {"class": "sgd", "lr": 0.7},'
                f" got {optimizer!r}"
            )
        object.__setattr__(self, "optimizer", _checked_optimizer(dict(optimizer)))

    @property
    def kind(self) -> str:
        """One word for tables and records."""
        return "pseudo-gradients"


Sync = Gradients | Average | Outer


def _checked_optimizer(optimizer: dict[str, Any]) -> Options:
    name = str(python_value(optimizer["class"])).lower()
    if name not in OPTIMIZERS:
        raise SchemeError(
            f"Outer: optimizer class must be one of {list(OPTIMIZERS)}, got {optimizer['class']!r}"
            f"{did_you_mean(name, OPTIMIZERS)}"
        )
    if "lr" not in optimizer:
        raise SchemeError(f'Outer: optimizer needs an "lr", got {optimizer!r}')
    number(optimizer["lr"], what="Outer: lr", low=0.0)
    optimizer = {**optimizer, "class": name}
    if name == SGD:
        allowed = ("class", "lr", "momentum", "nesterov")
        for key in optimizer:
            if key not in allowed:
                raise SchemeError(
                    f"Outer: unknown option {key!r} of outer SGD, allowed are {list(allowed)}"
                    f"{did_you_mean(key, allowed)}"
                )
        momentum = number(optimizer.get("momentum", 0), what="Outer: momentum", low=0.0, high=1.0)
        if flag(optimizer.get("nesterov", False), what="Outer: nesterov") and not momentum:
            raise SchemeError(
                "Outer: nesterov=True needs a momentum above 0, got momentum 0; give a momentum, or leave nesterov out"
            )
        # Left out or written with its default is one thing.
        optimizer = {key: value for key, value in optimizer.items() if key in ("class", "lr") or value}
    return Options(optimizer, what="Outer: optimizer")
