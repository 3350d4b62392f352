"""Rows, trials and seeds of a sweep, and what is refused while they are declared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syncopate import Cluster, ProducedFile, Resources, Sweep, TrainingConfig, ddp, hierarchical, param_avg
from syncopate.errors import DeclarationError, SweepError
from syncopate.sweep.registry import collecting
from syncopate.tasks.char_lm.text import prepare

CLUSTER = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
BASE = {
    "backend": "torch",
    "train": {"class": "A"},
    "dev": {},
    "learning_rate": 0.5,
    "max_seqs": 10,
    "nested": {"a": [1]},
}


def sweep(**options):
    return Sweep("my/sync", **{"base": BASE, "cluster": CLUSTER, "num_epochs": 4, "score": "dev_loss_ce", **options})


def message(call, error=SweepError):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, DeclarationError)
    return str(caught.value)


def test_a_row_is_trials_of_one_scheme_times_seeds():
    declared = sweep(seeds=(1, 2))
    first = declared.add("ddp", ddp(), learning_rate=0.1)
    declared.add("psync", param_avg(every=10), seeds=[None])
    second = declared.add("ddp", ddp(), learning_rate=0.2, seeds=range(3, 5))
    assert [(run.row, run.trial, run.seed) for run in declared.runs] == [
        ("ddp", 0, 1),
        ("ddp", 0, 2),
        ("ddp", 1, 3),
        ("ddp", 1, 4),
        ("psync", 0, None),
    ]
    assert declared.runs[:2] == first.runs
    assert declared.runs[2:4] == second.runs
    assert first.runs[0].config.config["learning_rate"] == 0.1
    assert first.runs[0].config.config["random_seed"] == 1
    assert declared.runs[4].config.config["learning_rate"] == 0.5
    assert "random_seed" not in declared.runs[4].config.config
    declared.check()


def test_each_training_has_its_scheme_and_the_options_that_all_carry():
    declared = sweep(torch_distributed={"dataset_distribution": "shard"})
    declared.add("node", hierarchical(node="gradients", world_every=20))
    declared.add("one", None, cluster=Cluster(device="cpu"))
    declared.check()
    first, second = declared.runs
    assert first.config.config["torch_distributed"] == {
        "sync": [
            {"group": [[0, 1], [2, 3]], "type": "grad"},
            {"group": "world", "type": "param", "every": 20},
        ],
        "sync_at_epoch_end": True,
        "sync_complete_frac": True,
        "dataset_distribution": "shard",
        "backend": "gloo",
    }
    assert "torch_distributed" not in second.config.config


def test_what_the_caller_does_later_changes_nothing():
    base, carried, values = {**BASE, "nested": {"a": [1]}}, {"timeout_sec": 60}, [1, 2]
    declared = sweep(base=base, torch_distributed=carried)
    base["nested"]["a"].append(2)
    base["x"] = 1
    carried["timeout_sec"] = 61
    (run,) = declared.add("ddp", ddp(), max_seqs=values)
    values.append(3)
    assert run.config.config["nested"] == {"a": [1]}
    assert "x" not in run.config.config
    assert run.config.config["torch_distributed"]["timeout_sec"] == 60
    assert run.options == {"max_seqs": [1, 2]}
    assert run.config.config["max_seqs"] == [1, 2]


def test_numpy_s_numbers_are_python_s():
    declared = sweep(num_epochs=np.int64(4), target=np.float32(0.5), seeds=np.arange(1, 3), same_budget=np.True_)
    for learning_rate in np.logspace(-2, -1, 2):
        declared.add("ddp", ddp(), learning_rate=learning_rate, num_epochs=np.int32(5))
    declared.check()
    assert [run.name for run in declared.runs] == [
        "ddp,learning_rate=0.01,seed1",
        "ddp,learning_rate=0.01,seed2",
        "ddp,learning_rate=0.1,seed1",
        "ddp,learning_rate=0.1,seed2",
    ]
    run = declared.runs[0]
    assert {type(value) for value in (run.seed, run.num_epochs, run.config.config["random_seed"])} == {int}
    assert type(run.options["learning_rate"]) is type(run.config.config["learning_rate"]) is float
    assert declared.target == 0.5


# Names


def test_no_name_of_a_run_is_inside_of_another():
    """A name becomes a link to the folder of a training: what stood below it would land in that folder."""
    declared = sweep()
    declared.add("ddp", ddp())
    declared.add("ddp", ddp(), learning_rate=0.1)
    declared.add("ddp", ddp(), seeds=[3])
    declared.check()
    assert [run.name for run in declared.runs] == ["ddp", "ddp,learning_rate=0.1", "ddp,seed3"]
    declared.add("group/ddp", ddp(), max_seqs=5)
    declared.check()
    declared.add("ddp/x", ddp(), max_seqs=6)
    assert (
        message(declared.check)
        == "Sweep 'my/sync': 'ddp/x,max_seqs=6' would be inside of row 'ddp'; rename one of them"
    )


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"learning_rate": 0.5}, "learning_rate=0.5"),
        ({"learning_rate": 1e-05, "max_seqs": None}, "learning_rate=1e-05,max_seqs=None"),
        ({"nested": "a/b c"}, "nested=a_b_c-"),
        ({"nested": "a_b_c"}, "nested=a_b_c"),
        ({"nested": "../../etc"}, "nested=.._.._etc-"),
        ({"nested": "größe\n"}, "nested=gr_e-"),
        ({"nested": [0.5, {"a": 1}]}, "nested=0.5_a_1-"),
        ({"nested": ["x"] * 500}, "nested=x_x_x"),
        ({"nested": "///"}, "nested=-"),
    ],
)
def test_options_make_names_that_are_files(options, label):
    (run,) = sweep().add("ddp", ddp(), **options)
    row, _, rest = run.name.partition(",")
    assert row == "ddp"
    assert rest == label or (rest.startswith(label) and rest[-9] == "-")
    assert "/" not in rest
    assert len(run.name.encode()) < 120


def test_options_that_look_alike_have_two_names():
    declared = sweep()
    for value in ("a/b", "a b", "a_b"):
        declared.add("ddp", ddp(), nested=value)
    assert len({run.name for run in declared.runs}) == 3
    declared.check()


def test_a_produced_file_is_an_option():
    declared = sweep()
    declared.add("ddp", ddp(), nested=ProducedFile(make=prepare, name="a"))
    declared.add("ddp", ddp(), nested=ProducedFile(make=prepare, name="b"))
    declared.check()
    assert [run.name for run in declared.runs] == ["ddp,trial0", "ddp,trial1"]
    assert declared.runs[0].record(directory="x").options["nested"].startswith("ProducedFile(")


@pytest.mark.parametrize("name", ["table", "sweep.json", "live.txt", "tables/x"])
def test_names_that_the_sweep_needs(name):
    declared = sweep()
    declared.add(name, ddp())
    assert "the sweep's own" in message(declared.check)
    assert "rename" in message(declared.check)


NO_NAMES = ["", " ", "/abs", "../up", "a/../../b", ".", "a\nb", "a\x00b", " a", "a/ b", None, 3, b"a", ["a"]]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_are_none(name):
    expected = f"must be a relative path such as 'my_experiment/sync', got {name!r}"
    assert message(lambda: sweep().add(name, ddp())) == f"Sweep 'my/sync': name of a row {expected}"
    assert message(lambda: Sweep(name, base=BASE, num_epochs=1)) == f"Sweep: prefix {expected}"


def test_names_in_one_normal_form():
    declared = Sweep("a//b/./c/", base=BASE, cluster=CLUSTER, num_epochs=1, score="dev_loss_ce")
    assert declared.prefix == "a/b/c"
    declared.add("x/", ddp())
    declared.add("x", ddp(), learning_rate=1)
    declared.add("größe 2 ␣", ddp(), learning_rate=2)
    assert [run.row for run in declared.runs] == ["x", "x", "größe 2 ␣"]
    assert "may be 120 bytes long" in message(lambda: declared.add("ü" * 61, ddp()))


# Rows


def test_two_schemes_under_one_name():
    declared = sweep()
    declared.add("x", param_avg(every=10))
    declared.add("x", param_avg(every=10.0), learning_rate=0.1)
    assert message(lambda: declared.add("x", param_avg(every=20))) == (
        "Sweep 'my/sync', row 'x': it has the scheme 'parameters of all ranks every 10 updates' already, and now"
        " 'parameters of all ranks every 20 updates'; trials of one row share its scheme, give the other scheme a name"
        " of its own"
    )
    assert "and now 'single process'" in message(lambda: declared.add("x", None, cluster=Cluster(device="cpu")))
    declared.add("y", None, cluster=Cluster(device="cpu"))
    assert "it has the scheme 'single process' already" in message(lambda: declared.add("y", ddp()))
    assert "scheme must be a Scheme such as ddp()" in message(lambda: declared.add("x", "psync"), DeclarationError)
    assert len(declared.runs) == 3


def test_two_clusters_under_one_name():
    declared = sweep()
    declared.add("x", ddp())
    assert message(lambda: declared.add("x", ddp(), cluster=Cluster(num_gpus_per_node=4, device="cpu"))) == (
        "Sweep 'my/sync', row 'x': it runs on 2x2 cpu already, and now on 1x4 cpu; trials of one row share its cluster,"
        " give the other cluster a name of its own"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"lerning_rate": 1},
            "Sweep 'my/sync', row 'x': option 'lerning_rate' is not in the config, so it may be misspelt (did you mean"
            " 'learning_rate'?); put its default into the config, then a trial can set it",
        ),
        ({"num_epochs": 0}, "Sweep 'my/sync', row 'x': num_epochs must be an int of at least 1, got 0"),
        ({"num_epochs": 2.0}, "Sweep 'my/sync', row 'x': num_epochs must be an int of at least 1, got 2.0"),
        ({"num_epochs": True}, "Sweep 'my/sync', row 'x': num_epochs must be an int of at least 1, got True"),
        ({"seeds": []}, "Sweep 'my/sync', row 'x': seeds must be a list such as [1, 2, 3], got an empty one"),
        ({"seeds": 3}, "Sweep 'my/sync', row 'x': seeds must be a list such as [1, 2, 3], got 3"),
        ({"seeds": "12"}, "Sweep 'my/sync', row 'x': seeds must be a list such as [1, 2, 3], got '12'"),
        ({"seeds": [1, 1]}, "Sweep 'my/sync', row 'x': seeds [1, 1] name one twice"),
        (
            {"seeds": [[1]]},
            "Sweep 'my/sync', row 'x': a seed must be an int from 0 to 400, or None for the config's own, got [1]",
        ),
        (
            {"seeds": [True]},
            "Sweep 'my/sync', row 'x': a seed must be an int from 0 to 400, or None for the config's own, got True",
        ),
        (
            {"cluster": 4},
            "Sweep 'my/sync', row 'x': cluster must be a Cluster(num_nodes=..., num_gpus_per_node=...), got 4",
        ),
    ],
)
def test_trials_that_are_none(options, text):
    declared = sweep()
    assert message(lambda: declared.add("x", ddp(), **options)) == text
    assert declared.runs == ()


def test_an_error_of_a_part_names_the_row():
    declared = sweep()
    for call, text in (
        (lambda: declared.add("x", ddp(), backend="jax"), "the config's backend must be 'torch', got 'jax'"),
        (lambda: declared.add("x", ddp, learning_rate=1), "scheme must be a Scheme such as ddp()"),
        (lambda: declared.add("x", None), "scheme None is a single process, but the cluster is 2x2 cpu with 4 ranks"),
        (lambda: declared.add("x", ddp(), nested=object), "option nested: <class 'object'> of type type cannot be"),
    ):
        found = message(call, DeclarationError)
        assert found.startswith("Sweep 'my/sync', row 'x': ")
        assert text in found


def test_options_that_are_named_like_parameters_of_add():
    """``num_epochs`` is the row's, and the name of the row cannot be an option."""
    declared = sweep(base={**BASE, "name": "x", "seeds": 3})
    (run,) = declared.add("x", ddp(), num_epochs=9)
    assert run.num_epochs == 9
    assert "num_epochs" not in run.config.config
    with pytest.raises(TypeError, match="multiple values for argument 'name'"):
        declared.add("x", ddp(), name="y")


