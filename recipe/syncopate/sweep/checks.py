"""What is checked before anything is trained: that the rows of a sweep fit together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from syncopate.cluster import Cluster
from syncopate.errors import ConfigError, NotYetError, ReadError, SweepError, did_you_mean
from syncopate.returnn_io.distributed_options import RUNTIME_KEY, check_options, needs_runtime
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED, hashed_options
from syncopate.sweep.budget import budget

if TYPE_CHECKING:
    from syncopate.sweep.run import Run
    from syncopate.sweep.sweep import Sweep

SCORE_SEPARATORS = ("_loss_", "_score", "_error")

OWN_NAMES = ("table", "tables", "sweep.json", "live.txt", "status.json")
"""Files and folders beside the rows."""


def check_runs(sweep: Sweep) -> None:
    """
    :raises SweepError: if the rows do not fit together
    :raises NotYetError: if a row's scheme cannot be trained yet
    """
    if not sweep.entries:
        raise SweepError(f"Sweep {sweep.prefix!r} has no rows; add(...) some")
    rows = list(dict.fromkeys(entry.row for entry in sweep.entries))
    if sweep.baseline is not None and sweep.baseline not in rows:
        raise SweepError(
            f"Sweep {sweep.prefix!r}: the baseline {sweep.baseline!r} is no row; rows are {rows}"
            f"{did_you_mean(sweep.baseline, rows)}"
        )
    if not sweep.score:
        raise SweepError(f"Sweep {sweep.prefix!r}: name the score to compare by, such as score='dev_loss_ce'")
    _check_names(sweep)
    _check_identities(sweep)
    if sweep.same_budget:
        _check_budgets(sweep)
    for run in sweep.runs:
        check_trained_by_us(run)


def check_apart(sweep: Sweep, others: Sequence[Sweep]) -> None:
    """
    :param sweep: a sweep
    :param others: sweeps of the same config
    :raises SweepError: if results of two of them would land in one place
    """
    for other in others:
        for outer, inner in ((other, sweep), (sweep, other)):
            taken = {
                outer.prefix,
                *(f"{outer.prefix}/{name}" for name in (*OWN_NAMES, *(run.name for run in outer.runs))),
            }
            inside = {str(parent) for parent in PurePosixPath(inner.prefix).parents}
            if inner.prefix in taken or taken & inside - {outer.prefix}:
                raise SweepError(
                    f"Sweep {sweep.prefix!r}: its results would land in those of the sweep {other.prefix!r};"
                    " give each a prefix of its own"
                )


def check_trained_by_us(run: Run) -> None:
    """:raises NotYetError: if the run's scheme is declared, but this version cannot train it"""
    if run.scheme is not None and needs_runtime(run.scheme):
        raise NotYetError(
            f"row {run.row!r}: the scheme {run.scheme.text!r} with epoch_end={run.scheme.epoch_end!r} cannot be trained"
            " yet; this version trains ddp, param_avg, hierarchical, and schemes of Gradients() and Average() levels"
            " with epoch_end 'average' or 'as_is'"
        )


def check_options_trained_by_us(options: Mapping[str, Any], cluster: Cluster) -> None:
    """
    :param options: RETURNN options, with their scheme
    :param cluster: where they are to be trained
    :raises NotYetError: if this version cannot train the scheme in them
    :raises DeclarationError: if they hold no scheme though there are ranks to synchronise, or one that cannot be
        trained on this cluster
    """
    distributed = options.get(TORCH_DISTRIBUTED)
    if distributed is None:
        if cluster.world_size > 1:
            raise ConfigError(
                f"the config has no torch_distributed, but the cluster is {cluster} with {cluster.world_size} ranks,"
                " which would train apart from each other; use with_scheme(config, scheme, cluster)"
            )
        return
    if isinstance(distributed, Mapping) and RUNTIME_KEY in distributed:
        raise NotYetError(
            f"the config's scheme {distributed[RUNTIME_KEY]!r} cannot be trained yet; this version trains ddp,"
            " param_avg, hierarchical, and schemes of Gradients() and Average() levels"
        )
    check_options(distributed, cluster)


def check_sequences(statistics: str | Path, options: Mapping[str, Any], *, num_ranks: int) -> None:
    """
    :param statistics: JSON with ``"num_train_sequences"``
    :param options: RETURNN options, with their scheme
    :param num_ranks: ranks of all nodes together
    :raises ConfigError: if a rank would have nothing to train on in some epoch
    """
    try:
        num_sequences = json.loads(Path(statistics).read_text(encoding="utf-8"))["num_train_sequences"]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise ReadError(f"{statistics}: expected JSON with 'num_train_sequences': {exc!r}") from exc
    if isinstance(num_sequences, bool) or not isinstance(num_sequences, int):
        raise ReadError(f"{statistics}: expected a number as 'num_train_sequences', found {num_sequences!r}")
    data = budget(options, num_epochs=1, num_ranks=num_ranks)
    parts = data.partition_epoch * (num_ranks if data.distribution == "shard" else 1)
    if num_sequences < parts:
        raise ConfigError(
            f"the train data has {num_sequences} sequences, but it is to be split into {parts} parts"
            f" ({num_ranks} ranks, partition_epoch {data.partition_epoch}), so that some ranks would have nothing to"
            f" train on; use at most {num_sequences} parts, or more data"
        )


