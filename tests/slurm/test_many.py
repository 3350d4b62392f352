"""
Many short trainings on a real SLURM, of two sweeps in one manager: each is started once, and all end well. Beside them
one that dies in each of its starts, between which minutes pass.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.sweeps import ALLOWED_STARTS, Setup, sweep_text
from tests.slurm.training import Training

pytestmark = pytest.mark.needs_sisyphus

CONFIG = """
    for prefix, seeds in {sweeps!r}.items():
        sweep = Sweep(
            prefix,
            base=char_lm(max_train_sequences=64),
            cluster=Cluster(num_nodes=2, device="cpu"),
            num_epochs=1,
            seeds=seeds,
            resources=Resources(mem_gb=2, time_h=0.5),
            torch_distributed={{"dataset_distribution": "shard"}},
        )
        sweep.add("row", param_avg(every=2))
        sweep.register()
"""
DIES_AT_ONCE = """\
#!/bin/sh
# Where it is torchrun's agent, who started it is the launcher. That goes without a word.
case "$*" in *torch.distributed.run*) kill -9 $PPID; sleep 60;; esac
exec {python} "$@"
"""
LIMIT_PER_TRAINING_S = 60.0
"""Two cores with nothing else to do need 8 s, with three trainings at a time."""


@dataclass(frozen=True, kw_only=True)
class Many:
    """
    :param seeds: of each sweep
    :param dying: the one that dies
    """

    setup: Setup
    config: str
    seeds: dict[str, list[int]]
    trainings: list[Training]
    dying: Training

    @classmethod
    def trained(cls, setup: Setup, number: int) -> Many:
        # One training is in both sweeps.
        middle = number // 2
        seeds = {"left": list(range(middle + 1)), "right": list(range(middle, number))}
        python = setup.folder / "dies_at_once"
        python.write_text(DIES_AT_ONCE.format(python=sys.executable), encoding="utf-8")
        python.chmod(0o755)
        dying = sweep_text("dies", {"row": ""}, num_epochs=2, num_gpus_per_node=1, options=f"python={str(python)!r}")
        config = setup.write(CONFIG.format(sweeps=seeds), dying)
        setup.start(config)
        setup.wait_for_end(number * LIMIT_PER_TRAINING_S)
        folders = {path.resolve() for sweep in seeds for path in (setup.folder / "alias" / sweep).glob("row,seed*")}
        return cls(
            setup=setup,
            config=config,
            seeds=seeds,
            trainings=[Training(folder, setup.cluster) for folder in sorted(folders)],
            dying=setup.training("dies/row,note=row"),
        )


@pytest.fixture(scope="module")
def make_setup(cluster, make_setup_folder, tmp_path_factory):
    def make() -> Setup:
        return Setup(make_setup_folder(tmp_path_factory.mktemp("many")), cluster)

    return make


@pytest.fixture(scope="module")
def fifteen(make_setup):
    with make_setup() as setup:
        yield Many.trained(setup, 15)


@pytest.fixture(scope="module")
def fifty(make_setup):
    with make_setup() as setup:
        yield Many.trained(setup, 50)


def check_all(many: Many, number: int) -> None:
    """None hung, none failed at its end, and none was started twice."""
    assert len(many.trainings) == number
    for training in many.trainings:
        assert training.has_finished, training.folder
        assert not training.has_failed
        (job_id,) = training.job_ids()
        assert training.attempts() == [f"{job_id}.0.train"]
        assert training.ends() == {}
        assert training.epochs() == [1]
        assert sorted(record.rank for record in training.ranks()) == [0, 1]
        assert {(record.outcome.kind, record.outcome.exit_code) for record in training.ranks()} == {("finished", 0)}
        assert exit_codes(training, job_id) == {"batch": "0:0", "0": "0:0", "": "0:0"}
    for sweep, seeds in many.seeds.items():
        table = json.loads(many.setup.compare(f"output/{sweep}", "--format", "json"))
        (row,) = table["rows"]
        assert row["state"] == "finished"
        assert row["seeds"] == len(seeds)


def exit_codes(training: Training, job_id: int) -> dict[str, str]:
    """Of the job, of its batch script and of its step; the latter is srun's."""
    command = ("sacct", "--noheader", "--parsable2", f"--jobs={job_id}", "--format=JobIDRaw,ExitCode")
    lines = (line.split("|") for line in training.cluster.run(*command).splitlines())
    return {name.partition(".")[2]: code for name, code in lines}


def seen(many: Many) -> dict[str, tuple[str, dict[Path, int], dict[int, str]]]:
    """What would change if one were trained again."""
    return {
        training.folder.name: (
            (training.folder / "attempts.jsonl").read_text(),
            {path: path.stat().st_mtime_ns for path in training.folder.glob("output/models/*.pt")},
            training.accounted(),
        )
        for training in (*many.trainings, many.dying)
    }


@pytest.mark.timeout(1200)
def test_fifteen_trainings_in_a_row(fifteen):
    check_all(fifteen, 15)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_fifty_trainings_in_a_row(fifty):
    check_all(fifty, 50)


@pytest.mark.timeout(1200)
def test_one_that_dies_at_once_is_given_up(fifteen):
    """Each start is killed without a word, so that Sisyphus sees no error in any of them."""
    training = fifteen.dying
    jobs = training.job_ids()
    assert len(jobs) == ALLOWED_STARTS + 1
    assert training.has_failed
    assert training.attempts() == [f"{job_id}.0.train" for job_id in jobs]
    assert training.accounted().keys() == set(jobs)
    for node in (0, 1):
        said = f"this training was started {ALLOWED_STARTS} times in a row without finishing another epoch"
        assert said in training.launch_error(node)
        for job_id in jobs[:ALLOWED_STARTS]:
            assert f"  {job_id}.0.train: gone without a word: killed with SIGKILL" in training.log(node)
    table = json.loads(fifteen.setup.compare("output/dies", "--format", "json"))
    (row,) = table["rows"]
    assert row["state"] == "failed"
    assert f"started {ALLOWED_STARTS} times in a row" in " ".join(table["notes"][mark] for mark in row["notes"])


@pytest.mark.timeout(1200)
def test_a_second_manager_trains_nothing_again(fifteen):
    """Neither what is trained nor what was given up."""
    before = seen(fifteen)
    assert len(before) == 16
    fifteen.setup.start(fifteen.config)
    fifteen.setup.wait_for_end()
    assert seen(fifteen) == before
    assert fifteen.dying.has_failed
