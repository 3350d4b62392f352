"""
The ``torch_distributed`` option of a RETURNN config, written from a scheme.

What RETURNN can express is written as exactly RETURNN's own options. A scheme that needs Syncopate's runtime is written
as plain data under the key ``"syncopate"``.

Merging with options that are there already follows one rule: options that do not decide how ranks synchronise
(:data:`CARRIED`) are kept; an option that the scheme writes too must say the same; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import ConfigError, SchemeError, did_you_mean
from syncopate.scheme.level import Level
from syncopate.scheme.plain import frozen, thawed
from syncopate.scheme.scheme import Scheme
from syncopate.scheme.sync import BUFFER_OPTIONS, Average, Gradients

RUNTIME_KEY = "syncopate"
"""Where a scheme stands that only Syncopate's runtime can train."""

CARRIED = ("backend", "timeout_sec", "dataset_distribution", "sync_at_epoch_end", "sync_complete_frac")
"""Options of RETURNN that go with every way of synchronising."""

_AVERAGE_FLAGS = ("sync_optimizer_state", "sync_on_cpu")
_BY_FORM = {
    "grad": ("reduce_type", "options", "class"),
    "grad_explicit": ("reduce_type",),
    "param": ("reduce_type", "param_sync_step", *_AVERAGE_FLAGS),
    "sync": ("sync",),
    RUNTIME_KEY: (RUNTIME_KEY,),
}
KNOWN = tuple(sorted({*CARRIED, *(key for keys in _BY_FORM.values() for key in keys)}))

DATASET_DISTRIBUTIONS = ("random_seed_offset", "shard")


def scheme_options(scheme: Scheme, cluster: Cluster) -> dict[str, Any]:
    """
    :param scheme: what to write
    :param cluster: where it is to run; groups are written out for it, since RETURNN would find the ranks of a node by
        host name
    :return: the options that the scheme decides, plain data
    :raises DeclarationError: if the scheme does not fit the cluster
    """
    scheme.check(cluster)
    if needs_runtime(scheme):
        return {RUNTIME_KEY: scheme.as_dict()}
    (first, *others) = scheme.levels
    if not others and isinstance(first.sync, Gradients):
        return _gradient_options(first.sync)
    if not others and first.group == "world" and isinstance(first.sync, Average):
        options = {"reduce_type": "param", "param_sync_step": first.every, **_average_flags(first.sync)}
    else:
        options = {"sync": [_level_options(level, cluster) for level in scheme.levels]}
    if scheme.epoch_end == "average":
        options |= {"sync_at_epoch_end": True, "sync_complete_frac": True}
    return options


def needs_runtime(scheme: Scheme) -> bool:
    """:return: whether RETURNN alone cannot train the scheme"""
    return (
        scheme.hook is not None
        or any(not isinstance(level.sync, Gradients | Average) for level in scheme.levels)
        or scheme.epoch_end in ("outer", "view")
    )


def merged_options(existing: Mapping[str, Any] | None, scheme: Scheme, cluster: Cluster) -> dict[str, Any]:
    """
    :param existing: ``torch_distributed`` of the config so far, None if it has none
    :param scheme: what to write
    :param cluster: where it is to run
    :return: the complete ``torch_distributed``, by the rule stated above. On device "cpu" it says ``"backend":
        "gloo"``, as RETURNN's default needs CUDA, unless a backend is there already.
    :raises ConfigError: on an unknown or contradicting option
    """
    written = scheme_options(scheme, cluster)
    existing = _checked_existing(existing)
    form = written.get("reduce_type") or next(key for key in ("sync", RUNTIME_KEY) if key in written)
    decided = {**(dict.fromkeys(_AVERAGE_FLAGS, False) if form == "param" else {}), **written}
    result = dict(written)
    for key, value in existing.items():
        if key in written and key == "options":
            result[key] = _merged_ddp_options(value, written[key])
        elif key in decided:
            if _normal(value, key=key) != _normal(decided[key], key=key):
                raise ConfigError(
                    f"torch_distributed: the config says {key}={value!r}, the scheme says {decided[key]!r};"
                    f" leave {key!r} out of the config"
                )
            result[key] = written.get(key, decided[key])
        elif key in CARRIED or key in _BY_FORM[form]:
            # DDP's class is an object, and there is no other way to name one of your own.
            result[key] = value if key == "class" else thawed(_normal(value, key=key))
        else:
            raise ConfigError(
                f"torch_distributed: the config says {key}={value!r}, which has no place beside the scheme"
                f" {scheme.text!r}; leave {key!r} out of the config. Kept are {list(CARRIED)}"
            )
    if cluster.device == "cpu":
        result.setdefault("backend", "gloo")
    return result


