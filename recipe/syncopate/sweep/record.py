"""
What was declared about a sweep and each of its trainings, as plain data that lies beside the results.

The records are written when a sweep is registered or run, and read by everything that compares; so a comparison needs
neither the recipe nor Sisyphus. Directories are relative to the folder of the file they stand in, or absolute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from syncopate.errors import ReadError, SweepError

FORMAT = 1
SWEEP_FILE = "sweep.json"
TABLE_DIRECTORY = "table"
NOT_RECORDED = "not recorded"
"""What stands for a fact that nobody wrote down when a training was made."""

_UNKNOWN_IF_EXISTING = ("num_nodes", "num_ranks", "device", "num_epochs", "data_passes")


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
class UserScore:
    """
    A score of one training that the recipe names, such as the word error rate of the user's own recognition. With
    neither value nor path it is still to come.

    :param name: heading of its column in the table
    :param lower_is_better: which end of it is best
    :param value: the score itself
    :param path: of a file with the score, such as that of a ``tk.Variable``; it need not be there yet
    """

    name: str
    lower_is_better: bool
    value: float | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name != " ".join(self.name.split()):
            raise SweepError(f"the name of a score must be one line of text without spaces around, got {self.name!r}")
        where = f"score {self.name!r}"
        if not isinstance(self.lower_is_better, bool):
            raise SweepError(f"{where}: lower_is_better must be True or False, got {self.lower_is_better!r}")
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if self.value is not None and not (is_number and math.isfinite(self.value)):
            raise SweepError(f"{where}: value must be a finite number, got {self.value!r}")
        if self.path is not None and not isinstance(self.path, str):
            raise SweepError(f"{where}: path must be text, got {self.path!r}")
        if self.value is not None and self.path is not None:
            raise SweepError(f"{where}: it has the value {self.value} and the path {self.path!r}; give one of them")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """
    One training: one trial of a row with one seed. Of a training that was there before, and was not declared here, the
    number of nodes, ranks and epochs, the device and the data passes may be None: not recorded.

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
    :param user_scores: scores that the recipe names, one of each name
    :param existing: whether it was there before: its files are read, and nothing is ever scheduled
    """

    row: str
    trial: int
    seed: int | None
    options: Mapping[str, Any]
    scheme: Mapping[str, Any] | None
    scheme_text: str
    levels: tuple[LevelRecord, ...]
    epoch_end: str | None
    num_nodes: int | None
    num_ranks: int | None
    device: str | None
    num_epochs: int | None
    data_passes: float | None
    dataset_distribution: str | None
    accum_grad: int | None
    max_seqs: int | None
    directory: str
    job_id: str | None = None
    user_scores: tuple[UserScore, ...] = ()
    existing: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in _UNKNOWN_IF_EXISTING if getattr(self, name) is None]
        if unknown and not self.existing:
            raise SweepError(
                f"row {self.row!r}: {unknown} may be None only for a training that was there before, existing=True"
            )
        names = [score.name for score in self.user_scores]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise SweepError(f"row {self.row!r}: one training has the scores {twice} more than once")

    def as_dict(self) -> dict[str, Any]:
        """:return: plain data; without the fields that came later, where they say nothing, so that it stays the same"""
        plain = asdict(self)
        return {key: value for key, value in plain.items() if key not in ("user_scores", "existing") or value}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, source: str) -> Self:
        """
        :param plain: what :meth:`as_dict` or ``dataclasses.asdict`` gave, through JSON
        :param source: names the file in an error
        :raises ReadError: on a missing or unknown field; what came later and has a default may be missing
        """
        values = _checked(cls, plain, source=source)
        levels = _checked_list(values["levels"], what="levels", source=source)
        values["levels"] = tuple(LevelRecord(**_checked(LevelRecord, level, source=source)) for level in levels)
        scores = _checked_list(values.get("user_scores", ()), what="user scores", source=source)
        try:
            values["user_scores"] = tuple(UserScore(**_checked(UserScore, one, source=source)) for one in scores)
            return cls(**values)
        except SweepError as exc:
            raise ReadError(f"{source}: {exc}") from exc


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

    def __post_init__(self) -> None:
        _check_directions(self.runs)

    def to_json(self) -> str:
        """:return: the text of a ``sweep.json``"""
        plain = {**asdict(self), "runs": [run.as_dict() for run in self.runs]}
        return json.dumps(plain, indent=1) + "\n"

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
        try:
            return cls(**values)
        except SweepError as exc:
            raise ReadError(f"{source}: {exc}") from exc


def _check_directions(runs: Sequence[RunRecord]) -> None:
    """One column has one best end."""
    known: dict[str, tuple[bool, str]] = {}
    for run in runs:
        for score in run.user_scores:
            lower_is_better, row = known.setdefault(score.name, (score.lower_is_better, run.row))
            if lower_is_better != score.lower_is_better:
                low, high = (row, run.row) if lower_is_better else (run.row, row)
                raise SweepError(
                    f"score {score.name!r}: lower is better in row {low!r}, higher is better in row {high!r}; one name"
                    " is one column, give the other score a name of its own"
                )


def _checked_list(value: Any, *, what: str, source: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ReadError(f"{source}: expected a list of {what}, found {type(value).__name__}")
    return list(value)


def _checked(cls: type, plain: Any, *, source: str) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise ReadError(f"{source}: expected a {cls.__name__}, found {type(plain).__name__}")
    known = {entry.name for entry in fields(cls)}
    required = {entry.name for entry in fields(cls) if entry.default is MISSING and entry.default_factory is MISSING}
    missing, unknown = sorted(required - set(plain)), sorted(set(plain) - known)
    if missing or unknown:
        raise ReadError(f"{source}: {cls.__name__}: missing {missing}, unknown {unknown}; written by another version?")
    return dict(plain)
