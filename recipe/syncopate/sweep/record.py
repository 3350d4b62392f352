"""
What was declared about a sweep and each of its trainings, as plain data that lies beside the results.

The records are written when a sweep is registered or run, and read by everything that compares; so a comparison needs
neither the recipe nor Sisyphus. Directories are relative to the folder of the file they stand in, or absolute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from syncopate.errors import ReadError

FORMAT = 1
SWEEP_FILE = "sweep.json"
TABLE_DIRECTORY = "table"


@dataclass(frozen=True, kw_only=True)
class LevelRecord:
    """
    :param group: the groups as a reader would name them, such as "all ranks" or "ranks of a node"
    :param kind: what is combined, such as "gradients" or "parameters"
    :param every: period in updates
    """

    group: str
    kind: str
    every: int


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """
    One training: one trial of a row with one seed.

    :param row: name of the row it belongs to
    :param trial: which trial of the row, from 0
    :param seed: None where the config's own seed is used
    :param options: what distinguishes the trial, such as ``{"learning_rate": 0.5}``
    :param scheme: the scheme as plain data, None for a single process
    :param scheme_text: one line that says what is synchronised and when
    :param levels: the levels of the scheme, inner to outer
    :param epoch_end: what happens at an epoch end; None where the ranks never differ
    :param num_nodes: nodes
    :param num_ranks: ranks on all nodes together
    :param device: "gpu" or "cpu"
    :param num_epochs: epochs to train
    :param data_passes: how often the whole corpus is trained on, over all ranks
    :param dataset_distribution: "shard" or "random_seed_offset"; None for a single process
    :param accum_grad: micro-batches per update; None where the config decides while training
    :param max_seqs: upper bound of sequences per micro-batch; None where the config states none
    :param directory: the training's folder, with ``work`` and ``output`` inside
    :param job_id: the Sisyphus id; None for a local run
    """

    row: str
    trial: int
    seed: int | None
    options: Mapping[str, Any]
    scheme: Mapping[str, Any] | None
    scheme_text: str
    levels: tuple[LevelRecord, ...]
    epoch_end: str | None
    num_nodes: int
    num_ranks: int
    device: str
    num_epochs: int
    data_passes: float
    dataset_distribution: str | None
    accum_grad: int | None
    max_seqs: int | None
    directory: str
    job_id: str | None = None

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, source: str) -> Self:
        """
        :param plain: what ``dataclasses.asdict`` gave, through JSON
        :param source: names the file in an error
        :raises ReadError: on a missing or unknown field
        """
        values = _checked(cls, plain, source=source)
        levels = _checked_list(values["levels"], what="levels", source=source)
        values["levels"] = tuple(LevelRecord(**_checked(LevelRecord, level, source=source)) for level in levels)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """
    :param prefix: where the sweep registers its aliases and outputs
    :param score: the score rows are compared by, such as ``"dev_loss_ce"``
    :param lower_is_better: whether a lower score is better
    :param baseline: the row all others are compared with; None for no comparison
    :param target: score to reach; None for none
    :param same_budget: False where rows may differ in data passes, which the table then flags
    :param references: path of a JSON file ``{name: {"value": float, "unit": str}}`` of scores to compare with
    :param runs: all trainings, rows in the order they were added
    """

    prefix: str
    score: str
    lower_is_better: bool
    baseline: str | None
    target: float | None
    same_budget: bool
    references: str | None
    runs: tuple[RunRecord, ...]
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """:return: the text of a ``sweep.json``"""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """
        :param path: a ``sweep.json``
        :raises ReadError: if it is no such file
        """
        source = str(path)
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise ReadError(f"{source}: cannot be read as the record of a sweep: {exc}") from exc
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
            raise ReadError(f"{source}: expected the record of a sweep in format {FORMAT}, found {found!r}")
        values = _checked(cls, plain, source=source)
        runs = _checked_list(values["runs"], what="runs", source=source)
        values["runs"] = tuple(RunRecord.from_dict(run, source=source) for run in runs)
        return cls(**values)


def _checked_list(value: Any, *, what: str, source: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ReadError(f"{source}: expected a list of {what}, found {type(value).__name__}")
    return list(value)


def _checked(cls: type, plain: Any, *, source: str) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise ReadError(f"{source}: expected a {cls.__name__}, found {type(plain).__name__}")
    known = {entry.name for entry in fields(cls)}
    missing, unknown = sorted(known - set(plain)), sorted(set(plain) - known)
    if missing or unknown:
        raise ReadError(f"{source}: {cls.__name__}: missing {missing}, unknown {unknown}; written by another version?")
    return dict(plain)
