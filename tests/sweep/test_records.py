"""What lies beside the results: plain data that is read back as it was, or an error that names the file."""

from __future__ import annotations

import json
import math

import pytest

from syncopate import Cluster, Sweep, diloco, hierarchical, param_avg
from syncopate.errors import ReadError
from syncopate.sweep.record import LevelRecord, RunRecord, SweepRecord

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
    runs = [run.record(directory=run.name, job_id="job.abc") for run in declared.runs]
    return declared.record(runs, references="references.json")


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
    (run,) = declared.add("x", param_avg(every=2), x={1: {2}, "b": b"x", "n": math.nan})
    options = json.loads(declared.record([run.record(directory="d")], references=None).to_json())["runs"][0]["options"]
    assert options["x"]["1"] == "{2}"
    assert options["x"]["b"] == "b'x'"
    assert math.isnan(options["x"]["n"])


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
