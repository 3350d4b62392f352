"""What is found out before anything is trained: that the rows fit together."""

from __future__ import annotations

import functools
import json

import pytest

from syncopate import (
    Cluster,
    Level,
    Scheme,
    Sweep,
    TrainingConfig,
    custom,
    ddp,
    diloco,
    hierarchical,
    param_avg,
    with_scheme,
)
from syncopate.errors import (
    ClusterError,
    ConfigError,
    DeclarationError,
    NotYetError,
    ReadError,
    SchemeError,
    SweepError,
)
from syncopate.sweep.checks import check_options_trained_by_us, check_sequences

CLUSTER = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
BASE = {"backend": "torch", "train": {"class": "A", "partition_epoch": 2}, "dev": {}, "learning_rate": 0.5}
SHARD = {"dataset_distribution": "shard"}


def sweep(**options):
    return Sweep("s", **{"base": BASE, "cluster": CLUSTER, "num_epochs": 4, "score": "dev_loss_ce", **options})


def message(call, error=SweepError):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_a_sweep_without_rows():
    assert message(sweep().check) == "Sweep 's' has no rows; add(...) some"


@pytest.mark.parametrize(("baseline", "hint"), [("dpd", " (did you mean 'ddp'?)"), ("", ""), (3, ""), (["ddp"], "")])
def test_a_baseline_that_does_not_exist(baseline, hint):
    declared = sweep(baseline=baseline)
    declared.add("ddp", ddp())
    declared.add("psync", param_avg(every=2))
    text = message(declared.check)
    assert text.startswith(f"Sweep 's': the baseline {baseline!r} is no row; rows are ['ddp', 'psync']")
    assert hint in text


# Scores


def test_the_first_score_that_the_config_reports_is_compared():
    base = TrainingConfig(config=BASE, reports=("dev_loss_ce", "dev_error"))
    assert sweep(base=base, score=None).score == "dev_loss_ce"
    assert sweep(base=base, score="dev_error").score == "dev_error"


def test_a_score_that_the_config_never_reports():
    base = TrainingConfig(config=BASE, reports=("dev_loss_ce", "dev_error"))
    assert message(lambda: sweep(base=base, score="dev_loss_cee")) == (
        "Sweep 's': the config never reports the score 'dev_loss_cee'; it reports ['dev_loss_ce', 'dev_error'] (did you"
        " mean 'dev_loss_ce'?)"
    )
    assert message(lambda: sweep(score="eval_loss_ce")) == (
        "Sweep 's': the config never reports the score 'eval_loss_ce'; scores are named after its data sets ['train',"
        " 'dev'], such as 'dev_loss_ce'"
    )
    assert message(lambda: sweep(score=None)) == (
        "Sweep 's': name the score to compare by, such as score='dev_loss_ce'; the config's data sets are ['train',"
        " 'dev']"
    )
    assert message(lambda: sweep(score=3)) == "Sweep 's': score must be a name such as 'dev_loss_ce', got 3"


def test_scores_of_other_data_sets():
    base = {**BASE, "eval_datasets": {"devtrain": {}, "test": {}}}
    for score in ("test_loss_ce", "devtrain_error", "train_loss_ce", "dev_score_x"):
        assert sweep(base=base, score=score).score == score
    assert "'test_loss_ce'" in message(lambda: sweep(base=base, score="ce"))
    base = {"backend": "torch", "eval_datasets": "config:eval_sets"}
    assert "['train']" in message(lambda: sweep(base=base, score="dev_loss_ce"))


# One job, two rows


def test_two_rows_that_would_be_one_job_although_their_epochs_differ():
    declared = sweep(same_budget=False)
    declared.add("short", param_avg(every=10))
    declared.add("long", param_avg(every=10.0), num_epochs=8)
    assert message(declared.check) == (
        "Sweep 's': 'short' (4 epochs) and 'long' (8 epochs) are the same training otherwise, so they would be one job;"
        " the number of epochs is no part of a job's id. Train the longer one, or let them differ in an option"
    )