def checked_score(score: str | None, base: Any, *, prefix: str) -> str:
    """
    :param score: what rows are to be compared by, None for the first that the config reports
    :param base: the sweep's config
    :param prefix: names the sweep in an error
    :return: the score; what the learning rate depends on, where the config says no other
    :raises SweepError: if the config never reports it
    """
    reports: tuple[str, ...] = tuple(getattr(base, "reports", ()))
    options = hashed_options(base)
    data_sets = ["train", *(name for name in ("dev", "eval") if name in options)]
    if isinstance(options.get("eval_datasets"), Mapping):
        data_sets += list(options["eval_datasets"])
    if score is None:
        measure = options.get("learning_rate_control_error_measure")
        if not reports and isinstance(measure, str) and _is_of_data_set(measure, data_sets):
            return measure
        if not reports:
            raise SweepError(
                f"Sweep {prefix!r}: name the score to compare by, such as score={data_sets[-1] + '_loss_ce'!r};"
                f" the config's data sets are {data_sets}"
            )
        return reports[0]
    if not isinstance(score, str):
        raise SweepError(f"Sweep {prefix!r}: score must be a name such as 'dev_loss_ce', got {score!r}")
    if reports and score not in reports:
        raise SweepError(
            f"Sweep {prefix!r}: the config never reports the score {score!r}; it reports {list(reports)}"
            f"{did_you_mean(score, reports)}"
        )
    if not reports and not _is_of_data_set(score, data_sets):
        raise SweepError(
            f"Sweep {prefix!r}: the config never reports the score {score!r}; scores are named after its data sets"
            f" {data_sets}, such as {data_sets[-1] + '_loss_ce'!r}"
        )
    return score


def _is_of_data_set(score: str, data_sets: list[str]) -> bool:
    return any(score.startswith(f"{name}{separator}") for name in data_sets for separator in SCORE_SEPARATORS)


def _check_names(sweep: Sweep) -> None:
    """A name becomes a link to the training, so nothing else can stand below it or in its place."""
    taken = {name: f"the sweep's own {name!r}" for name in OWN_NAMES}
    for run in sweep.entries:
        whose = f"row {run.row!r}"
        other = taken.setdefault(run.name, whose)
        if other != whose or run.name in OWN_NAMES:
            raise SweepError(
                f"Sweep {sweep.prefix!r}: {whose} and {other} would both be called {run.name!r}; rename the row"
            )
    for run in sweep.entries:
        for parent in PurePosixPath(run.name).parents:
            if str(parent) in taken:
                raise SweepError(
                    f"Sweep {sweep.prefix!r}: {run.name!r} would be inside of {taken[str(parent)]}; rename one of them"
                )


def _check_identities(sweep: Sweep) -> None:
    seen: dict[str, Run] = {}
    for run in sweep.runs:
        other = seen.setdefault(run.identity, run)
        if other is run:
            continue
        if other.num_epochs != run.num_epochs:
            raise SweepError(
                f"Sweep {sweep.prefix!r}: {other.name!r} ({other.num_epochs} epochs) and {run.name!r}"
                f" ({run.num_epochs} epochs) are the same training otherwise, so they would be one job;"
                " the number of epochs is no part of a job's id. Train the longer one, or let them differ in an option"
            )
        raise SweepError(
            f"Sweep {sweep.prefix!r}: {other.name!r} and {run.name!r} are the same training; leave one out,"
            " or let them differ in scheme, options, seed or cluster"
        )


def _check_budgets(sweep: Sweep) -> None:
    if not sweep.runs:
        return
    first = next((run for run in sweep.runs if run.row == sweep.baseline), sweep.runs[0])
    wanted = first.budget.data_passes
    different = [run for run in sweep.runs if run.budget.data_passes != wanted]
    if different:
        listed = "; ".join(
            f"{run.name!r}: {run.budget} (num_epochs={run.budget.num_epochs_for(wanted):g} would be equal)"
            for run in different[:5]
        )
        more = f"; and {len(different) - 5} more" if len(different) > 5 else ""
        raise SweepError(
            f"Sweep {sweep.prefix!r}: rows differ in data passes. {first.name!r}: {first.budget}; {listed}{more}."
            " Give these rows their own num_epochs, or say same_budget=False, then the table flags them"
        )