def test_a_cluster_of_its_own():
    declared = sweep(cluster=None)
    assert message(lambda: declared.add("x", ddp())) == (
        "Sweep 'my/sync', row 'x': it needs a cluster; give one to the sweep or to add(...)"
    )
    (run,) = declared.add("x", ddp(), cluster=Cluster(num_gpus_per_node=2))
    assert run.cluster.world_size == 2


# The sweep itself


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_epochs": 0}, "Sweep 'my/sync': num_epochs must be an int of at least 1, got 0"),
        (
            {"target": "dev_loss_ce"},
            "Sweep 'my/sync': target must be a number, the value of 'dev_loss_ce' to reach, got 'dev_loss_ce'",
        ),
        (
            {"target": math.nan},
            "Sweep 'my/sync': target must be a number, the value of 'dev_loss_ce' to reach, got nan",
        ),
        ({"target": True}, "Sweep 'my/sync': target must be a number, the value of 'dev_loss_ce' to reach, got True"),
        ({"lower_is_better": "yes"}, "Sweep 'my/sync': lower_is_better must be True or False, got 'yes'"),
        ({"same_budget": None}, "Sweep 'my/sync': same_budget must be True or False, got None"),
        ({"torch_distributed": "shard"}, "Sweep 'my/sync': torch_distributed must be a dict, got 'shard'"),
        ({"resources": {"time_h": 1}}, "Sweep 'my/sync': resources must be Resources(...), got {'time_h': 1}"),
        ({"python": 3}, "Sweep 'my/sync': python must be a path, got 3"),
        ({"returnn_root": ["x"]}, "Sweep 'my/sync': returnn_root must be a path, got ['x']"),
        ({"seeds": (1, 2, 1)}, "Sweep 'my/sync': seeds [1, 2, 1] name one twice"),
        (
            {"cluster": "2x2"},
            "Sweep 'my/sync': cluster must be a Cluster(num_nodes=..., num_gpus_per_node=...), got '2x2'",
        ),
        (
            {"epochs": 3},
            "Sweep: unknown option 'epochs', allowed are ['prefix', 'base', 'train', 'num_epochs',"
            " 'cluster', 'score', 'lower_is_better', 'baseline', 'target', 'seeds', 'same_budget',"
            " 'torch_distributed', 'resources', 'python', 'returnn_root'] (did you mean 'num_epochs'?)",
        ),
    ],
)
def test_sweeps_that_are_none(options, text):
    assert message(lambda: sweep(**options)) == text