def test_two_rows_that_would_be_one_job():
    declared = sweep()
    declared.add("one", param_avg(every=10))
    declared.add("two", Scheme(levels=[Level("world", 10.0)], epoch_end="average"))
    assert message(declared.check) == (
        "Sweep 's': 'one' and 'two' are the same training; leave one out, or let them differ in scheme, options, seed"
        " or cluster"
    )
    declared = sweep()
    declared.add("one", ddp(), learning_rate=0.5)
    declared.add("one", ddp(), seeds=[None])
    assert "'one,learning_rate=0.5' and 'one' are the same training" in message(declared.check)


@pytest.mark.parametrize(
    "other",
    [
        lambda declared: declared.add("two", param_avg(every=11)),
        lambda declared: declared.add("two", param_avg(every=10), learning_rate=0.25),
        lambda declared: declared.add("two", param_avg(every=10), seeds=[0]),
        lambda declared: declared.add("two", param_avg(every=10), cluster=Cluster(num_gpus_per_node=4, device="cpu")),
        lambda declared: declared.add("two", param_avg(every=10), cluster=Cluster(num_nodes=2, num_gpus_per_node=2)),
        lambda declared: declared.add("two", param_avg(every=10, epoch_end="as_is")),
    ],
)
def test_k01_what_makes_two_jobs(other):
    declared = sweep()
    declared.add("one", param_avg(every=10))
    other(declared)
    declared.check()
    assert len({run.identity for run in declared.runs}) == 2


# Budgets


def test_rows_of_unequal_budgets_are_refused_or_allowed():
    declared = sweep(baseline="ddp")
    declared.add("single", None, cluster=Cluster(device="cpu"))
    declared.add("ddp", ddp())
    assert message(declared.check) == (
        "Sweep 's': rows differ in data passes. 'ddp': 4 epochs x 4 ranks / partition_epoch 2 = 8 passes; 'single': 4"
        " epochs / partition_epoch 2 = 2 passes (num_epochs=16 would be equal). Give these rows their own num_epochs,"
        " or say same_budget=False, then the table flags them"
    )
    declared = sweep(baseline="ddp")
    declared.add("single", None, cluster=Cluster(device="cpu"), num_epochs=16)
    declared.add("ddp", ddp())
    declared.check()
    declared = sweep(same_budget=False)
    declared.add("single", None, cluster=Cluster(device="cpu"))
    declared.add("ddp", ddp())
    declared.check()
    assert [run.budget.data_passes for run in declared.runs] == [2, 8]


def test_sharded_rows_of_any_size_have_one_budget():
    declared = sweep(torch_distributed=SHARD)
    for ranks in (1, 3, 7, 49):
        declared.add(f"{ranks}", ddp(), cluster=Cluster(num_gpus_per_node=ranks, device="cpu"))
    declared.add("single", None, cluster=Cluster(device="cpu"))
    declared.check()
    assert {run.budget.data_passes for run in declared.runs} == {2.0}


def test_many_rows_of_unequal_budgets_are_not_all_listed():
    declared = sweep()
    declared.add("ddp", ddp())
    for number in range(8):
        declared.add(f"n{number}", param_avg(every=number + 1), num_epochs=5)
    assert "'n4'" in message(declared.check)
    assert "'n5'" not in message(declared.check)
    assert "; and 3 more. Give" in message(declared.check)


def test_a_budget_that_cannot_be_told_names_the_row():
    declared = sweep()
    train = {"partition_epoch": 2, "dataset": {"partition_epoch": 3}}
    assert message(lambda: declared.add("ddp", ddp(), train=train), ConfigError) == (
        "Sweep 's', row 'ddp': the train data set has several values of partition_epoch, [2, 3], so that its data"
        " passes are unclear; set it in one data set alone"
    )


# Not yet


def hook(*, module, epoch_step_idx, **_kwargs):
    """A hook of a user."""


