"""The sentences below a table: what was compared, what was held fixed, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncopate.compare.references import Reference
from syncopate.compare.row import Row
from syncopate.sweep.record import RunRecord, SweepRecord


def footer_sentences(
    sweep: SweepRecord,
    rows: Sequence[Row],
    references: Mapping[str, Reference] | None,
    *,
    references_problem: str | None,
) -> list[str]:
    """
    :param sweep: what was declared
    :param rows: of the table
    :param references: scores to compare with
    :param references_problem: why they could not be read
    :return: sentences, one per topic
    """
    better = "lower" if sweep.lower_is_better else "higher"
    sentences = [
        f"Score: {sweep.score}, {better} is better. Of each training the best epoch counts, of each trial the mean over"
        " its seeds, of each row its best trial; all numbers of a row are of that trial. sd: sample standard deviation"
        " over its seeds."
    ]
    if sweep.baseline is not None:
        sentences.append(f"Difference: score minus that of {sweep.baseline!r}.")
    if sweep.target is not None:
        relation = "at most" if sweep.lower_is_better else "at least"
        sentences.append(f"Target: {sweep.score} {relation} {sweep.target:g}, at the first epoch that reaches it.")
    sentences += _held_fixed(sweep)
    sentences.append("Data passes: over the whole corpus, by all ranks together, in all epochs asked for.")
    sentences.append(
        "Seconds: training steps with loading and synchronising, in whole seconds per epoch as RETURNN notes them;"
        " evaluation, checkpoints, start-up and queueing are not in them."
    )
    sentences.append(
        "Computed, not measured: updates (micro-batches of rank 0, divided by those per update, rounded down in each"
        " epoch), samples (micro-batches of rank 0, times ranks, times the most sequences one may hold: an upper"
        " bound), and syncs of planned (periods start anew in each epoch; an outer average takes the place of an"
        " inner one; epoch ends are not counted)."
    )
    if any(run.num_ranks > 1 for run in sweep.runs):
        sentences.append("Scores that start with train_ are of rank 0 alone, never the mean over ranks.")
    if references:
        sentences.append(
            "References: " + ", ".join(f"{name} {item.value:g} {item.unit}" for name, item in references.items()) + "."
        )
    elif references_problem is not None:
        sentences.append(f"References: {references_problem}.")
    if any(row.state != "finished" for row in rows):
        sentences.append("Trainings that failed, diverged, or were rejected or unreadable enter no mean.")
    return sentences


def _held_fixed(sweep: SweepRecord) -> list[str]:
    """:return: what is the same in all rows, and what is not"""
    topics = {
        "data passes": [f"{run.data_passes:g}" for run in sweep.runs],
        "ranks": [f"{run.num_nodes}x{run.num_ranks // run.num_nodes} {run.device}" for run in sweep.runs],
        "sequences per update of a rank": [_batch(run) for run in sweep.runs],
        "trials per row": [
            str(len({other.trial for other in sweep.runs if other.row == run.row})) for run in sweep.runs
        ],
    }
    fixed = [f"{topic} ({values[0]})" for topic, values in topics.items() if len(set(values)) == 1]
    varied = [f"{topic} ({_by_row(sweep, values)})" for topic, values in topics.items() if len(set(values)) > 1]
    sentences = [f"The same in all rows: {', '.join(fixed)}."] if fixed else []
    if varied:
        sentences.append(f"NOT the same in all rows: {', '.join(varied)}.")
    if not sweep.same_budget:
        sentences.append("Rows were allowed to differ in data passes.")
    return sentences


def _batch(run: RunRecord) -> str:
    if run.accum_grad is None or run.max_seqs is None:
        return "not known"
    return f"at most {run.accum_grad * run.max_seqs}"


def _by_row(sweep: SweepRecord, values: Sequence[str]) -> str:
    """:return: the values with the rows that have them"""
    rows: dict[str, list[str]] = {}
    for run, value in zip(sweep.runs, values, strict=True):
        if run.row not in rows.setdefault(value, []):
            rows[value].append(run.row)
    return "; ".join(f"{value}: {', '.join(names)}" for value, names in rows.items())