@pytest.mark.parametrize(
    "base",
    [3, "config.py", {"backend": "tensorflow"}, {}, {"backend": "torch", "x": print}, TrainingConfig(config={})],
)
def test_bases_that_are_none(base):
    with pytest.raises(DeclarationError, match=r"config must be a|backend must be 'torch'|cannot be written"):
        sweep(base=base)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"time_h": 0}, "Resources: time_h must be a number above 0, got 0"),
        ({"time_h": math.inf}, "Resources: time_h must be a number above 0, got inf"),
        ({"mem_gb": math.nan}, "Resources: mem_gb must be a number above 0, got nan"),
        ({"mem_gb": True}, "Resources: mem_gb must be a number above 0, got True"),
        ({"gpu_mem_gb": 0}, "Resources: gpu_mem_gb must be a number above 0, got 0"),
        ({"gpu_mem_gb": "80"}, "Resources: gpu_mem_gb must be a number above 0, got '80'"),
        ({"cpus": 1.5}, "Resources: cpus must be an int of at least 1, got 1.5"),
        ({"cpus": 0}, "Resources: cpus must be an int of at least 1, got 0"),
        (
            {"gpus": 1},
            "Resources: unknown option 'gpus', allowed are ['time_h', 'mem_gb', 'cpus', 'gpu_mem_gb'] (did you mean"
            " 'cpus'?)",
        ),
    ],
)
def test_resources_that_are_none(options, text):
    assert message(lambda: Resources(**options)) == text


