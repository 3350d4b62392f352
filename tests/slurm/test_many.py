"""Many short trainings on a real SLURM, of two sweeps in one manager: each is started once, and all end well."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.sweeps import Setup, Training

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
LIMIT_PER_TRAINING_S = 60.0
"""Two cores with nothing else to do need 8 s, with three trainings at a time."""


@dataclass(frozen=True, kw_only=True)
class Many:
    setup: Setup
    config: str
    trainings: list[Training]
    seeds: dict[str, list[int]]


def trained(setup: Setup, number: int):
    # One training is in both sweeps.
    middle = number // 2
    seeds = {"left": list(range(middle + 1)), "right": list(range(middle, number))}
    with setup:
        config = setup.write(CONFIG.format(sweeps=seeds))
        setup.start(config)
        setup.wait_for_end(number * LIMIT_PER_TRAINING_S)
        folders = {path.resolve() for sweep in seeds for path in (setup.folder / "alias" / sweep).glob("row,seed=*")}
        yield Many(
            setup=setup,
            config=config,
            seeds=seeds,
            trainings=[Training(folder, setup.cluster) for folder in sorted(folders)],
        )


@pytest.fixture(scope="module")
def make_setup(cluster, make_setup_folder, tmp_path_factory):
    def make() -> Setup:
        return Setup(make_setup_folder(tmp_path_factory.mktemp("many")), cluster)

    return make


@pytest.fixture(scope="module")
def fifteen(make_setup):
    yield from trained(make_setup(), 15)


@pytest.fixture(scope="module")
def fifty(make_setup):
    yield from trained(make_setup(), 50)


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
        for training in many.trainings
    }


@pytest.mark.timeout(1200)
def test_fifteen_trainings_in_a_row(fifteen):
    check_all(fifteen, 15)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_fifty_trainings_in_a_row(fifty):
    check_all(fifty, 50)


def test_a_second_manager_trains_nothing_again(fifteen):
    before = seen(fifteen)
    assert all(checkpoints for _, checkpoints, _ in before.values())
    fifteen.setup.start(fifteen.config)
    fifteen.setup.wait_for_end()
    assert seen(fifteen) == before
