"""The named schemes: each a function that returns a :class:`Scheme` of levels, or of a hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncopate.errors import SchemeError, did_you_mean
from syncopate.scheme.declaration import known_options
from syncopate.scheme.function import FunctionReference, check_call
from syncopate.scheme.level import Level
from syncopate.scheme.plain import Options, flag, number, period
from syncopate.scheme.scheme import Hook, Scheme
from syncopate.scheme.sync import Average, Gradients, Outer

NODE_SYNCS = ("gradients", "parameters")

HOOK_ARGUMENTS = ("module", "epoch_step_idx")
"""What a hook is called with by name; later versions may give it more, so it also takes ``**_``."""


@known_options(SchemeError, hint="; what DistributedDataParallel knows goes into options={...}")
def ddp(*, options: Mapping[str, Any] | None = None, explicit: bool = False, buffers: str | None = "rank0") -> Scheme:
    """
    Gradients of all ranks in every update: the usual data-parallel training.

    :param options: keyword arguments of ``DistributedDataParallel``, such as ``{"find_unused_parameters": False}``
    :param explicit: average the gradients after the backward pass instead of through DDP
    :param buffers: "rank0" or None, see :class:`Gradients`
    """
    return Scheme(
        levels=(
            Level(
                "world",
                sync=Gradients(options=Options(options, what="ddp: options"), explicit=explicit, buffers=buffers),
            ),
        )
    )


@known_options(SchemeError)
def param_avg(
    *, every: int, optimizer_state: bool = False, on_cpu: bool = False, epoch_end: str | None = None
) -> Scheme:
    """
    Parameters of all ranks become their mean after every ``every``-th update.

    :param every: period in updates
    :param optimizer_state: average the optimizer's state as well
    :param on_cpu: average copies in host memory
    :param epoch_end: "average" (default), "view" or "as_is", see :class:`Scheme`
    """
    sync = Average(optimizer_state=optimizer_state, on_cpu=on_cpu)
    return Scheme(levels=(Level("world", every, sync=sync),), epoch_end=epoch_end)


@known_options(SchemeError)
def hierarchical(
    *,
    node: str,
    world_every: int,
    node_every: int = 1,
    optimizer_state: bool = False,
    on_cpu: bool = False,
    epoch_end: str | None = None,
) -> Scheme:
    """
    Often within a node, where the links are fast, and seldom across nodes. For more depth write a :class:`Scheme`.

    :param node: what the ranks of a node combine, "gradients" or "parameters"
    :param world_every: period in updates at which the parameters of all ranks become their mean
    :param node_every: period in updates within a node; gradients are combined in every update
    :param optimizer_state: average the optimizer's state as well, wherever parameters are averaged
    :param on_cpu: average copies in host memory
    :param epoch_end: "average" (default), "view" or "as_is", see :class:`Scheme`
    """
    if node not in NODE_SYNCS:
        raise SchemeError(
            f"hierarchical: node must be one of {list(NODE_SYNCS)}, got {node!r}{did_you_mean(node, NODE_SYNCS)}"
        )
    node_every = period(node_every, what="hierarchical: node_every")
    world_every = period(world_every, what="hierarchical: world_every")
    if node == "gradients" and node_every != 1:
        raise SchemeError(
            f"hierarchical: gradients are combined in every update, got node_every={node_every};"
            " leave it out, or use node='parameters'"
        )
    if world_every % node_every:
        raise SchemeError(
            f"hierarchical: world_every={world_every} is no multiple of node_every={node_every};"
            f" use a multiple of {node_every}"
        )
    average = Average(optimizer_state=optimizer_state, on_cpu=on_cpu)
    inner = Gradients() if node == "gradients" else average
    return Scheme(
        levels=(Level("node", node_every, sync=inner), Level("world", world_every, sync=average)), epoch_end=epoch_end
    )


@known_options(SchemeError)
def diloco(
    *,
    inner_steps: int = 500,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    nesterov: bool = True,
    epoch_end: str | None = None,
) -> Scheme:
    """
    DiLoCo: ranks train alone for a round, then an outer optimizer takes the mean pseudo-gradient.

    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023 (arXiv:2311.08105),
    algorithm 1; the defaults are its outer Nesterov momentum with learning rate 0.7 and momentum 0.9, and 500 inner
    steps.

    :param inner_steps: updates of a round
    :param outer_lr: learning rate of the outer optimizer
    :param outer_momentum: momentum of the outer optimizer, 0 for none
    :param nesterov: whether the momentum, if there is one, is Nesterov's
    :param epoch_end: "outer" (default), "view" or "average", see :class:`Scheme`
    """
    inner_steps = period(inner_steps, what="diloco: inner_steps")
    outer_lr = number(outer_lr, what="diloco: outer_lr", low=0.0)
    outer_momentum = number(outer_momentum, what="diloco: outer_momentum", low=0.0, high=1.0)
    nesterov = flag(nesterov, what="diloco: nesterov") and outer_momentum > 0
    optimizer = Options({"class": "sgd", "lr": outer_lr, "momentum": outer_momentum, "nesterov": nesterov})
    return Scheme(levels=(Level("world", inner_steps, sync=Outer(optimizer=optimizer)),), epoch_end=epoch_end)


@known_options(SchemeError)
def custom(function: Callable[..., None], *, every: int = 1) -> Scheme:
    """
    A scheme of your own: a function that every rank calls after its optimizer update.

    :param function: called as ``function(module=..., epoch_step_idx=..., **_)``; defined at the top level of a module,
        or a ``functools.partial`` of one with plain arguments
    :param every: period of the calls in updates
    :raises SchemeError: if the function could not be found again by its module and name, or cannot be called like that
    """
    reference = FunctionReference.of(function)
    check_call(function, *HOOK_ARGUMENTS, what=f"custom: function {reference.name} of module {reference.module}")
    return Scheme(hook=Hook(function=reference, every=every))