# Registering


def test_a_sweep_is_registered_once_and_complete():
    with collecting() as collected:
        declared = sweep()
        declared.add("ddp", ddp())
        declared.check()
        declared.add("psync", param_avg(every=10))
        declared.register()
        assert message(lambda: declared.add("late", ddp())) == (
            "Sweep 'my/sync', row 'late': the sweep is registered already; add everything before register()"
        )
        assert message(declared.register) == "Sweep 'my/sync': it is registered already; register it once"
    assert collected == [declared]
    assert [run.row for run in declared.runs] == ["ddp", "psync"]


@pytest.mark.parametrize("prefix", ["my/sync", "my/sync/ddp", "my/sync/ddp/x", "my/sync/table"])
def test_two_sweeps_have_two_places(prefix):
    for first, second in (("my/sync", prefix), (prefix, "my/sync")):
        with collecting() as collected:
            for place in (first, second):
                declared = Sweep(place, base=BASE, cluster=CLUSTER, num_epochs=4, score="dev_loss_ce")
                declared.add("ddp", ddp())
                if place == first and not collected:
                    declared.register()
            assert message(declared.register) == (
                f"Sweep {second!r}: its results would land in those of the sweep {first!r}; give each a prefix of its"
                " own"
            )


@pytest.mark.parametrize("prefix", ["my", "my/sync2", "my/sync/other", "other/my/sync"])
def test_sweeps_may_stand_beside_each_other(prefix):
    with collecting() as collected:
        for place in ("my/sync", prefix):
            declared = Sweep(place, base=BASE, cluster=CLUSTER, num_epochs=4, score="dev_loss_ce")
            declared.add("ddp", ddp())
            declared.register()
    assert len(collected) == 2


def test_a_sweep_that_is_wrong_is_not_registered():
    with collecting() as collected:
        declared = sweep(baseline="ddp")
        declared.add("psync", param_avg(every=10))
        assert "baseline" in message(declared.register)
        assert collected == []
        declared.add("ddp", ddp())
        declared.register()
    assert collected == [declared]
