"""What lies beside the results: plain data that is read back as it was, or an error that names the file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest

from syncopate import Cluster, Sweep, diloco, hierarchical, param_avg
from syncopate.errors import ReadError, SweepError
from syncopate.sweep.record import LevelRecord, RunRecord, SweepRecord, UserScore

BASE = {
    "backend": "torch",
    "train": {"partition_epoch": 2},
    "dev": {},
    "learning_rate": 0.5,
    "max_seqs": 16,
    "accum_grad_multiple_step": 2,
    "x": None,
}


def record():
    declared = Sweep(
        "my/sync",
        base=BASE,
        cluster=Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"),
        num_epochs=4,
        score="dev_loss_ce",
        baseline="ddp",
        target=0.5,
        torch_distributed={"dataset_distribution": "shard"},
    )
    declared.add(
        "node", hierarchical(node="gradients", world_every=20), learning_rate=(0.5, 1), x={"a": "ü"}, seeds=[3]
    )
    declared.add("diloco", diloco())
    declared.add("single", None, cluster=Cluster(device="cpu"))
    return declared.record(lambda run: (run.name, "job.abc"), references="references.json")


def test_a_record_is_read_back(tmp_path):
    path = tmp_path / "sweep.json"
    written = record()
    path.write_text(written.to_json(), encoding="utf-8")
    assert SweepRecord.read(path) == written
    assert SweepRecord.read(str(path)).runs == written.runs


def test_what_is_recorded():
    node, outer, single = record().runs
    assert node == RunRecord(
        row="node",
        trial=0,
        seed=3,
        options={"learning_rate": [0.5, 1], "x": {"a": "ü"}},
        scheme=hierarchical(node="gradients", world_every=20).as_dict(),
        scheme_text="gradients of the ranks of a node every update + parameters of all ranks every 20 updates",
        levels=(
            LevelRecord(group="the ranks of a node", kind="gradients", every=1),
            LevelRecord(group="all ranks", kind="parameters", every=20),
        ),
        epoch_end="average",
        num_nodes=2,
        num_ranks=4,
        device="cpu",
        num_epochs=4,
        data_passes=2.0,
        dataset_distribution="shard",
        accum_grad=2,
        max_seqs=16,
        directory="node,learning_rate=0.5_1,x=a-" + node.directory[-14:],
        job_id="job.abc",
    )
    assert (outer.epoch_end, outer.levels[0].kind) == ("outer", "pseudo-gradients")
    assert (single.scheme, single.scheme_text, single.levels) == (None, "single process", ())
    assert single.dataset_distribution is None


def test_options_that_are_no_plain_data_are_recorded_as_text():
    declared = Sweep("s", base=BASE, cluster=Cluster(), num_epochs=1, score="dev_loss_ce")
    declared.add("x", param_avg(every=2), x={1: {2}, "b": b"x", "n": math.nan})
    options = json.loads(declared.record(lambda run: ("d", None), references=None).to_json())["runs"][0]["options"]
    assert options["x"]["1"] == "{2}"
    assert options["x"]["b"] == "b'x'"
    assert math.isnan(options["x"]["n"])


def with_scores(**directions):
    """The record of a sweep whose rows "node", "diloco" and "single" say whether a lower WER is better."""
    written = record()
    runs = [
        replace(run, user_scores=(UserScore(name="WER", lower_is_better=directions[run.row], path="wer"),))
        if run.row in directions
        else run
        for run in written.runs
    ]
    return replace(written, runs=tuple(runs))


def test_user_scores_and_existing_trainings_are_read_back(tmp_path):
    node, outer, single = record().runs
    scores = (
        UserScore(name="dev-other WER", lower_is_better=True, path="/job/output/wer"),
        UserScore(name="BLEU", lower_is_better=False, value=0.25),
        UserScore(name="to come", lower_is_better=True),
    )
    unknown = dict.fromkeys(("num_nodes", "num_ranks", "device", "num_epochs", "data_passes"))
    before = replace(single, row="base", existing=True, scheme_text="not recorded", **unknown)
    written = replace(record(), runs=(replace(node, user_scores=scores), outer, before))
    path = tmp_path / "sweep.json"
    path.write_text(written.to_json(), encoding="utf-8")
    assert SweepRecord.read(path) == written
    plain = json.loads(json.dumps(asdict(written.runs[0])))
    assert RunRecord.from_dict(plain, source="job") == written.runs[0]


def test_what_came_later_is_written_only_where_it_says_something(tmp_path):
    """So that a record, and the id of a job that has one, stays as it was."""
    for run in record().runs:
        assert not {"user_scores", "existing"} & set(run.as_dict())
        assert RunRecord.from_dict(run.as_dict(), source="job") == run
    assert not {"user_scores", "existing"} & set(json.loads(record().to_json())["runs"][0])


def test_a_record_without_what_has_a_default_is_read():
    plain = record().runs[0].as_dict()
    del plain["job_id"]
    assert RunRecord.from_dict(plain, source="job") == replace(record().runs[0], job_id=None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": ""}, "the name of a score must be one line of text without spaces around, got ''"),
        ({"name": "a\nb"}, "the name of a score must be one line of text without spaces around, got 'a\\nb'"),
        ({"name": " WER"}, "the name of a score must be one line of text without spaces around, got ' WER'"),
        ({"lower_is_better": None}, "score 'WER': lower_is_better must be True or False, got None"),
        ({"value": math.nan}, "score 'WER': value must be a finite number, got nan"),
        ({"value": True}, "score 'WER': value must be a finite number, got True"),
        ({"value": "5.6"}, "score 'WER': value must be a finite number, got '5.6'"),
        ({"path": 3}, "score 'WER': path must be text, got 3"),
        ({"value": 5.6, "path": "wer"}, "score 'WER': it has the value 5.6 and the path 'wer'; give one of them"),
    ],
)
def test_scores_that_cannot_be_meant(changes, reason):
    with pytest.raises(SweepError) as caught:
        UserScore(**{"name": "WER", "lower_is_better": True, **changes})
    assert str(caught.value) == reason


def test_a_training_of_the_sweep_has_no_unknown_facts():
    with pytest.raises(SweepError) as caught:
        replace(record().runs[2], num_ranks=None, num_epochs=None)
    assert str(caught.value) == (
        "row 'single': ['num_ranks', 'num_epochs'] may be None only for a training that was there before, existing=True"
    )


def test_a_training_has_one_score_of_a_name():
    twice = UserScore(name="WER", lower_is_better=True)
    with pytest.raises(SweepError, match=r"^row 'single': one training has the scores \['WER'\] more than once$"):
        replace(record().runs[2], user_scores=(twice, twice))


@pytest.mark.parametrize("first", [True, False])
def test_one_score_has_one_direction_in_a_sweep(tmp_path, first):
    reason = (
        f"score 'WER': lower is better in row {'node' if first else 'diloco'!r}, higher is better in row"
        f" {'diloco' if first else 'node'!r}; one name is one column, give the other score a name of its own"
    )
    with pytest.raises(SweepError) as caught:
        with_scores(node=first, diloco=not first)
    assert str(caught.value) == reason
    plain = json.loads(with_scores(node=first, diloco=first).to_json())
    plain["runs"][1]["user_scores"][0]["lower_is_better"] = not first
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(ReadError) as caught:
        SweepRecord.read(path)
    assert str(caught.value) == f"{path}: {reason}"


def edited(change):
    plain = json.loads(record().to_json())
    change(plain)
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read as the record of a sweep: Expecting value"),
        ("{", "cannot be read as the record of a sweep: Expecting property name"),
        ("[]", "expected the record of a sweep in format 1, found 'list'"),
        ("{}", "expected the record of a sweep in format 1, found None"),
        (edited(lambda plain: plain.update(format=2)), "expected the record of a sweep in format 1, found 2"),
        (
            edited(lambda plain: plain.pop("score")),
            "SweepRecord: missing ['score'], unknown []; written by another version?",
        ),
        (edited(lambda plain: plain.update(more=2)), "SweepRecord: missing [], unknown ['more']"),
        (edited(lambda plain: plain.update(runs=3)), "expected a list of runs, found int"),
        (edited(lambda plain: plain["runs"].append(3)), "expected a RunRecord, found int"),
        (edited(lambda plain: plain["runs"][0].pop("row")), "RunRecord: missing ['row'], unknown []"),
        (edited(lambda plain: plain["runs"][0].update(levels=None)), "expected a list of levels, found NoneType"),
        (edited(lambda plain: plain["runs"][0]["levels"].append("x")), "expected a LevelRecord, found str"),
        (edited(lambda plain: plain["runs"][0]["levels"][0].pop("kind")), "LevelRecord: missing ['kind'], unknown []"),
        (edited(lambda plain: plain["runs"][2].update(device=None)), "row 'single': ['device'] may be None only for"),
        (edited(lambda plain: plain["runs"][0].update(user_scores=3)), "expected a list of user scores, found int"),
        (edited(lambda plain: plain["runs"][0].update(user_scores=[{}])), "UserScore: missing ['lower_is_better', 'na"),
        (
            edited(lambda plain: plain["runs"][0].update(user_scores=[{"name": "", "lower_is_better": True}])),
            "the name of a score must be one line",
        ),
    ],
)
def test_files_that_are_no_records(tmp_path, text, reason):
    path = tmp_path / "sweep.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReadError) as caught:
        SweepRecord.read(path)
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ReadError, match=r"cannot be read as the record of a sweep: .*No such file"):
        SweepRecord.read(tmp_path / "none.json")
    with pytest.raises(ReadError, match="cannot be read as the record of a sweep"):
        SweepRecord.read(tmp_path)
