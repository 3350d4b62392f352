from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.attempts import begin_attempt, superseded_by
from syncopate.launch.training import Hooks, Training

FULL = Training(
    config_file=Path("/run/returnn.config"),
    run_dir=Path("/run"),
    work_dir=Path("/run/work"),
    cluster=Cluster(num_nodes=2, num_gpus_per_node=4),
    python="/env/bin/python",
    returnn_root=Path("/returnn"),
    distributed=False,
    key="seed1",
    tail=("-m", "syncopate.launch.rank", "/run/returnn.config", "++x", "1"),
    cpus_per_node=8,
    echo=False,
    join_limit_s=60,
)


@pytest.mark.parametrize("training", [FULL, replace(FULL, returnn_root=None, tail=None, cpus_per_node=None)])
def test_what_is_written_down_for_other_nodes_is_read_as_the_same(training: Training) -> None:
    assert Training.from_dict(json.loads(json.dumps(training.as_dict()))) == training


def test_paths_do_not_depend_on_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers of other nodes, and ranks, have their own."""
    monkeypatch.chdir(tmp_path)
    training = replace(FULL, config_file=Path("a.config"), run_dir="run", work_dir=Path(), returnn_root=Path("r"))
    monkeypatch.chdir("/")
    assert (training.config_file, training.run_dir) == (tmp_path / "a.config", tmp_path / "run")
    assert (training.work_dir, training.returnn_root) == (tmp_path, tmp_path / "r")


def test_a_start_is_noted_before_anything_is_prepared(tmp_path: Path) -> None:
    """The package is there for what prepare may start."""
    seen: list[object] = []

    begin_attempt(tmp_path, "old", progress=None, max_starts=None)

    def prepare() -> None:
        seen.append(superseded_by(tmp_path, "old"))
        seen.append((tmp_path / "python_path" / "syncopate" / "cluster.py").exists())

    Hooks(prepare=prepare).begin(tmp_path, "new")
    assert seen == ["new", True]


def test_one_start_too_many_prepares_nothing(tmp_path: Path) -> None:
    prepared: list[int] = []
    hooks = Hooks(prepare=lambda: prepared.append(1), progress=lambda: None, max_starts=2)
    hooks.begin(tmp_path, "a")
    hooks.begin(tmp_path, "b")
    with pytest.raises(LaunchError, match=r"^this training was started 2 times in a row"):
        hooks.begin(tmp_path, "c")
    assert prepared == [1, 1]