@pytest.mark.parametrize(
    "scheme",
    [diloco(), param_avg(every=3, epoch_end="view"), custom(hook), custom(functools.partial(hook, x=1), every=4)],
)
def test_what_a_later_version_trains_is_declared_checked_and_refused_clearly(scheme):
    declared = sweep()
    declared.add("later", scheme)
    text = message(declared.check, NotYetError)
    assert text == (
        f"row 'later': the scheme {scheme.text!r} with epoch_end={scheme.epoch_end!r} cannot be trained yet; this"
        " version trains ddp, param_avg, hierarchical, and schemes of Gradients() and Average() levels with epoch_end"
        " 'average' or 'as_is'"
    )
    assert not issubclass(NotYetError, DeclarationError)
    assert "is no row" in message(lambda: with_baseline(scheme).check())


def with_baseline(scheme):
    """Faults of the declaration come before what is missing in this version."""
    declared = sweep(baseline="x")
    declared.add("later", scheme)
    return declared


# Configs that did not come from with_scheme


def test_options_of_a_job():
    for scheme in (ddp(), param_avg(every=2), hierarchical(node="gradients", world_every=2)):
        check_options_trained_by_us(with_scheme(BASE, scheme, CLUSTER), CLUSTER)
    check_options_trained_by_us(BASE, Cluster())
    check_options_trained_by_us({**BASE, "torch_distributed": {}}, CLUSTER)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            BASE,
            ConfigError,
            "the config has no torch_distributed, but the cluster is 2x2 cpu with 4 ranks, which would train apart from"
            " each other; use with_scheme(config, scheme, cluster)",
        ),
        (with_scheme(BASE, diloco(), CLUSTER), NotYetError, "the config's scheme {'levels': "),
        (
            with_scheme(BASE, hierarchical(node="gradients", world_every=2), Cluster(num_nodes=2, num_gpus_per_node=4)),
            ClusterError,
            "the rank lists [[0, 1, 2, 3], [4, 5, 6, 7]] hold the ranks 0..7, but 2x2 cpu has the ranks 0..3",
        ),
        (
            {**BASE, "torch_distributed": {"sync": [{"group": "node", "type": "grad"}]}},
            SchemeError,
            "Scheme: it never synchronises the world",
        ),
        (
            {**BASE, "torch_distributed": {"reduce_type": "param", "sync": []}},
            ConfigError,
            "torch_distributed: sync=[] and reduce_type='param' are both given",
        ),
        (
            {**BASE, "torch_distributed": {"reduce_type": "custom"}},
            ConfigError,
            "torch_distributed: reduce_type must be one of ['grad', 'grad_explicit', 'param'], got 'custom'",
        ),
        ({**BASE, "torch_distributed": "ddp"}, ConfigError, "torch_distributed must be a dict, got 'ddp'"),
    ],
)
def test_options_that_no_job_can_train(options, error, text):
    assert message(lambda: check_options_trained_by_us(options, CLUSTER), error).startswith(text)


# More ranks than sequences


def statistics(tmp_path, content):
    path = tmp_path / "text.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_more_ranks_than_sequences(tmp_path):
    sharded = with_scheme({**BASE, "torch_distributed": SHARD}, ddp(), CLUSTER)
    check_sequences(statistics(tmp_path, {"num_train_sequences": 8}), sharded, num_ranks=4)
    text = message(
        lambda: check_sequences(statistics(tmp_path, {"num_train_sequences": 7}), sharded, num_ranks=4), ConfigError
    )
    assert text == (
        "the train data has 7 sequences, but it is to be split into 8 parts (4 ranks, partition_epoch 2), so that some"
        " ranks would have nothing to train on; use at most 7 parts, or more data"
    )
    every_rank_has_all = with_scheme(BASE, ddp(), CLUSTER)
    check_sequences(statistics(tmp_path, {"num_train_sequences": 2}), every_rank_has_all, num_ranks=4)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "3", '{"num_train": 3}', '{"num_train_sequences": "many"}', '{"num_train_sequences": true}', "{"],
)
def test_statistics_that_are_none(tmp_path, content):
    path = statistics(tmp_path, content)
    text = message(lambda: check_sequences(path, BASE, num_ranks=1), ReadError)
    assert text.startswith(f"{path}: expected ")
    assert "num_train_sequences" in text
    missing = tmp_path / "missing.json"
    assert str(missing) in message(lambda: check_sequences(missing, BASE, num_ranks=1), ReadError)