def check_options(options: Any, cluster: Cluster) -> None:
    """
    For options that did not come from a scheme: RETURNN would find some of these faults on every rank, others never.

    :param options: a complete ``torch_distributed``
    :param cluster: where it is to run
    :raises DeclarationError: on an unknown option, or levels that do not fit the cluster or never hold the world
    """
    options = _checked_existing(options)
    reduce_type = options.get("reduce_type", "grad")
    allowed = [form for form in _BY_FORM if form not in ("sync", RUNTIME_KEY)]
    if reduce_type not in allowed:
        raise ConfigError(
            f"torch_distributed: reduce_type must be one of {allowed}, got {reduce_type!r}"
            f"{did_you_mean(reduce_type, allowed)}"
        )
    if reduce_type == "param":
        _check_period(options.get("param_sync_step"), what="torch_distributed: param_sync_step")
    if "sync" not in options:
        return
    levels = options["sync"]
    if not isinstance(levels, list | tuple) or not levels or not all(_is_level(level) for level in levels):
        raise ConfigError(
            'torch_distributed: sync must be a list of levels such as {"group": "world", "type": "param", "every": 10},'
            f" got {levels!r}"
        )
    for level in levels:
        _check_period(level.get("every", 1), what=f"torch_distributed: every of the level {level!r}")
    # The rest is what a scheme is checked for as well.
    as_declared = tuple(
        Level(
            cluster.groups(level["group"]),
            level.get("every", 1),
            sync=Gradients() if level["type"] == "grad" else Average(),
        )
        for level in levels
    )
    Scheme(levels=as_declared).check(cluster)


def _check_period(value: Any, *, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{what} must be an int of at least 1, got {value!r}")


def _is_level(level: Any) -> bool:
    return isinstance(level, Mapping) and "group" in level and level.get("type") in ("grad", "param")


def _gradient_options(sync: Gradients) -> dict[str, Any]:
    if sync.explicit:
        return {"reduce_type": "grad_explicit"}
    options = thawed(sync.options)
    if sync.buffers == "rank0":
        options["broadcast_buffers"] = False
    return {"reduce_type": "grad"} | ({"options": options} if options else {})


def _average_flags(sync: Average) -> dict[str, Any]:
    flags = zip(_AVERAGE_FLAGS, (sync.optimizer_state, sync.on_cpu), strict=True)
    return {key: value for key, value in flags if value}


def _level_options(level: Any, cluster: Cluster) -> dict[str, Any]:
    group = "world" if level.group == "world" else cluster.groups(level.group)
    if isinstance(level.sync, Gradients):
        return {"group": group, "type": "grad"}
    return {"group": group, "type": "param", "every": level.every, **_average_flags(level.sync)}


def _merged_ddp_options(existing: Any, written: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(existing, Mapping):
        raise ConfigError(f"torch_distributed: options must be a dict of DDP's keyword arguments, got {existing!r}")
    for key in sorted(existing):
        same_option = BUFFER_OPTIONS if key in BUFFER_OPTIONS else (key,)
        for other in (name for name in same_option if name in written):
            if key != other or _normal(existing[key], key=key) != _normal(written[other], key=other):
                way_out = "; ddp(buffers=None) leaves it to the config" if key in BUFFER_OPTIONS else ""
                raise ConfigError(
                    f"torch_distributed: the config says options[{key!r}]={existing[key]!r}, the scheme says"
                    f" {other}={written[other]!r}; leave it out of one of them{way_out}"
                )
    return {**thawed(_normal(existing, key="options")), **written}


def _normal(value: Any, *, key: str) -> Any:
    try:
        return frozen(value, what=f"torch_distributed: {key}")
    except SchemeError as exc:
        raise ConfigError(str(exc)) from exc


def _checked_existing(existing: Any) -> Mapping[str, Any]:
    if existing is None:
        return {}
    if not isinstance(existing, Mapping):
        raise ConfigError(f"torch_distributed must be a dict, got {existing!r}")
    if "sync" in existing and "reduce_type" in existing:
        raise ConfigError(
            f"torch_distributed: sync={existing['sync']!r} and reduce_type={existing['reduce_type']!r} are both given,"
            " but RETURNN takes one of them; leave both to the scheme"
        )
    for key in existing:
        if key not in KNOWN:
            raise ConfigError(
                f"torch_distributed: unknown option {key!r}, on which RETURNN would stop; allowed are {list(KNOWN)}"
                f"{did_you_mean(key, KNOWN)}"
            )
    distribution = existing.get("dataset_distribution", DATASET_DISTRIBUTIONS[0])
    if distribution not in DATASET_DISTRIBUTIONS:
        raise ConfigError(
            f"torch_distributed: dataset_distribution must be one of {list(DATASET_DISTRIBUTIONS)},"
            f" got {distribution!r}{did_you_mean(distribution, DATASET_DISTRIBUTIONS)}"
        )
    return existing
