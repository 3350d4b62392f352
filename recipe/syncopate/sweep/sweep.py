"""A sweep: rows of trials of one experiment, each under its synchronisation scheme."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from syncopate.sweep.existing import Existing
from syncopate.sweep.helper import SyncRequest, call_helper
from syncopate.sweep.record import SweepRecord, UserScore
from syncopate.sweep.registry import collected
from syncopate.sweep.resources import Resources
from syncopate.sweep.run import Run
from syncopate.sweep.trial import Trial
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
    :param train: instead of ``base`` the user's own helper, called as ``train(name, sync=..., num_epochs=...,
        **options)``. It puts ``sync.config_updates`` into its config, passes ``**sync.training_kwargs`` to
        ``ReturnnTrainingJob``, and returns that job or an object with ``get_training_job()``.
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
        base: Any = None,
        train: Callable[..., Any] | None = None,
        num_epochs: int | None = None,
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
        if base is not None and train is not None:
            raise SweepError(f"{where}: give either base=, a config, or train=, a helper that makes the training job")
        if train is not None and not callable(train):
            raise SweepError(f"{where}: train must be a function that makes a training job, got {train!r}")
        if base is not None:
            check_trainable(base)
        self.base = TrainingConfig(config=base) if isinstance(base, dict) else base
        self.train = train
        self.cluster = checked_cluster(cluster, what=where)
        self.num_epochs = None if num_epochs is None else checked_int(num_epochs, what=f"{where}: num_epochs")
        self._wanted_score = score
        self.score = (score or "") if base is None else checked_score(score, self.base, prefix=prefix)
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
        self._existing: list[Existing] = []
        self._rows: dict[str, tuple[Scheme | None, Cluster | None]] = {}
        self._scores: dict[str, dict[str, UserScore]] = {}
        self._score_values: dict[str, dict[str, Any]] = {}
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
    ) -> Trial:
        """
        A row, or one more trial of the row with that name.

        :param name: name of the row
        :param scheme: how its ranks synchronise, None for a single process
        :param cluster: where it runs, if not where the sweep does
        :param seeds: instead of the sweep's
        :param num_epochs: instead of the sweep's
        :param options: what distinguishes this trial, such as ``learning_rate=0.5``: RETURNN options that are in the
            base config, or arguments of the helper
        :return: the trial, with its jobs and checkpoints
        :raises DeclarationError: if the trial contradicts the config, the cluster or the rest of the row
        """
        name = checked_path(name, what=f"Sweep {self.prefix!r}: name of a row")
        where = f"Sweep {self.prefix!r}, row {name!r}"
        self._check_open(where)
        cluster = checked_cluster(cluster if cluster is not None else self.cluster, what=where)
        if cluster is None:
            raise SweepError(f"{where}: it needs a cluster; give one to the sweep or to add(...)")
        if self.base is None and self.train is None:
            raise SweepError(
                f"{where}: the sweep has nothing to train; give it base=, a config, or train=, a helper that makes the"
                " training job"
            )
        num_epochs = self.num_epochs if num_epochs is None else num_epochs
        if num_epochs is None:
            raise SweepError(f"{where}: say for how long, num_epochs=..., here or in the sweep")
        num_epochs = checked_int(num_epochs, what=f"{where}: num_epochs")
        chosen = self.seeds if seeds is None else checked_seeds(seeds, what=where)
        options = python_values(options)
        if scheme is not None and not isinstance(scheme, Scheme):
            raise SweepError(
                f"{where}: scheme must be a Scheme such as ddp(), or None for a single process, got {scheme!r}"
            )
        self._check_row(name, scheme, cluster, where=where)
        trial = self._num_trials.get(name, 0)
        try:
            runs = []
            for seed in chosen:
                run = Run(
                    row=name,
                    trial=trial,
                    seed=seed,
                    scheme=scheme,
                    cluster=cluster,
                    num_epochs=num_epochs,
                    options=options,
                    config=None,
                )
                runs.append(self._with_base(run, where) if self.train is None else self._with_helper(run, where))
            _ = runs[0].budget  # raises if its data passes are unclear
            if self.train is not None:
                self.score = checked_score(self._wanted_score, runs[0].config, prefix=self.prefix)
        except SweepError:
            raise
        except DeclarationError as exc:
            raise type(exc)(f"{where}: {exc}") from exc
        self._rows[name] = (scheme, cluster)
        self._num_trials[name] = trial + 1
        self._runs += runs
        return Trial(self, tuple(runs))

    def add_existing(self, name: str, training: Any) -> Trial:
        """
        A row for a training that was there before. Only its files are read; it is never scheduled, and an unfinished
        one is a partial row.

        :param name: name of the row
        :param training: a training job, an object with ``get_training_job()``, or the path of a folder
        :return: it, for scores of your own
        :raises SweepError: if there is no such training, or a row of that name
        """
        name = checked_path(name, what=f"Sweep {self.prefix!r}: name of a row")
        where = f"Sweep {self.prefix!r}, row {name!r}"
        self._check_open(where)
        if name in self._rows:
            raise SweepError(f"{where}: there is a row of that name already; an existing training is a row of its own")
        existing = Existing.of(name, training, where=where)
        self._rows[name] = (None, None)
        self._existing.append(existing)
        return Trial(self, (existing,))

    def add_score(self, run: Run | Existing, name: str, value: Any, *, lower_is_better: bool) -> None:
        """
        Called by :meth:`Trial.add_score`, which says what the arguments are.

        :raises SweepError: if the run has a score of that name, or the value is none
        """
        where = f"Sweep {self.prefix!r}, row {run.row!r}, score {name!r}"
        self._check_open(where)
        checked_flag(lower_is_better, what=f"{where}: lower_is_better")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and not hasattr(value, "get_path"):
            raise SweepError(f"{where}: its value must be a tk.Variable or a number, got {value!r}")
        for scores in self._scores.values():
            if name in scores and scores[name].lower_is_better != lower_is_better:
                raise SweepError(f"{where}: lower_is_better={lower_is_better}, but another row says the opposite of it")
        scores = self._scores.setdefault(run.name, {})
        if name in scores:
            raise SweepError(f"{where}: it has a score of that name already")
        path = None if is_number else os.path.abspath(value.get_path())
        scores[name] = UserScore(
            name=name, lower_is_better=lower_is_better, value=float(value) if is_number else None, path=path
        )
        self._score_values.setdefault(run.name, {})[name] = value

    def score_values(self, run: Run | Existing) -> dict[str, Any]:
        """:return: the values of a run's own scores by name, as they were given"""
        return dict(self._score_values.get(run.name, {}))

    def job_of(self, run: Run | Existing) -> Any:
        """
        :param run: of this sweep
        :return: its training job. Needs Sisyphus.
        :raises SweepError: for an existing training that was given as a path
        """
        if run.job is not None:
            return run.job
        if isinstance(run, Existing):
            raise SweepError(f"row {run.row!r} is the folder {run.directory}, there is no job to build on")
        from syncopate.jobs.entry import training_job

        return training_job(self, run)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All trainings to be made, in the order of their rows."""
        return tuple(entry for entry in self.entries if isinstance(entry, Run))

    @property
    def entries(self) -> tuple[Run | Existing, ...]:
        """All trainings, those that were there before included, in the order of their rows."""
        order = {name: index for index, name in enumerate(self._rows)}
        return tuple(sorted([*self._runs, *self._existing], key=lambda entry: order[entry.row]))

    def check(self) -> None:
        """
        :raises SweepError: if the rows do not fit together
        :raises NotYetError: if a row's scheme cannot be trained yet
        """
        check_runs(self)

    def record(self, place: Callable[[Run], tuple[str, str | None]], *, references: str | None) -> SweepRecord:
        """
        :param place: gives the folder of a run and its Sisyphus id
        :param references: path of the scores to compare with
        :return: the sweep as plain data
        """
        records = {}
        for run in self._runs:
            directory, job_id = place(run)
            records[run.name] = run.record(directory=directory, job_id=job_id, user_scores=self.user_scores(run))
        for existing in self._existing:
            records[existing.name] = existing.record(user_scores=self.user_scores(existing))
        return SweepRecord(
            prefix=self.prefix,
            score=self.score,
            lower_is_better=self.lower_is_better,
            baseline=self.baseline,
            target=self.target,
            same_budget=self.same_budget,
            references=references,
            runs=tuple(records[entry.name] for entry in self.entries),
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
        from syncopate.jobs.entry import register

        register(self)

    def _check_open(self, where: str) -> None:
        if self._is_registered:
            raise SweepError(f"{where}: the sweep is registered already; add everything before register()")

    def user_scores(self, run: Run | Existing) -> tuple[UserScore, ...]:
        """:return: a run's own scores, as they are recorded"""
        return tuple(self._scores.get(run.name, {}).values())

    def _with_base(self, run: Run, where: str) -> Run:
        carried = self.torch_distributed if run.scheme is not None else None
        config = self._with_trial_options(run.options, where=where)
        config = with_scheme(config, run.scheme, run.cluster, torch_distributed=carried)
        return replace(run, config=with_seed(config, run.seed))

    def _with_helper(self, run: Run, where: str) -> Run:
        assert self.train is not None
        request = SyncRequest.of(run.scheme, run.cluster, seed=run.seed, torch_distributed=self.torch_distributed)
        job = call_helper(self.train, run.name, request, num_epochs=run.num_epochs, options=run.options, where=where)
        return replace(run, config=job.returnn_config, job=job)

    def _check_row(self, name: str, scheme: Scheme | None, cluster: Cluster, *, where: str) -> None:
        known, place = self._rows.get(name, (scheme, cluster))
        if known != scheme:
            raise SweepError(
                f"{where}: it has the scheme {_text(known)!r} already, and now {_text(scheme)!r};"
                " trials of one row share its scheme, give the other scheme a name of its own"
            )
        if place is None:
            raise SweepError(f"{where}: it is a training that was there before; give this one a name of its own")
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
