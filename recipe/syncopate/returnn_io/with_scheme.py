"""A RETURNN config with a scheme in it: the one function that every way of training goes through."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from syncopate.cluster import Cluster
from syncopate.errors import ConfigError
from syncopate.returnn_io.distributed_options import merged_options
from syncopate.returnn_io.training_config import TrainingConfig
from syncopate.returnn_io.write import HASHED_DEFAULTS
from syncopate.scheme.declaration import known_options
from syncopate.scheme.plain import frozen, python_value
from syncopate.scheme.scheme import Scheme

ConfigT = TypeVar("ConfigT")

TORCH_DISTRIBUTED = "torch_distributed"

SET_BY_US = {
    "device": "it comes from Cluster(device=...)",
    "num_epochs": "it comes from num_epochs=...",
    "model": "checkpoints are written to the training's own folder",
    "use_horovod": "the ranks synchronise by a scheme, and RETURNN's torch engine does not know it",
}
"""Options that no part of a config sets, with the reason."""

ONLY_IN_POST_CONFIG = ("log", "log_verbosity", "save_interval")
"""Options that change nothing that is trained."""

FIXED = {key: HASHED_DEFAULTS[key] for key in ("task", "learning_rate_file")}
"""Options that have one value in every training."""

SEED_STRIDE = 10_000_019
"""Distance between the data orders of two seeds: RETURNN adds the epoch and 16127 times the rank to the offset."""

MAX_SEED = 400


@known_options(ConfigError)
def with_scheme(
    config: ConfigT, scheme: Scheme | None, cluster: Cluster, *, torch_distributed: Mapping[str, Any] | None = None
) -> ConfigT:
    """
    :param config: a :class:`TrainingConfig`, a dict of RETURNN options, or an i6_core ``ReturnnConfig``; not changed
    :param scheme: how its ranks synchronise; None for a single process
    :param cluster: where it is to run
    :param torch_distributed: options to carry over, such as ``{"dataset_distribution": "shard"}``, beside those in the
        config
    :return: a copy of the config, of the same type, with the complete ``torch_distributed``
    :raises DeclarationError: if the config cannot be trained or contradicts the scheme
    """
    options = hashed_options(config)
    check_trainable(config)
    if not isinstance(cluster, Cluster):
        raise ConfigError(f"cluster must be a Cluster(num_nodes=..., num_gpus_per_node=...), got {cluster!r}")
    if scheme is None:
        _check_single(options, torch_distributed, cluster)
        return with_options(config, {})
    if not isinstance(scheme, Scheme):
        raise ConfigError(f"scheme must be a Scheme such as ddp(), or None for a single process, got {scheme!r}")
    existing = _joined(options.get(TORCH_DISTRIBUTED), torch_distributed)
    return with_options(config, {TORCH_DISTRIBUTED: merged_options(existing, scheme, cluster)})


def with_seed(config: ConfigT, seed: int | None) -> ConfigT:
    """
    :param config: as in :func:`with_scheme`; not changed
    :param seed: 0 to 400; None writes nothing
    :return: a copy with the seed's random numbers (``random_seed``) and data order (``dataset_random_seed_offset``)
    :raises ConfigError: if the seed is out of range, or the data set fixes its own order
    """
    seed = checked_seed(seed)
    if seed is None:
        return with_options(config, {})
    for key in ("random_seed_offset", "fixed_random_seed"):
        value = find_option(hashed_options(config).get("train"), key)
        if value is not None:
            raise ConfigError(
                f"seed {seed}: the train data set says {key}={value!r}, which fixes its order for every seed;"
                f" leave {key!r} out of it"
            )
    return with_options(config, seed_options(seed))


def seed_options(seed: int | None) -> dict[str, Any]:
    """
    :param seed: as in :func:`with_seed`
    :return: what is written for it; nothing for None
    """
    return {} if seed is None else {"random_seed": seed, "dataset_random_seed_offset": (seed + 1) * SEED_STRIDE}


def checked_seed(seed: Any) -> int | None:
    """
    :param seed: what a user gave
    :return: it as an int; None is the config's own
    :raises ConfigError: if it is out of range
    """
    value = python_value(seed)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEED:
        raise ConfigError(f"a seed must be an int from 0 to {MAX_SEED}, or None for the config's own, got {seed!r}")
    return value


def with_options(config: ConfigT, changes: Mapping[str, Any]) -> ConfigT:
    """
    :param config: as in :func:`with_scheme`; not changed
    :param changes: RETURNN options that replace those of the config
    :return: a copy with the changes
    :raises ConfigError: if one of them is in the unhashed part of the config
    """
    for key in changes:
        if key in _unhashed_options(config):
            raise ConfigError(
                f"{key} is to be set to {changes[key]!r}, but post_config says {_unhashed_options(config)[key]!r};"
                f" leave {key!r} out of post_config"
            )
    if isinstance(config, TrainingConfig):
        return cast(ConfigT, config.updated(changes))
    result = copy.deepcopy(config)
    target = result if isinstance(result, dict) else result.config  # type: ignore[attr-defined]
    target.update(copy.deepcopy(dict(changes)))
    return result


def check_trainable(config: Any) -> None:
    """
    :param config: as in :func:`with_scheme`
    :raises ConfigError: if it is for another backend, or sets what is decided elsewhere
    """
    options, unhashed = hashed_options(config), _unhashed_options(config)
    double = sorted(set(options) & set(unhashed))
    if double:
        raise ConfigError(f"options {double} stand in config and in post_config; leave them in one of them")
    both = {**options, **unhashed}
    if both.get("backend") != "torch":
        raise ConfigError(
            f"the config's backend must be 'torch', got {both.get('backend')!r};"
            ' parameter synchronisation is a feature of RETURNN\'s torch engine, set backend="torch"'
        )
    for key, reason in SET_BY_US.items():
        if both.get(key) is not None:
            raise ConfigError(f"the config sets {key}={both[key]!r}; leave it out, {reason}")
    for key in ONLY_IN_POST_CONFIG:
        if options.get(key) is not None:
            raise ConfigError(
                f"the config sets {key}={options[key]!r}, which changes nothing that is trained; move it to post_config"
            )
    for key, value in FIXED.items():
        if both.get(key, value) != value:
            raise ConfigError(f"the config sets {key}={both[key]!r}, but in a training it is {value!r}; leave it out")
    if unhashed.get(TORCH_DISTRIBUTED) is not None:
        raise ConfigError(
            f"post_config sets torch_distributed={unhashed[TORCH_DISTRIBUTED]!r}, which decides what is trained and"
            " belongs into the id of a training; move it to config"
        )
    if both.get("dataset_distribution") is not None:
        raise ConfigError(
            f"the config sets dataset_distribution={both['dataset_distribution']!r} outside of torch_distributed,"
            " where RETURNN ignores it; move it into torch_distributed"
        )


def hashed_options(config: Any) -> dict[str, Any]:
    """
    :param config: as in :func:`with_scheme`
    :return: its RETURNN options, without the unhashed ones
    :raises ConfigError: if it is no config
    """
    if isinstance(config, dict):
        return dict(config)
    options = getattr(config, "config", None)
    if not isinstance(options, Mapping):
        raise ConfigError(
            "config must be a TrainingConfig, a dict of RETURNN options, or an i6_core ReturnnConfig,"
            f" got {type(config).__name__}: {config!r}"
        )
    return dict(options)


def _unhashed_options(config: Any) -> Mapping[str, Any]:
    return {} if isinstance(config, dict) else getattr(config, "post_config", None) or {}


def find_option(value: Any, key: str) -> Any:
    """
    :param value: options of a data set, which may hold other data sets
    :param key: an option
    :return: its first value that is not None, outer data sets first; None if there is none
    """
    if isinstance(value, Mapping):
        if value.get(key) is not None:
            return value[key]
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    else:
        return None
    return next((found for item in inner if (found := find_option(item, key)) is not None), None)


def _joined(existing: Any, carried: Any) -> Any:
    for name, options in (("of the config", existing), ("= beside it", carried)):
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"torch_distributed {name} must be a dict, got {options!r}")
    if not carried or existing is None:
        return carried or existing
    for key in sorted(set(existing) & set(carried)):
        if frozen(existing[key], what=key) != frozen(carried[key], what=key):
            raise ConfigError(
                f"torch_distributed: the config says {key}={existing[key]!r}, torch_distributed= says {carried[key]!r};"
                " leave it out of one of them"
            )
    return {**existing, **carried}


def _check_single(options: Mapping[str, Any], carried: Mapping[str, Any] | None, cluster: Cluster) -> None:
    if options.get(TORCH_DISTRIBUTED) is not None or carried:
        raise ConfigError(
            "scheme None is a single process, but torch_distributed ="
            f" {options.get(TORCH_DISTRIBUTED) or carried!r} is given; leave it out, or give a scheme."
            " Options for the rows with a scheme alone go into Sweep(torch_distributed=...)"
        )
    check_single_cluster(cluster)


def check_single_cluster(cluster: Cluster) -> None:
    """
    :param cluster: where a single process is to run
    :raises ConfigError: if it has more than one rank
    """
    if cluster.world_size != 1:
        raise ConfigError(
            f"scheme None is a single process, but the cluster is {cluster} with {cluster.world_size} ranks;"
            " use Cluster(num_nodes=1, num_gpus_per_node=1), or give a scheme"
        )
