"""One training of a sweep, as declared: a row's trial with one seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncopate.cluster import Cluster
from syncopate.returnn_io.training_config import ProducedFile
from syncopate.returnn_io.with_scheme import hashed_options
from syncopate.scheme.scheme import Scheme
from syncopate.sweep.budget import Budget, budget
from syncopate.sweep.record import LevelRecord, RunRecord, UserScore

MAX_LABEL = 80
"""Characters in which a run's name says its options."""

UNSAFE = re.compile(r"[^\w.+-]+", flags=re.ASCII)
"""What does not belong into the name of a file."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """
    :param row: name of the row
    :param trial: which trial of the row, from 0
    :param seed: None where the config's own is used
    :param scheme: None for a single process
    :param cluster: where it runs
    :param num_epochs: epochs to train
    :param options: what distinguishes the trial
    :param config: what is trained, complete with scheme and seed; of the type the sweep was given
    :param job: its training job, where the user's helper made one
    """

    row: str
    trial: int
    seed: int | None
    scheme: Scheme | None
    cluster: Cluster
    num_epochs: int
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Any
    job: Any = None

    @property
    def name(self) -> str:
        """Path of the run below the sweep's prefix, unique in its sweep."""
        return run_name(self.row, self.options, trial=self.trial, seed=self.seed)

    @property
    def budget(self) -> Budget:
        """How much data it sees."""
        return budget(hashed_options(self.config), num_epochs=self.num_epochs, num_ranks=self.cluster.world_size)

    @property
    def identity(self) -> str:
        """
        What is trained, without how long: equal for two runs that would be one job. Objects that are no plain data
        count as different from each other; Sisyphus' own hash tells them apart later.
        """
        if self.job is not None:
            return str(self.job.job_id())
        shape = (self.cluster.num_nodes, self.cluster.num_gpus_per_node, self.cluster.device)
        imports = getattr(self.config, "imports", ())
        text = f"{shape} {imports} {_canonical(hashed_options(self.config))}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def record(
        self, *, directory: str, job_id: str | None = None, user_scores: tuple[UserScore, ...] = ()
    ) -> RunRecord:
        """
        :param directory: where the run's files are
        :param job_id: its Sisyphus id, None for a local run
        :param user_scores: the recipe's own
        :return: the declaration as plain data
        """
        options = hashed_options(self.config)
        accum_grad = options.get("accum_grad_multiple_step", 1)
        max_seqs = options.get("max_seqs")
        scheme, given = self.scheme, self.budget
        return RunRecord(
            row=self.row,
            trial=self.trial,
            seed=self.seed,
            options={key: _recorded(value) for key, value in self.options.items()},
            scheme=scheme.as_dict() if scheme else None,
            scheme_text=scheme.text if scheme else "single process",
            levels=tuple(
                LevelRecord(group=level.group_text, kind=level.sync.kind, every=level.every)
                for level in (scheme.levels if scheme else ())
            ),
            epoch_end=scheme.epoch_end if scheme else None,
            num_nodes=self.cluster.num_nodes,
            num_ranks=self.cluster.world_size,
            device=self.cluster.device,
            num_epochs=self.num_epochs,
            data_passes=given.data_passes,
            dataset_distribution=given.distribution,
            accum_grad=accum_grad if isinstance(accum_grad, int) else None,
            max_seqs=max_seqs if isinstance(max_seqs, int) else None,
            directory=directory,
            job_id=job_id,
            user_scores=user_scores,
        )


def run_name(row: str, options: Mapping[str, Any], *, trial: int, seed: int | None) -> str:
    """
    :param row: name of the row
    :param options: what distinguishes the trial
    :param trial: its number
    :param seed: None where the config's own is used
    :return: path of the run below the sweep's prefix
    """
    parts = [row]
    if options:
        parts.append(_label(options) or f"trial{trial}")
    if seed is not None:
        parts.append(f"seed{seed}")
    return ",".join(parts)


def _label(options: Mapping[str, Any]) -> str | None:
    """What can be a part of a file's name and says what the options are; None if they are no plain data."""
    if not all(_is_plain(value) for value in options.values()):
        return None
    text = ",".join(f"{key}={value}" for key, value in options.items())
    label = ",".join(f"{key}={re.sub(UNSAFE, '_', str(value)).strip('_')}" for key, value in options.items())
    if label == text and len(label) <= MAX_LABEL:
        return label
    return f"{label[:MAX_LABEL]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _recorded(value: Any) -> Any:
    """An option as a reader of the record sees it: plain data as it is, anything else as text."""
    if isinstance(value, Mapping):
        return {str(key): _recorded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_recorded(item) for item in value]
    return value if _is_plain(value) else str(value)


def _canonical(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_canonical(key)}: {_canonical(item)}' for key, item in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_canonical, value))}]"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(map(_canonical, value)))})"
    if isinstance(value, ProducedFile):
        return f"file({value.source!r}, {value.name!r})"
    if callable(getattr(value, "_sis_hash", None)) and not isinstance(value, type):
        return repr(value._sis_hash())  # a path of Sisyphus, of which every copy is the same
    return f"{type(value).__qualname__}({id(value)})"
