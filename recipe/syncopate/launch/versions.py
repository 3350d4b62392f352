"""
Which RETURNN, Sisyphus and i6_core this version of Syncopate is built on, and whether a RETURNN offers what it needs.

RETURNN is judged by the source of its ``torch/distributed.py``, not by its version: a checkout may have any, and a
later release may have changed what Syncopate overrides. Looking at the source needs neither torch nor RETURNN.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

TESTED_RETURNN = "1.20261022.211313"
SISYPHUS_URL = "git+https://github.com/rwth-i6/sisyphus@21ba6848130e6e725470af600b0925b95d2c388a"
I6_CORE_URL = "https://github.com/rwth-i6/i6_core"
MIN_PYTHON = (3, 11)

CONTEXT_METHODS: dict[str, tuple[str, ...]] = {
    "maybe_make_distributed_module": ("module",),
    "control_sync_levels": ("epoch_update_step_idx", "update_step", "world", "no_data"),
    "maybe_reduce_grads": ("module",),
    "step_after_param_update": ("module", "optimizer", "epoch_update_step_idx"),
    "step_after_epoch": ("module", "optimizer", "global_train_step"),
    "destroy_process_groups": (),
}
"""The methods of RETURNN's DistributedContext that Syncopate overrides, with the arguments RETURNN passes to them."""


@dataclass(frozen=True, kw_only=True)
class ReturnnFeatures:
    """
    What a RETURNN offers of what Syncopate needs.

    :param has_sync_levels: it synchronises by levels: option "sync" of ``torch_distributed``
    :param has_cpu_training: it can wrap a module that is on the CPU
    :param unfit_methods: methods of :data:`CONTEXT_METHODS` that are missing, or have other arguments
    """

    has_sync_levels: bool
    has_cpu_training: bool
    unfit_methods: tuple[str, ...]

    def lacks(self, *, device: str) -> list[str]:
        """
        :param device: "gpu" or "cpu"
        :return: what is missing for a training on this device, in words
        """
        lacks = []
        if not self.has_sync_levels:
            lacks.append('synchronisation levels (option "sync" of torch_distributed)')
        if device == "cpu" and not self.has_cpu_training:
            lacks.append("training on the CPU")
        if self.unfit_methods:
            lacks.append(f"DistributedContext's methods as Syncopate knows them ({', '.join(self.unfit_methods)})")
        return lacks


def returnn_features(source: str) -> ReturnnFeatures:
    """
    :param source: content of ``returnn/torch/distributed.py``; "" for a RETURNN that has no such file
    :raises SyntaxError: if it is no Python
    """
    context = next(
        (
            node
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and node.name == "DistributedContext"
        ),
        None,
    )
    methods = {node.name: node for node in context.body if isinstance(node, ast.FunctionDef)} if context else {}
    return ReturnnFeatures(
        has_sync_levels="control_sync_levels" in methods and context is not None and _reads_option(context, "sync"),
        has_cpu_training=_wraps_cpu_modules(methods.get("maybe_make_distributed_module")),
        unfit_methods=tuple(
            f"{name}({', '.join(wanted)})"
            for name, wanted in CONTEXT_METHODS.items()
            if name not in methods or _arguments(methods[name]) != {"self", *wanted}
        ),
    )


def is_older(version: str, than: str) -> bool:
    """
    :param version: a version of RETURNN, e.g. "1.20261022.211313+git.a6e5adc"
    :param than: another one
    :return: whether it is older; False if its numbers cannot be told
    """
    try:
        return _numbers(version) < _numbers(than)
    except ValueError:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split("."))


def _arguments(method: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)}


def _reads_option(node: ast.AST, option: str) -> bool:
    """:return: whether ``opts.get(option, ...)`` or ``opts[option]`` is in it"""
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=name), *_]) if name == option:
                return True
            case ast.Subscript(slice=ast.Constant(value=name)) if name == option:
                return True
    return False


def _wraps_cpu_modules(method: ast.FunctionDef | None) -> bool:
    """:return: whether it treats a device "cpu" apart: DistributedDataParallel takes no device ids there"""
    return method is not None and any(
        isinstance(part, ast.Constant) and part.value == "cpu" for part in ast.walk(method)
    )
