"""Trainings that something befalls, and what has to become of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.slurm.faults import Act, cpus_and_threads, nothing
from tests.slurm.sweeps import Setup, sweep_text
from tests.slurm.training import LIMIT_S, Training

NEVER = 500
"""More epochs than any test waits for."""
EPOCHS = 12
RESOURCES = "mem_gb=2, time_h=1"


@dataclass(kw_only=True)
class Case:
    """
    One training, and what happens to it as soon as it trains.

    :param act: does it
    :param said: what ``act`` said
    :param job_id: SLURM's, of the first start
    :param is_measured: before that, whether its CPUs are looked at
    :param cpus: of each node, see :func:`cpus_and_threads`
    """

    act: Act
    is_measured: bool = False
    training: Training = field(init=False)
    said: str = field(init=False)
    job_id: int = field(init=False)
    cpus: dict[int, tuple[set[int], set[int], set[int]]] = field(init=False)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the trainings of one manager, by row."""

    setup: Setup
    cases: dict[str, Case]

    def __getitem__(self, row: str) -> Training:
        return self.cases[row].training


def act_on(setup: Setup, sweeps: str, cases: Mapping[str, Case], *, epochs: int = 2, head: str = "") -> None:
    """
    Starts a manager, and acts on each training as soon as it has trained some epochs.

    :param sweeps: text of all of them
    :param cases: by alias
    :param head: of the config
    """
    setup.start(setup.write(sweeps, head=head))
    for alias, case in cases.items():
        case.training = setup.training(alias)
    left = dict(cases)
    end_s = time.monotonic() + LIMIT_S
    while left:
        assert time.monotonic() < end_s, f"{list(left)} do not train\n{setup.manager_log()[-4000:]}"
        for alias, case in list(left.items()):
            if case.training.trains(epochs=epochs):
                (case.job_id,) = case.training.job_ids()
                if case.is_measured:
                    case.cpus = cpus_and_threads(case.training)
                case.said = case.act(case.training)
                del left[alias]
        time.sleep(0.2)


def failed(setup: Setup, **acts: Act) -> Outcome:
    """Trainings that end by their act. Each has all CPUs of two nodes."""
    cases = {row: Case(act=act, is_measured=True) for row, act in acts.items()}
    text = sweep_text("failed", dict.fromkeys(acts, ""), num_epochs=NEVER, resources=f"{RESOURCES}, cpus=2")
    with setup:
        act_on(setup, text, {f"failed/{row},note={row}": case for row, case in cases.items()})
        for case in cases.values():
            case.training.wait_until_gone(case.job_id)
        setup.wait_for_end()
    return Outcome(setup=setup, cases=cases)


def resumed(setup: Setup, *, num_gpus_per_node: int, **acts: Act) -> Outcome:
    """Trainings that go on after their act, beside one that is left alone."""
    cases = {row: Case(act=act) for row, act in {"plain": nothing, **acts}.items()}
    text = sweep_text(
        "resumed", dict.fromkeys(cases, ""), num_epochs=EPOCHS, num_gpus_per_node=num_gpus_per_node, resources=RESOURCES
    )
    with setup:
        act_on(setup, text, {f"resumed/{row},note={row}": case for row, case in cases.items()})
        for case in cases.values():
            case.training.wait_for("end of the training", lambda t=case.training: t.has_ended)
    return Outcome(setup=setup, cases=cases)


def check_failed(outcome: Outcome, row: str, *, nodes: Sequence[int] = (0, 1)) -> None:
    """
    All nodes say the same, Sisyphus sees an error, nothing is started again, and the table says why.

    :param nodes: that have a log of their own
    """
    case, training = outcome.cases[row], outcome[row]
    assert training.has_failed
    assert not training.has_finished
    error = training.launch_error()
    assert f"LaunchError: {case.said} (signal 9)" in error
    assert {training.launch_error(node) for node in nodes} == {error}
    assert training.attempts() == [f"{case.job_id}.0.train"]
    assert case.said in training.ends()[f"{case.job_id}.0.train"]
    assert training.job_ids() == [case.job_id]
    assert training.accounted() == {case.job_id: "COMPLETED"}
    table = json.loads(outcome.setup.compare("output/failed", "--format", "json"))
    (shown,) = (each for each in table["rows"] if each["name"] == row)
    assert shown["state"] == "failed"
    assert case.said in " ".join(table["notes"][mark] for mark in shown["notes"])


def check_resumed(outcome: Outcome, row: str, *, submissions: int) -> None:
    """It went on from its checkpoint, and its result is that of the training that was left alone."""
    training, plain = outcome[row], outcome["plain"]
    assert training.has_finished
    assert not training.has_failed
    assert plain.attempts() == [f"{outcome.cases['plain'].job_id}.0.train"]
    first, second = training.attempts()
    assert len(training.job_ids()) == submissions
    starts = [line["progress"] for line in training.journal() if "attempt" in line]
    assert starts[0] == 0
    assert 1 <= starts[1] < EPOCHS
    loaded = f"Load model {training.folder}/output/models/epoch.{starts[1]:03}.pt"
    for rank in range(len(training.ranks(second))):
        assert loaded in training.rank_log(rank, second)
        assert "Load model" not in training.rank_log(rank, first)
    check_same_result(training, plain, epochs=EPOCHS)


def check_same_result(training: Training, plain: Training, *, epochs: int) -> None:
    """Bit for bit: scores of all epochs, and parameters of the last one."""
    import torch

    found, wanted = training.learning_rates(), plain.learning_rates()
    assert list(found.epochs) == list(range(1, epochs + 1))
    for number, epoch in found.epochs.items():
        assert epoch.scores == wanted.epochs[number].scores
    path = f"output/models/epoch.{epochs:03}.pt"
    model, wanted_model = (torch.load(each.folder / path)["model"] for each in (training, plain))
    assert model.keys() == wanted_model.keys()
    for name in wanted_model:
        assert torch.equal(model[name], wanted_model[name]), name
