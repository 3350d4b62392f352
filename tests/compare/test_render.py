from __future__ import annotations

import csv
import io
import json

import pytest

from syncopate.compare.columns import COLUMNS
from syncopate.compare.layout import WIDTH, grid
from syncopate.compare.references import Reference
from syncopate.compare.render import FORMATS, render
from syncopate.compare.syncs import SyncCount
from syncopate.compare.table import Table, build_table
from syncopate.errors import ReadError
from tests.compare.helpers import GRADIENTS, measured, run_record, sweep_record

DDP = run_record(row="ddp", levels=(GRADIENTS,), epoch_end=None, scheme_text="gradients of all ranks (DDP)")
SYNCS = (SyncCount(group="all ranks", kind="parameters", every=100, planned=7, observed=6),)


@pytest.fixture
def table() -> Table:
    found = [
        measured(DDP, [3.0, 2.0, 2.123456]),
        measured(run_record(), [3.0, 2.4, 2.3], syncs=SYNCS, train_time_s=1234.0, samples_upper_bound=1234567),
        measured(run_record(row="lost"), [], "failed", reason="rank 1 | killed\nby <SIGKILL>"),
    ]
    return build_table(
        sweep_record(*(one.run for one in found), baseline="ddp", target=2.0),
        found,
        {"bigram": Reference(value=2.45, unit="nats/char")},
    )


def test_text(table: Table) -> None:
    lines = render(table).splitlines()
    assert lines[0] == "demo/sync: dev_loss_ce (lower is better)"
    head = next(line for line in lines if line.startswith("row"))
    assert head.split() == ["row", "ranks", "trials", "seeds", "score", "sd", "last", "difference", "state", "notes"]
    psync, cost = (line.split() for line in lines if line.startswith("psync100"))
    assert " ".join(psync) == "psync100 2x2 cpu 1 1 2.3000 one seed 2.3000 +0.3000 finished"
    assert " ".join(cost) == "psync100 parameters of all ranks every 100 3/3 3 750 1,234,567 6/7 1,234 not not"
    assert "(a) 'lost': failed: rank 1 | killed by <SIGKILL>" in lines
    assert "- References: bigram 2.45 nats/char." in lines


def test_text_is_aligned(table: Table) -> None:
    lines = render(table).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("row"))
    score = lines[start].index("score") + len("score")
    assert [line[score - 6 : score] for line in lines[start + 2 : start + 4]] == ["2.0000", "2.3000"]


@pytest.mark.parametrize("long", ["a" * 300, "long name " * 30])
def test_text_is_never_wider_than_120(long: str) -> None:
    first = run_record(row=long, scheme_text=long, num_nodes=128, num_ranks=1024, device="gpu", options={"lr": long})
    other = run_record(row="b" + long, trial=1, scheme_text="x", options={"lr": 0.25})
    found = [
        measured(first, [123456.123456], "finished", updates=10**10, samples_upper_bound=10**13, train_time_s=1e8),
        measured(other, [], "failed", reason=long),
    ]
    table = build_table(sweep_record(*(one.run for one in found), baseline=long, target=0.5, prefix=long), found)
    lines = render(table).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "10,000,000,000" in render(table)


def test_numbers_are_broken_last() -> None:
    lines = grid(
        ["name", "n"], [["some words to wrap here", "1,234,567,890"]], right=[False, True], width=25
    ).splitlines()
    assert lines == [
        "name                    n",
        "----------  -------------",
        "some words  1,234,567,890",
        "to wrap",
        "here",
    ]


def test_even_numbers_are_broken_where_nothing_else_helps() -> None:
    lines = grid(["n"] * 3, [["123456789"] * 3], right=[True] * 3, width=19).splitlines()
    assert lines == ["    n      n      n", "-----  -----  -----", "12345  12345  12345", " 6789   6789   6789"]


def test_markdown(table: Table) -> None:
    lines = render(table, "markdown").splitlines()
    assert lines[0] == "**demo/sync: dev_loss_ce (lower is better)**"
    heads = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert heads[:2] == ["row", "ranks"]
    assert heads[-1] == "target after s"
    assert len(heads) == len(lines[3].strip("|").split("|")) == len(lines[4].strip("|").split("|"))
    assert lines[4].startswith("| ddp | 2x2 cpu | 1 | 1 | 2.0000 | one seed | 2.1235 | baseline | finished |")
    assert r"- (a) 'lost': failed: rank 1 \| killed by \<SIGKILL>" in lines


def test_csv_has_full_precision_and_states_what_is_missing(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert [row["name"] for row in rows] == ["ddp", "psync100", "lost"]
    assert list(rows[0]) == ["score_name", *(column.key for column in COLUMNS), "missing"]
    assert {row["score_name"] for row in rows} == {"dev_loss_ce"}
    assert float(rows[0]["last_score"]) == 2.123456
    assert float(rows[1]["difference"]) == 2.3 - 2.0
    assert (rows[1]["syncs_observed"], rows[1]["train_time_s"]) == ("6", "1234.0")
    assert (rows[2]["score"], rows[2]["train_time_s"]) == ("", "")
    assert "score: failed" in rows[2]["missing"].split("; ")
    assert "target_epoch: not reached (best 2.3000)" in rows[1]["missing"]
    assert rows[2]["notes"] == "'lost': failed: rank 1 | killed\nby <SIGKILL>"


def test_json_holds_everything(table: Table) -> None:
    plain = json.loads(render(table, "json"))
    assert plain == json.loads(json.dumps(table.as_dict()))
    assert plain["rows"][0]["last_score"] == 2.123456
    assert plain["rows"][2]["missing"]["score"] == "failed"
    assert plain["references"] == {"bigram": {"value": 2.45, "unit": "nats/char"}}
    assert plain["footer"] == list(table.footer)


def test_readers_see_only_the_columns_that_apply() -> None:
    found = [measured(run_record(), [2.0])]
    table = build_table(sweep_record(found[0].run), found)
    for format in ("text", "markdown"):
        text = render(table, format)
        for heading in ("difference", "target", "best trial "):
            assert heading not in text
    assert "target_epoch" in render(table, "csv").splitlines()[0]


def test_every_format_ends_in_a_newline_and_takes_a_table_without_rows() -> None:
    table = build_table(sweep_record(), [])
    for format in FORMATS:
        assert render(table, format).endswith("\n")


def test_an_unknown_format_is_named(table: Table) -> None:
    with pytest.raises(
        ReadError, match=r"^format must be one of \['text', 'markdown', 'csv', 'json'\], got 'markdon' "
    ):
        render(table, "markdon")
