"""
The user's own ``train(...)`` helper: what it is asked for, and whether what it made is that.

The helper builds the config and the training job by itself. It is told what to change and nothing else; afterwards the
job has to say exactly what was asked for: a helper that drops an option trains something else than the table says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import DeclarationError, SweepError
from syncopate.returnn_io.distributed_options import merged_options
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED, check_single_cluster, seed_options
from syncopate.scheme.plain import frozen
from syncopate.scheme.scheme import Scheme


@dataclass(frozen=True, kw_only=True)
class SyncRequest:
    """
    What a helper gets as ``sync``.

    :param scheme: how the ranks synchronise, None for a single process
    :param cluster: where they run
    :param config_updates: RETURNN options to put into the config; ``torch_distributed`` among them is complete
    :param training_kwargs: arguments for i6_core's ``ReturnnTrainingJob``
    """

    scheme: Scheme | None
    cluster: Cluster
    config_updates: dict[str, Any]
    training_kwargs: dict[str, Any]

    @classmethod
    def of(
        cls, scheme: Scheme | None, cluster: Cluster, *, seed: int | None, torch_distributed: Mapping[str, Any]
    ) -> SyncRequest:
        """
        :param scheme: None for a single process, for which nothing is written
        :param cluster: where it runs
        :param seed: None writes nothing
        :param torch_distributed: options to carry over
        :raises DeclarationError: if they contradict each other
        """
        updates: dict[str, Any] = dict(seed_options(seed))
        if scheme is None:
            check_single_cluster(cluster)
            return cls(scheme=None, cluster=cluster, config_updates=updates, training_kwargs={})
        updates[TORCH_DISTRIBUTED] = merged_options(torch_distributed, scheme, cluster)
        kwargs: dict[str, Any] = {
            "horovod_num_processes": cluster.world_size,
            "distributed_launch_cmd": "torchrun",
        }
        if cluster.num_nodes > 1:
            kwargs["multi_node_slots"] = cluster.num_nodes
        return cls(scheme=scheme, cluster=cluster, config_updates=updates, training_kwargs=kwargs)


def call_helper(
    helper: Callable[..., Any],
    name: str,
    request: SyncRequest,
    *,
    num_epochs: int,
    options: Mapping[str, Any],
    where: str,
) -> Any:
    """
    :param helper: the user's function
    :param name: what the training is called
    :param request: what to change
    :param num_epochs: epochs to train
    :param options: further arguments of the helper
    :param where: names the row in an error
    :return: the training job it made
    :raises SweepError: if it makes none, or one that trains something else
    """
    try:
        result = helper(name, sync=request, num_epochs=num_epochs, **options)
    except DeclarationError:
        raise
    except (AssertionError, TypeError, ValueError, KeyError, AttributeError) as exc:
        raise SweepError(f"{where}: the helper raised {type(exc).__name__}: {exc}") from exc
    if result is None:
        raise SweepError(
            f"{where}: the helper returned nothing; end it with `return` and its ReturnnTrainingJob,"
            " or an object with get_training_job()"
        )
    job = result.get_training_job() if hasattr(result, "get_training_job") else result
    if not hasattr(job, "returnn_config") or not hasattr(job, "out_learning_rates"):
        raise SweepError(
            f"{where}: the helper returned {type(result).__name__}; it must return a ReturnnTrainingJob,"
            " or an object with get_training_job()"
        )
    _check_config(job, request, where=where)
    _check_launch(job, request, where=where)
    _check_epochs(job, num_epochs, where=where)
    return job


def _check_config(job: Any, request: SyncRequest, *, where: str) -> None:
    config = job.returnn_config
    found = config.get(TORCH_DISTRIBUTED)
    wanted = request.config_updates.get(TORCH_DISTRIBUTED)
    if wanted is None and found is not None:
        raise SweepError(
            f"{where}: scheme None is a single process, but the helper's config says {TORCH_DISTRIBUTED}={found!r};"
            " leave it out where sync.config_updates has none"
        )
    if wanted is None and config.get("use_horovod"):
        raise SweepError(
            f"{where}: the helper's config says use_horovod={config.get('use_horovod')!r} without {TORCH_DISTRIBUTED},"
            " which RETURNN's torch engine cannot train; pass **sync.training_kwargs and no number of processes of its"
            " own"
        )
    if wanted is not None and found is None:
        raise SweepError(
            f"{where}: the helper's config has no {TORCH_DISTRIBUTED}; put sync.config_updates into the config, as in"
            " config.update(sync.config_updates)"
        )
    if wanted is not None:
        wrong = _differences(found, wanted, prefix=TORCH_DISTRIBUTED)
        if wrong:
            raise SweepError(
                f"{where}: the helper changed {TORCH_DISTRIBUTED}: {'; '.join(wrong)}. Options to carry over go into"
                " Sweep(torch_distributed=...), the rest comes from the scheme"
            )
    for key, value in request.config_updates.items():
        if key != TORCH_DISTRIBUTED and config.get(key) != value:
            raise SweepError(
                f"{where}: the helper's config says {key}={config.get(key)!r}, sync.config_updates says {value!r};"
                " put all of sync.config_updates into the config"
            )


def _differences(found: Any, wanted: Mapping[str, Any], *, prefix: str) -> list[str]:
    if not isinstance(found, Mapping):
        return [f"{prefix} is {found!r}, not a dict"]
    wrong = []
    for key in sorted({*found, *wanted}):
        if key not in found:
            wrong.append(f"{key!r} is missing, it should be {wanted[key]!r}")
        elif key not in wanted:
            wrong.append(f"{key!r} is {found[key]!r}, it should not be there")
        elif key == "class":
            if found[key] is not wanted[key]:
                wrong.append(f"{key!r} is {found[key]!r}, it should be {wanted[key]!r}")
        elif frozen(found[key], what=key) != frozen(wanted[key], what=key):
            wrong.append(f"{key!r} is {found[key]!r}, it should be {wanted[key]!r}")
    return wrong


def _check_launch(job: Any, request: SyncRequest, *, where: str) -> None:
    wanted = {"horovod_num_processes": None, "multi_node_slots": None, **request.training_kwargs}
    if request.scheme is None:
        wanted.pop("distributed_launch_cmd", None)  # a single process is started without any
    for key, value in wanted.items():
        found = getattr(job, key, None)
        if found != value:
            raise SweepError(
                f"{where}: the helper's job has {key}={found!r}, sync.training_kwargs wants {value!r};"
                " pass **sync.training_kwargs to ReturnnTrainingJob and nothing else for it"
            )
    device = job.returnn_config.get("device")
    if device != request.cluster.device:
        raise SweepError(
            f"{where}: the helper's job is for device {device!r}, the cluster for {request.cluster.device!r};"
            " let them agree, as in Cluster(..., device='cpu')"
        )


def _check_epochs(job: Any, num_epochs: int, *, where: str) -> None:
    found = job.returnn_config.get("num_epochs")
    if found != num_epochs:
        raise SweepError(
            f"{where}: the helper's job trains {found!r} epochs, num_epochs={num_epochs} was asked for; pass it on."
            f" If it does, the job {job.job_id()} was made before with {found!r}: the number of epochs is no part of"
            " its id, so let the two differ in an option, or train the longer one"
        )
