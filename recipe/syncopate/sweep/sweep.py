"""A sweep: rows of trials of one experiment, each under its synchronisation scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncopate.cluster import Cluster
from syncopate.errors import DeclarationError, SweepError, did_you_mean
from syncopate.returnn_io.training_config import TrainingConfig
from syncopate.returnn_io.with_scheme import (
    check_trainable,
    hashed_options,
    with_options,
    with_scheme,
    with_seed,
)
from syncopate.scheme.declaration import known_options
from syncopate.scheme.plain import python_values
from syncopate.scheme.scheme import Scheme
from syncopate.sweep.checks import check_apart, check_runs, checked_score
from syncopate.sweep.record import RunRecord, SweepRecord
from syncopate.sweep.registry import collected
from syncopate.sweep.resources import Resources
from syncopate.sweep.run import Run
from syncopate.sweep.values import (
    checked_cluster,
    checked_file,
    checked_flag,
    checked_int,
    checked_path,
    checked_seeds,
    checked_target,
)


@known_options(SweepError)
class Sweep:
    """
    Rows of trainings that are compared in one table.

    :param prefix: where aliases and outputs go, such as ``"my_experiment/sync"``
    :param base: the experiment: a :class:`TrainingConfig`, a dict of RETURNN options, or a ``ReturnnConfig``
    :param cluster: where rows run that name no cluster of their own
    :param num_epochs: epochs of rows that name no number of their own
    :param score: what rows are compared by, such as ``"dev_loss_ce"``; by default the first one the config reports
    :param lower_is_better: whether a lower score is better
    :param baseline: the row all others are compared with
    :param target: the score to reach
    :param seeds: every trial is trained once with each; None is the config's own seed
    :param same_budget: refuse rows that differ in data passes; False flags them in the table
    :param torch_distributed: options that all rows with a scheme carry, such as ``{"dataset_distribution": "shard"}``
    :param resources: what one rank asks for
    :param python: the python of the training processes; default is the setup's, else the running one
    :param returnn_root: a checkout of RETURNN; default is the setup's, else the one installed for ``python``
    """

    def __init__(
        self,
        prefix: str,
        *,
        base: Any,
        num_epochs: int,
        cluster: Cluster | None = None,
        score: str | None = None,
        lower_is_better: bool = True,
        baseline: str | None = None,
        target: float | None = None,
        seeds: Sequence[int | None] = (None,),
        same_budget: bool = True,
        torch_distributed: Mapping[str, Any] | None = None,
        resources: Resources | None = None,
        python: str | None = None,
        returnn_root: str | None = None,
    ):
        self.prefix = checked_path(prefix, what="Sweep: prefix")
        where = f"Sweep {self.prefix!r}"
        check_trainable(base)
        self.base = TrainingConfig(config=base) if isinstance(base, dict) else base
        self.cluster = checked_cluster(cluster, what=where)
        self.num_epochs = checked_int(num_epochs, what=f"{where}: num_epochs")
        self.score = checked_score(score, self.base, prefix=prefix)
        self.lower_is_better = checked_flag(lower_is_better, what=f"{where}: lower_is_better")
        self.baseline = baseline
        self.target = checked_target(target, score=self.score, what=where)
        self.seeds = checked_seeds(seeds, what=where)
        self.same_budget = checked_flag(same_budget, what=f"{where}: same_budget")
        if torch_distributed is not None and not isinstance(torch_distributed, Mapping):
            raise SweepError(f"{where}: torch_distributed must be a dict, got {torch_distributed!r}")
        self.torch_distributed = python_values(torch_distributed or {})
        if resources is not None and not isinstance(resources, Resources):
            raise SweepError(f"{where}: resources must be Resources(...), got {resources!r}")
        self.resources = resources or Resources()
        self.python = checked_file(python, what=f"{where}: python")
        self.returnn_root = checked_file(returnn_root, what=f"{where}: returnn_root")
        self._runs: list[Run] = []
        self._rows: dict[str, tuple[Scheme | None, Cluster]] = {}
        self._num_trials: dict[str, int] = {}
        self._is_registered = False

    def add(
        self,
        name: str,
        scheme: Scheme | None,
        *,
        cluster: Cluster | None = None,
        seeds: Sequence[int | None] | None = None,
        num_epochs: int | None = None,
        **options: Any,
    ) -> list[Run]:
        """
        A row, or one more trial of the row with that name.

        :param name: name of the row
        :param scheme: how its ranks synchronise, None for a single process
        :param cluster: where it runs, if not where the sweep does
        :param seeds: instead of the sweep's
        :param num_epochs: instead of the sweep's
        :param options: RETURNN options of this trial, such as ``learning_rate=0.5``; each must be in the config
        :return: the trial's runs, one per seed
        :raises DeclarationError: if the trial contradicts the config, the cluster or the rest of the row
        """
        name = checked_path(name, what=f"Sweep {self.prefix!r}: name of a row")
        where = f"Sweep {self.prefix!r}, row {name!r}"
        if self._is_registered:
            raise SweepError(f"{where}: the sweep is registered already; add all rows before register()")
        cluster = checked_cluster(cluster if cluster is not None else self.cluster, what=where)
        if cluster is None:
            raise SweepError(f"{where}: it needs a cluster; give one to the sweep or to add(...)")
        num_epochs = self.num_epochs if num_epochs is None else checked_int(num_epochs, what=f"{where}: num_epochs")
        chosen = self.seeds if seeds is None else checked_seeds(seeds, what=where)
        options = python_values(options)
        try:
            carried = self.torch_distributed if scheme is not None else None
            config = self._with_trial_options(options, where=where)
            config = with_scheme(config, scheme, cluster, torch_distributed=carried)
            self._check_row(name, scheme, cluster, where=where)
            trial = self._num_trials.get(name, 0)
            runs = [
                Run(
                    row=name,
                    trial=trial,
                    seed=seed,
                    scheme=scheme,
                    cluster=cluster,
                    num_epochs=num_epochs,
                    options=options,
                    config=with_seed(config, seed),
                )
                for seed in chosen
            ]
            _ = runs[0].budget  # raises if its data passes are unclear
        except SweepError:
            raise
        except DeclarationError as exc:
            raise type(exc)(f"{where}: {exc}") from exc
        self._rows[name] = (scheme, cluster)
        self._num_trials[name] = trial + 1
        self._runs += runs
        return runs

    @property
    def runs(self) -> tuple[Run, ...]:
        """All trainings, in the order of their rows."""
        order = {name: index for index, name in enumerate(self._rows)}
        return tuple(sorted(self._runs, key=lambda run: order[run.row]))

    def check(self) -> None:
        """
        :raises SweepError: if the rows do not fit together
        :raises NotYetError: if a row's scheme cannot be trained yet
        """
        check_runs(self)

    def record(self, runs: Sequence[RunRecord], *, references: str | None) -> SweepRecord:
        """
        :param runs: a record of each run, in the order of :attr:`runs`
        :param references: path of the scores to compare with
        :return: the sweep as plain data
        """
        return SweepRecord(
            prefix=self.prefix,
            score=self.score,
            lower_is_better=self.lower_is_better,
            baseline=self.baseline,
            target=self.target,
            same_budget=self.same_budget,
            references=references,
            runs=tuple(runs),
        )

    def register(self) -> None:
        """
        Checks the sweep and puts it into Sisyphus' graph, with aliases and outputs under the prefix.

        :raises SyncopateError: if anything is wrong with the declaration, or with what it needs to be trained
        """
        if self._is_registered:
            raise SweepError(f"Sweep {self.prefix!r}: it is registered already; register it once")
        self.check()
        sweeps = collected()
        if sweeps is not None:
            check_apart(self, sweeps)
        self._is_registered = True
        if sweeps is not None:
            sweeps.append(self)
            return
        from syncopate.jobs.register import register

        register(self)

    def _check_row(self, name: str, scheme: Scheme | None, cluster: Cluster, *, where: str) -> None:
        known, place = self._rows.get(name, (scheme, cluster))
        if known != scheme:
            raise SweepError(
                f"{where}: it has the scheme {_text(known)!r} already, and now {_text(scheme)!r};"
                " trials of one row share its scheme, give the other scheme a name of its own"
            )
        if place != cluster:
            raise SweepError(
                f"{where}: it runs on {place} already, and now on {cluster};"
                " trials of one row share its cluster, give the other cluster a name of its own"
            )

    def _with_trial_options(self, options: Mapping[str, Any], *, where: str) -> Any:
        if not options:
            return self.base
        known = hashed_options(self.base)
        for key in options:
            if key not in known:
                raise SweepError(
                    f"{where}: option {key!r} is not in the config, so it may be misspelt{did_you_mean(key, known)};"
                    " put its default into the config, then a trial can set it"
                )
        return with_options(self.base, options)


def _text(scheme: Scheme | None) -> str:
    return scheme.text if scheme else "single process"
