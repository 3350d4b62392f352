"""The sentences below a table: what was compared, what was held fixed, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncopate.compare.measurement import Measurement
from syncopate.compare.references import Reference
from syncopate.compare.row import Row, ranks_text
from syncopate.compare.trial import Shown
from syncopate.compare.user_scores import user_score_heads
from syncopate.sweep.record import NOT_RECORDED, RunRecord, SweepRecord


def footer_sentences(
    sweep: SweepRecord,
    rows: Sequence[Row],
    shown: Mapping[str, Shown],
    references: Mapping[str, Reference] | None,
    *,
    references_problem: str | None,
) -> list[str]:
    """
    :param sweep: what was declared
    :param rows: of the table
    :param shown: by row, the trial that is shown
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
    if heads := user_score_heads(sweep.runs):
        named = ", ".join(f"{head.name} ({'lower' if head.lower_is_better else 'higher'} is better)" for head in heads)
        sentences.append(
            f"Scores that the recipe names: {named}. The trial is not chosen by them; each is the mean over those seeds"
            " of the trial that count and have it."
        )
    if sweep.baseline is not None:
        sentences.append(f"Difference: score minus that of {sweep.baseline!r}.")
    if sweep.target is not None:
        relation = "at most" if sweep.lower_is_better else "at least"
        sentences.append(f"Target: {sweep.score} {relation} {sweep.target:g}, at the first epoch that reaches it.")
    if existing := [row.name for row in rows if row.existing]:
        sentences.append(f"Trained before, not by this sweep, and only read: {', '.join(existing)}.")
    sentences += _held_fixed(sweep, shown)
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
    if any(run.num_ranks is None or run.num_ranks > 1 for run in sweep.runs):
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


@dataclass(frozen=True, kw_only=True)
class _Fact:
    """
    What a row has of something that a comparison should hold fixed.

    :param text: for readers; None where nothing of it is recorded
    :param parts: of which two rows may each know another one, so that they neither agree nor differ
    """

    text: str | None
    parts: tuple[object, ...]


def _held_fixed(sweep: SweepRecord, shown: Mapping[str, Shown]) -> list[str]:
    """:return: what is the same in all rows, and what is not; what nobody recorded is no difference"""
    topics = {
        "data passes": [_single(None if run.data_passes is None else f"{run.data_passes:g}") for run in sweep.runs],
        "ranks": [_ranks(shown[run.row].trial[0]) for run in sweep.runs],
        "sequences per update of a rank": [_single(_batch(run)) for run in sweep.runs],
        "trials per row": [_single(_trials(run, sweep)) for run in sweep.runs],
    }
    same, same_as_recorded, varied = [], [], []
    for topic, facts in topics.items():
        parts = list(zip(*(fact.parts for fact in facts), strict=True))
        known = [{part for part in column if part is not None} for column in parts]
        if any(len(values) > 1 for values in known):
            varied.append(f"{topic} ({_by_row(sweep, facts)})")
        elif any(None in column for column in parts):
            same_as_recorded += [f"{topic} ({_by_row(sweep, facts)})"] if any(known) else []
        elif facts:
            same.append(f"{topic} ({facts[0].text})")
    sentences = [f"The same in all rows: {', '.join(same)}."] if same else []
    if same_as_recorded:
        sentences.append(f"The same in all rows, as far as recorded: {', '.join(same_as_recorded)}.")
    if varied:
        sentences.append(f"NOT the same in all rows: {', '.join(varied)}.")
    if not sweep.same_budget:
        sentences.append("Rows were allowed to differ in data passes.")
    return sentences


def _single(text: str | None) -> _Fact:
    return _Fact(text=text, parts=(text,))


def _ranks(training: Measurement) -> _Fact:
    return _Fact(text=ranks_text(training), parts=(training.run.num_nodes, training.num_ranks, training.run.device))


def _batch(run: RunRecord) -> str | None:
    if run.accum_grad is None or run.max_seqs is None:
        return None if run.existing else "not known"
    return f"at most {run.accum_grad * run.max_seqs}"


def _trials(run: RunRecord, sweep: SweepRecord) -> str | None:
    """:return: None for what was there before, since nobody knows what was tried before it"""
    return None if run.existing else str(len({other.trial for other in sweep.runs if other.row == run.row}))


def _by_row(sweep: SweepRecord, facts: Sequence[_Fact]) -> str:
    """:return: the facts with the rows that have them"""
    rows: dict[str | None, list[str]] = {}
    for run, fact in zip(sweep.runs, facts, strict=True):
        if run.row not in rows.setdefault(fact.text, []):
            rows[fact.text].append(run.row)
    rows |= {None: rows.pop(None)} if None in rows else {}  # to the end
    return "; ".join(f"{NOT_RECORDED if value is None else value}: {', '.join(names)}" for value, names in rows.items())
