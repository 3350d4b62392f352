"""
Find what is to be compared: records of sweeps with the folders of their trainings, results of single ones, and folders
of trainings that no sweep has made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from syncopate.compare.existing import guess_score, is_training, measure_existing
from syncopate.compare.measurement import RESULTS_FILE, Measurement
from syncopate.compare.references import Reference, references_or_problem
from syncopate.compare.tables import measure_all
from syncopate.errors import ReadError, SweepError
from syncopate.returnn_io.run_folder import LEARNING_RATE_FILES
from syncopate.sweep.record import SWEEP_FILE, SweepRecord

RESULTS_IN_FOLDER = (RESULTS_FILE, f"output/{RESULTS_FILE}")
SINGLE = "single trainings"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """
    :param sweep: what was declared; of several sources one after the other
    :param measurements: one per run of the sweep
    :param references: scores to compare with, by name
    :param references_problem: why there are none, if there should be
    :param remarks: sentences on how it was loaded that belong below the table
    """

    sweep: SweepRecord
    measurements: tuple[Measurement, ...]
    references: Mapping[str, Reference]
    references_problem: str | None
    remarks: tuple[str, ...] = ()


def load(paths: Sequence[str | Path], *, score: str | None = None, lower_is_better: bool | None = None) -> Loaded:
    """
    :param paths: each a ``sweep.json``, a ``results.json``, a folder with one of them, or the folder of a training that
        no sweep has made. Score, baseline and target are those of the first sweep; rows that have the same name in two
        sweeps get the name of their sweep behind it.
    :param score: another score to compare by; needed where nothing names one and none can be guessed
    :param lower_is_better: which end of the score is best; None for that of the first sweep
    :return: everything that is there
    :raises ReadError: if a path does not exist or holds none of these, or if they cannot be compared
    """
    sources: list[Loaded] = []
    single: dict[Path, Measurement] = {}
    existing: dict[Path, Path] = {}
    for path in map(Path, paths):
        found = _find(path)
        if found.is_dir():
            existing.setdefault(found.resolve(), found)
        elif found.name == SWEEP_FILE or _is_sweep(found):
            sources.append(_load_sweep(found))
        else:
            single[found.resolve()] = _load_result(found)
    try:
        if single or existing:
            named = score if score is not None or not sources else sources[0].sweep.score
            sources.append(_from_results(single, list(existing.values()), score=named))
        if not sources:
            raise ReadError(
                "nothing to compare: name at least one sweep.json, results.json, or a folder with one of them"
            )
        loaded = _combined(sources)
    except SweepError as exc:
        raise ReadError(f"these cannot be compared: {exc}") from exc
    wanted = score if score is not None else loaded.sweep.score
    lower = loaded.sweep.lower_is_better if lower_is_better is None else lower_is_better
    return replace(
        loaded,
        sweep=replace(loaded.sweep, score=wanted, lower_is_better=lower),
        measurements=tuple(found.rescored(wanted, lower_is_better=lower) for found in loaded.measurements),
    )


def _find(path: Path) -> Path:
    """:return: the file to load, or the folder of a training that no sweep has made"""
    if path.is_file():
        return path
    if not path.exists():
        raise ReadError(f"{path}: there is no such file or folder")
    names = (SWEEP_FILE, *RESULTS_IN_FOLDER)
    found = next((path / name for name in names if (path / name).is_file()), None)
    if found is not None:
        return found
    if is_training(path):
        return path
    raise ReadError(f"{path}: has nothing to compare, looked for {', '.join((*names, *LEARNING_RATE_FILES))}")


def _is_sweep(path: Path) -> bool:
    """:return: whether a file of another name is the record of a sweep rather than a result"""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(plain, dict) and "runs" in plain


def _load_sweep(path: Path) -> Loaded:
    sweep = SweepRecord.read(path)
    references, problem = references_or_problem(sweep.references, base=path.parent)
    return Loaded(
        sweep=sweep,
        measurements=tuple(measure_all(sweep, base=path.parent)),
        references=references,
        references_problem=problem,
    )


def _load_result(path: Path) -> Measurement:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ReadError(f"{path}: cannot be read as {SWEEP_FILE} or {RESULTS_FILE}: {exc}") from exc
    if not isinstance(plain, dict):
        raise ReadError(f"{path}: expected the result of a training, got {type(plain).__name__}")
    return Measurement.from_dict(plain, source=str(path))


def _from_results(results: Mapping[Path, Measurement], folders: Sequence[Path], *, score: str | None) -> Loaded:
    seen: dict[tuple[str, int, int | None], Path] = {}
    for path, found in results.items():
        key = (found.run.row, found.run.trial, found.run.seed)
        if key in seen:
            raise ReadError(
                f"{path}: row {key[0]!r}, trial {key[1]}, seed {key[2]} is also in {seen[key]}; name one of them"
            )
        seen[key] = path
    existing = measure_existing(folders, taken={row for row, _, _ in seen})
    measurements = (*results.values(), *existing)
    remarks: tuple[str, ...] = ()

    if score is None and results:
        score = measurements[0].score
    elif score is None:
        score, remark = guess_score(existing)
        remarks = (remark,)
    sweep = SweepRecord(
        prefix=SINGLE,
        score=score,
        lower_is_better=measurements[0].lower_is_better,
        baseline=None,
        target=None,
        same_budget=True,
        references=None,
        runs=tuple(found.run for found in measurements),
    )
    return Loaded(sweep=sweep, measurements=measurements, references={}, references_problem=None, remarks=remarks)


def _combined(sources: Sequence[Loaded]) -> Loaded:
    """:return: all sources as one sweep; only rows whose name is taken are renamed"""
    if len(sources) == 1:
        return sources[0]
    first = sources[0].sweep
    rows = [{run.row for run in source.sweep.runs} for source in sources]
    prefixes = [source.sweep.prefix for source in sources]
    runs, measurements, baseline = [], [], first.baseline
    for index, source in enumerate(sources):
        taken = rows[index] & {row for other, names in enumerate(rows) if other != index for row in names}
        label = prefixes[index] if prefixes.count(prefixes[index]) == 1 else f"{prefixes[index]} #{index + 1}"
        new = {row: f"{row} [{label}]" for row in taken}
        runs += [replace(run, row=new.get(run.row, run.row)) for run in source.sweep.runs]
        measurements += [
            replace(found, run=replace(found.run, row=new.get(found.run.row, found.run.row)))
            for found in source.measurements
        ]
        if index == 0 and baseline is not None:
            baseline = new.get(baseline, baseline)
    references: dict[str, Reference] = {}
    for source in sources:
        for name, reference in source.references.items():
            if references.setdefault(name, reference) != reference:
                raise ReadError(
                    f"reference {name!r} is {references[name].value:g} in one sweep and {reference.value:g} in another:"
                    " their scores cannot be compared"
                )
    problems = [source.references_problem for source in sources if source.references_problem]
    sweep = replace(
        first,
        prefix=" + ".join(dict.fromkeys(prefixes)),
        baseline=baseline,
        same_budget=all(source.sweep.same_budget for source in sources),
        references=None,
        runs=tuple(runs),
    )
    return Loaded(
        sweep=sweep,
        measurements=tuple(measurements),
        references=references,
        references_problem="; ".join(problems) or None,
    )
