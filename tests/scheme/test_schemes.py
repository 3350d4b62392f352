"""Levels and schemes: what can be declared, what it is called, and what is refused when it is built."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import time

import numpy as np
import pytest

from syncopate import (
    Average,
    Cluster,
    Gradients,
    Level,
    Outer,
    Scheme,
    custom,
    ddp,
    diloco,
    hierarchical,
    param_avg,
)
from syncopate.errors import ClusterError, DeclarationError, SchemeError

WORLD10 = Level("world", 10)
SGD = {"class": "sgd", "lr": 0.7}


def message(call, error=SchemeError):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, DeclarationError)
    return str(caught.value)


# Named schemes


def test_named_schemes_are_levels():
    assert ddp() == Scheme(levels=(Level("world", sync=Gradients()),))
    assert ddp(options={"find_unused_parameters": False}).levels[0].sync.options == {"find_unused_parameters": False}
    assert param_avg(every=100) == Scheme(levels=[Level("world", 100, Average())])
    assert hierarchical(node="gradients", world_every=20) == Scheme(
        levels=(Level("node", 1, sync=Gradients()), Level("world", 20, sync=Average()))
    )
    assert hierarchical(node="parameters", node_every=5, world_every=20, optimizer_state=True) == Scheme(
        levels=(
            Level("node", 5, Average(optimizer_state=True)),
            Level("world", 20, Average(optimizer_state=True)),
        )
    )


def test_diloco_has_the_values_of_the_paper():
    scheme = diloco()
    (level,) = scheme.levels
    assert (level.group, level.every, scheme.epoch_end) == ("world", 500, "outer")
    assert level.sync == Outer(optimizer={"class": "SGD", "lr": 0.7, "momentum": 0.9, "nesterov": True})
    assert scheme == diloco(inner_steps=500.0, outer_lr=0.7, outer_momentum=0.9, nesterov=True)


def test_k22_diloco_without_momentum_is_plain_sgd():
    """Nesterov's momentum of no momentum is none; a user need not say so twice."""
    assert diloco(outer_lr=1, outer_momentum=0).levels[0].sync.optimizer == {"class": "sgd", "lr": 1}
    assert diloco(outer_lr=1.0, outer_momentum=0.0, nesterov=False) == diloco(outer_lr=1, outer_momentum=0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (param_avg(every=2), param_avg(every=2.0)),
        (param_avg(every=2), param_avg(every=np.int64(2))),
        (ddp(options={"bucket_cap_mb": 25}), ddp(options={"bucket_cap_mb": 25.0})),
        (ddp(options={"a": [1], "b": 2}), ddp(options={"b": 2, "a": (1,)})),
        (ddp(options={}), ddp()),
        (Scheme(levels=[WORLD10]), Scheme(levels=(level for level in [WORLD10]))),
        (Scheme(levels=(Level(2.0, 2), WORLD10)), Scheme(levels=(Level(2, 2.0), WORLD10))),
        (Scheme(levels=(Level([[1, 0], [3, 2]], 2), WORLD10)), Scheme(levels=(Level(((2, 3), (0, 1)), 2), WORLD10))),
        (
            Scheme(levels=(Level([range(2), range(2, 4)], 2), WORLD10)),
            Scheme(levels=(Level([[0, 1], [2, 3]], 2), WORLD10)),
        ),
        (Scheme(levels=(WORLD10,), epoch_end="average"), Scheme(levels=(WORLD10,))),
        (diloco(outer_lr=1.0), diloco(outer_lr=1)),
    ],
)
def test_what_means_the_same_is_the_same(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one.as_dict()) == repr(other.as_dict())
    assert one is not other


def test_words_of_numpy_are_strings():
    """Sisyphus hashes no derived type of them."""
    scheme = Scheme(levels=(Level(np.str_("node"), 2), WORLD10), epoch_end=np.str_("average"))
    assert scheme == Scheme(levels=(Level("node", 2), WORLD10))
    assert (
        type(scheme.epoch_end)
        is type(scheme.levels[0].group)
        is type(ddp(buffers=np.str_("rank0")).levels[0].sync.buffers)
    )
    assert type(scheme.epoch_end) is str


def test_what_differs_is_different():
    schemes = [
        ddp(),
        ddp(explicit=True),
        ddp(buffers=None),
        ddp(options={"static_graph": True}),
        ddp(options={"static_graph": 1}),
        param_avg(every=2),
        param_avg(every=3),
        param_avg(every=2, optimizer_state=True),
        param_avg(every=2, on_cpu=True),
        param_avg(every=2, epoch_end="as_is"),
        param_avg(every=2, epoch_end="view"),
        hierarchical(node="gradients", world_every=2),
        hierarchical(node="parameters", world_every=2),
        hierarchical(node="parameters", node_every=2, world_every=2),
        diloco(),
        diloco(outer_lr=0.8),
        diloco(nesterov=False),
        diloco(epoch_end="view"),
    ]
    assert len(set(schemes)) == len({repr(scheme.as_dict()) for scheme in schemes}) == len(schemes)


@pytest.mark.parametrize("scheme", [ddp(), param_avg(every=7), hierarchical(node="gradients", world_every=4), diloco()])
def test_a_scheme_is_a_value(scheme):
    assert copy.deepcopy(scheme) == pickle.loads(pickle.dumps(scheme)) == scheme
    assert {scheme: 1}[copy.deepcopy(scheme)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        scheme.epoch_end = "view"
    with pytest.raises(dataclasses.FrozenInstanceError):
        scheme.levels[0].every = 3
    assert dataclasses.replace(scheme) == scheme
    scheme.as_dict()["levels"].clear()
    assert scheme.as_dict()["levels"]


def test_what_the_caller_does_later_changes_nothing():
    options, groups, levels = {"bucket_cap_mb": 1}, [[0, 1], [2, 3]], [WORLD10]
    declared = [ddp(options=options), Scheme(levels=(Level(groups, 2), WORLD10)), Scheme(levels=levels)]
    before = [scheme.as_dict() for scheme in declared]
    options["static_graph"] = True
    groups[0].append(4)
    levels.append(WORLD10)
    assert [scheme.as_dict() for scheme in declared] == before


def test_a_level_takes_group_period_and_sync_in_this_order():
    assert Level("node", 5, Average()) == Level("node", every=5, sync=Average()) == Level(group="node", every=5)
    assert Level("world", 1, Gradients()) == Level("world", sync=Gradients())


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        (ddp(), "gradients of all ranks every update (DDP)"),
        (ddp(explicit=True), "gradients of all ranks every update (after the backward pass)"),
        (param_avg(every=100), "parameters of all ranks every 100 updates"),
        (param_avg(every=1, optimizer_state=True), "parameters and optimizer state of all ranks every update"),
        (
            hierarchical(node="gradients", world_every=20),
            "gradients of the ranks of a node every update + parameters of all ranks every 20 updates",
        ),
        (
            Scheme(levels=(Level([[0, 2], [1, 3]], 2), Level(4, 4))),
            "parameters of ranks 0,2 | 1,3 every 2 updates + parameters of blocks of 4 ranks every 4 updates",
        ),
        (diloco(), "pseudo-gradients of all ranks every 500 updates"),
    ],
)
def test_a_scheme_says_what_it_does(scheme, text):
    assert scheme.text == text


# Misuse


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: ddp(find_unused_parameters=False),
            "ddp: unknown option 'find_unused_parameters', allowed are ['options', 'explicit', 'buffers'];"
            " what DistributedDataParallel knows goes into options={...}",
        ),
        (
            lambda: param_avg(evry=100),
            "param_avg: unknown option 'evry', allowed are ['every', 'optimizer_state', 'on_cpu', 'epoch_end']"
            " (did you mean 'every'?)",
        ),
        (
            lambda: Level("world", 10, type="param"),
            "Level: unknown option 'type', allowed are ['group', 'every', 'sync']",
        ),
        (
            lambda: Level("world", evry=10),
            "Level: unknown option 'evry', allowed are ['group', 'every', 'sync'] (did you mean 'every'?)",
        ),
        (
            lambda: Average(optimiser_state=True),
            "Average: unknown option 'optimiser_state', allowed are ['optimizer_state', 'on_cpu']"
            " (did you mean 'optimizer_state'?)",
        ),
        (
            lambda: Scheme(level=[WORLD10]),
            "Scheme: unknown option 'level', allowed are ['levels', 'epoch_end', 'hook'] (did you mean 'levels'?)",
        ),
        (
            lambda: diloco(lr=0.7),
            "diloco: unknown option 'lr', allowed are ['inner_steps', 'outer_lr', 'outer_momentum', 'nesterov',"
            " 'epoch_end']",
        ),
        (
            lambda: Outer(optimiser=SGD),
            "Outer: unknown option 'optimiser', allowed are ['optimizer'] (did you mean 'optimizer'?)",
        ),
        (lambda: custom(print, when=3), "custom: unknown option 'when', allowed are ['function', 'every']"),
        (
            lambda: hierarchical(node="grads", world_every=4),
            "hierarchical: node must be one of ['gradients', 'parameters'], got 'grads' (did you mean 'gradients'?)",
        ),
        (
            lambda: Level("nodes", 4),
            "Level: group must be one of ['node', 'world'], a number of ranks, or lists of ranks such as"
            " [[0, 1], [2, 3]], got 'nodes' (did you mean 'node'?)",
        ),
        (
            lambda: param_avg(every=2, epoch_end="avg"),
            "Scheme: epoch_end must be one of ['average', 'outer', 'view', 'as_is'], got 'avg' (did you"
            " mean 'average'?)",
        ),
        (
            lambda: param_avg(every=2, epoch_end="as is"),
            "Scheme: epoch_end must be one of ['average', 'outer', 'view', 'as_is'], got 'as is' (did you"
            " mean 'as_is'?)",
        ),
        (lambda: ddp(buffers="rank1"), "Gradients: buffers must be one of ['rank0', None], got 'rank1'"),
    ],
)
def test_unknown_options_and_words(call, text):
    assert message(call) == text


def test_a_forgotten_period_is_python_s_own_error():
    with pytest.raises(TypeError, match=r"param_avg\(\) missing 1 required keyword-only argument: 'every'"):
        param_avg()


@pytest.mark.parametrize("every", [0, -5, 1.5, True, "10", None, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda every: param_avg(every=every), "Level: every"),
        (lambda every: Level("world", every), "Level: every"),
        (lambda every: hierarchical(node="parameters", node_every=every, world_every=4), "hierarchical: node_every"),
        (lambda every: hierarchical(node="parameters", world_every=every), "hierarchical: world_every"),
        (lambda every: diloco(inner_steps=every), "diloco: inner_steps"),
    ],
)
def test_periods_that_are_none(call, what, every):
    expected = f"{what} counts updates and must be a whole number of at least 1, got {every!r}"
    assert message(lambda: call(every)) == expected


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: hierarchical(node="parameters", node_every=3, world_every=10),
            "hierarchical: world_every=10 is no multiple of node_every=3; use a multiple of 3",
        ),
        (
            lambda: hierarchical(node="gradients", node_every=2, world_every=10),
            "hierarchical: gradients are combined in every update, got node_every=2; leave it out, or use"
            " node='parameters'",
        ),
        (
            lambda: Scheme(levels=(Level("node", 4), WORLD10)),
            "Scheme: the period of 'parameters of all ranks every 10 updates' is no multiple of that of"
            " 'parameters of the ranks of a node every 4 updates' inside it; use a multiple of 4",
        ),
        (
            lambda: Level("world", 2, Gradients()),
            "Level: gradients are combined in every update, got every=2; use sync=Average() for a period, or"
            " accum_grad_multiple_step for larger batches",
        ),
        (
            lambda: Scheme(levels=(Level("node", 1), Level("world", sync=Gradients()))),
            "Scheme: gradients are combined before the optimizer update, so their level comes first and there is one of"
            " them; got 'gradients of all ranks every update' outside of 'parameters of the ranks of a node every"
            " update'",
        ),
        (
            lambda: Scheme(levels=(WORLD10, Level("node", 20))),
            "Scheme: levels go from inner to outer, got group 'world' inside of group 'node'",
        ),
        (
            lambda: Scheme(levels=(Level(4, 1), Level(2, 2), WORLD10)),
            "Scheme: levels go from inner to outer, and blocks of 2 ranks are not made of blocks of 4; use a multiple"
            " of 4",
        ),
        (
            lambda: Scheme(levels=(Level("node", sync=Gradients(options={"static_graph": True})), WORLD10)),
            "Scheme: options {'static_graph': True} are for DDP, which runs only where gradients of the world are the"
            " only level; leave them out",
        ),
        (
            lambda: Gradients(explicit=True, options={"static_graph": True}),
            "Gradients: options {'static_graph': True} are for DDP, which explicit=True does not use; leave one out",
        ),
        (
            lambda: ddp(options={"device_ids": [0]}),
            "Gradients: RETURNN sets DDP's 'device_ids' itself; leave it out of options",
        ),
        (
            lambda: ddp(options={"broadcast_buffers": True}),
            "Gradients: options say broadcast_buffers=True and buffers says 'rank0'; say buffers=None to decide by"
            " options",
        ),
        (
            lambda: ddp(options={"forward_sync_buffers": True}),
            "Gradients: options say forward_sync_buffers=True and buffers says 'rank0'; say buffers=None to decide by"
            " options",
        ),
        (lambda: ddp(options=[1]), "ddp: options must be a dict, got [1]"),
        (
            lambda: ddp(options={"comm_hook": print}),
            "ddp: options['comm_hook']: <built-in function print> of type builtin_function_or_method cannot be written"
            " into a config; use None, bool, int, finite float, str, and lists, tuples or dicts of them",
        ),
        (lambda: ddp(explicit=1), "Gradients: explicit must be True or False, got 1"),
        (
            lambda: param_avg(every=2, optimizer_state="yes"),
            "Average: optimizer_state must be True or False, got 'yes'",
        ),
        (lambda: param_avg(every=2, on_cpu=None), "Average: on_cpu must be True or False, got None"),
    ],
)
def test_combinations_that_make_no_sense(call, text):
    assert message(call) == text


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (Level("world", 2), "Scheme: levels must be a sequence of Level, got a single one; write levels=(Level(...),)"),
        (None, "Scheme: levels must be a sequence of Level, got None"),
        (3, "Scheme: levels must be a sequence of Level, got 3"),
        ("world", "Scheme: levels must be a sequence of Level, got 'w'"),
        ([Average()], "Scheme: levels must be a sequence of Level, got Average(optimizer_state=False, on_cpu=False)"),
        ([{"group": "world"}], "Scheme: levels must be a sequence of Level, got {'group': 'world'}"),
        ((), "Scheme: needs either levels or a hook; for a single process use None instead of a scheme"),
    ],
)
def test_levels_that_are_none(levels, text):
    assert message(lambda: Scheme(levels=levels)) == text


def test_a_hook_that_is_none():
    assert message(lambda: Scheme(hook=print)) == (
        "Scheme: hook must come from custom(function, every=...), got <built-in function print>"
    )


@pytest.mark.parametrize("sync", [Average, "parameters", None, 3, {"class": "Average"}])
def test_a_sync_that_is_none(sync):
    expected = f"Level: sync must be Gradients(), Average() or Outer(), got {sync!r}"
    assert message(lambda: Level("world", 2, sync)) == expected


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        ("sgd", 'Outer: optimizer must be a dict with a "class", such as {"class": "sgd", "lr": 0.7}, got \'sgd\''),
        (
            {"lr": 1},
            'Outer: optimizer must be a dict with a "class", such as {"class": "sgd", "lr": 0.7}, got {\'lr\': 1}',
        ),
        ({"class": "sgd"}, "Outer: optimizer needs an \"lr\", got {'class': 'sgd'}"),
        ({**SGD, "lr": -0.1}, "Outer: lr must be a number of at least 0, got -0.1"),
        ({**SGD, "lr": float("nan")}, "Outer: lr must be a number of at least 0, got nan"),
        ({**SGD, "lr": True}, "Outer: lr must be a number of at least 0, got True"),
        ({**SGD, "momentum": 1.5}, "Outer: momentum must be a number of at least 0 and at most 1, got 1.5"),
        ({**SGD, "nesterov": 1, "momentum": 0.9}, "Outer: nesterov must be True or False, got 1"),
        (
            {**SGD, "nesterov": True},
            "Outer: nesterov=True needs a momentum above 0, got momentum 0; give a momentum, or leave nesterov out",
        ),
        (
            {**SGD, "weight_decay": 0.1},
            "Outer: unknown option 'weight_decay' of outer SGD, allowed are ['class', 'lr', 'momentum', 'nesterov']",
        ),
        (
            {**SGD, "nestorov": True},
            "Outer: unknown option 'nestorov' of outer SGD, allowed are ['class', 'lr', 'momentum', 'nesterov']"
            " (did you mean 'nesterov'?)",
        ),
        (
            {"class": "adamm", "lr": 1e-3},
            "Outer: optimizer class must be one of ['adadelta', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamw',"
            " 'asgd', 'nadam', 'radam', 'rmsprop', 'rprop', 'sgd'], got 'adamm' (did you mean 'adam'?)",
        ),
    ],
)
def test_outer_optimizers_that_are_none(optimizer, text):
    assert message(lambda: Outer(optimizer=optimizer)) == text


def test_an_outer_optimizer_has_one_normal_form():
    assert Outer(optimizer={**SGD, "momentum": 0, "nesterov": False}) == Outer(optimizer=SGD)
    assert Outer(optimizer={**SGD, "class": "SGD"}) == Outer(optimizer=SGD)
    adam = Outer(optimizer={"class": "AdamW", "lr": np.float64(0.001), "betas": (0.9, 0.95)})
    assert adam.optimizer == {"class": "adamw", "lr": 0.001, "betas": [0.9, 0.95]}
    assert type(adam.optimizer["lr"]) is float


# Groups


@pytest.mark.parametrize(
    ("ranks", "fault"),
    [
        ([[0, 1], [1, 2]], "0..2: named twice [1]"),
        ([[0, 1], [3]], "0..2: missing [2], out of range [3]"),
        ([[1, 2], [3, 4]], "0..3: missing [0], out of range [4]"),
        ([[0, 0]], "0..0: named twice [0]"),
    ],
)
def test_rank_lists_that_are_no_partition_are_refused_at_once(ranks, fault):
    assert message(lambda: Level(ranks, 2)) == (
        f"Level: group: the rank lists {ranks} are no partition of the ranks {fault}; name every rank exactly once"
    )


@pytest.mark.parametrize(
    "levels", [[Level("node", 2)], [Level("node", sync=Gradients())], [Level(1), Level("node", 2)]]
)
def test_k07_nodes_that_never_meet_are_refused_when_built(levels):
    assert message(lambda: Scheme(levels=levels)) == (
        f"Scheme: it never synchronises the world: its outermost level is {levels[-1].text!r}, which leaves these"
        " groups apart for ever; add a Level with group 'world'"
    )


def test_k07_rank_lists_that_never_meet_are_refused_when_built():
    assert "it never synchronises the world" in message(lambda: Scheme(levels=(Level([[0, 1], [2, 3]], 2),)))
    assert Scheme(levels=(Level([[0, 1, 2, 3]], 2),)).levels


def test_k07_blocks_that_never_meet_are_refused_for_a_cluster():
    scheme = Scheme(levels=(Level(2, 10),))
    scheme.check(Cluster(num_gpus_per_node=2))
    assert message(lambda: scheme.check(Cluster(num_nodes=2, num_gpus_per_node=2))) == (
        "the scheme never synchronises the world: its outermost level, 'parameters of blocks of 2 ranks every 10"
        " updates', leaves the groups [[0, 1], [2, 3]] of 2x2 gpu apart for ever; add a Level with group 'world'"
    )


def test_groups_that_do_not_nest():
    scheme = Scheme(levels=(Level([[0, 1], [2, 3]], 2), Level([[0, 2, 1, 3]], 4)))
    scheme.check(Cluster(num_gpus_per_node=4))
    scheme = Scheme(levels=(Level([[0, 3], [1, 2]], 2), Level("node", 4), Level("world", 8)))
    assert message(lambda: scheme.check(Cluster(num_nodes=2, num_gpus_per_node=2))) == (
        "groups do not nest on 2x2 gpu: ranks [0, 3] of the level 'parameters of ranks 0,3 | 1,2 every 2 updates' are"
        " in no single group of the next level 'parameters of the ranks of a node every 4 updates', whose groups are"
        " [[0, 1], [2, 3]]; every group must be a union of groups of the level inside it"
    )
    scheme.check(Cluster(num_nodes=1, num_gpus_per_node=4))


def test_groups_that_do_not_fit_the_cluster():
    scheme = Scheme(levels=(Level(3, 2), WORLD10))
    scheme.check(Cluster(num_gpus_per_node=6))
    text = message(lambda: scheme.check(Cluster(num_gpus_per_node=4)), ClusterError)
    assert text == "groups of 3 ranks do not divide the 4 ranks of 1x4 gpu; use a divisor of 4, or lists of ranks"
    scheme = Scheme(levels=(Level([[0, 1], [2, 3]], 2), WORLD10))
    assert "hold the ranks 0..3" in message(lambda: scheme.check(Cluster(num_gpus_per_node=8)), ClusterError)


def test_a_large_cluster_is_checked_at_once():
    cluster = Cluster(num_nodes=1000, num_gpus_per_node=8)
    scheme = Scheme(levels=(Level(1), Level("node"), Level([range(4000), range(4000, 8000)]), Level("world")))
    start = time.perf_counter()
    scheme.check(cluster)
    assert time.perf_counter() - start < 1.0
    assert scheme.levels[2].text == "parameters of 2 lists of ranks every update"


@pytest.mark.parametrize(
    ("cluster", "groups"),
    [
        (Cluster(num_nodes=2, num_gpus_per_node=2), [[[0], [1], [2], [3]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]]),
        (Cluster(num_nodes=1, num_gpus_per_node=4), [[[0], [1], [2], [3]], [[0, 1, 2, 3]], [[0, 1, 2, 3]]]),
        (Cluster(num_nodes=4, num_gpus_per_node=1), [[[0], [1], [2], [3]], [[0], [1], [2], [3]], [[0, 1, 2, 3]]]),
    ],
)
def test_three_levels_on_every_shape(cluster, groups):
    scheme = Scheme(levels=(Level(1, 2), Level("node", 4), Level("world", 8)))
    scheme.check(cluster)
    assert [cluster.groups(level.group) for level in scheme.levels] == groups


# Epoch ends


@pytest.mark.parametrize(
    ("scheme", "epoch_end"),
    [
        (ddp(), None),
        (ddp(explicit=True), None),
        (param_avg(every=3), "average"),
        (hierarchical(node="gradients", world_every=3), "average"),
        (diloco(), "outer"),
        (diloco(epoch_end="average"), "average"),
        (param_avg(every=3, epoch_end="view"), "view"),
    ],
)
def test_default_epoch_ends(scheme, epoch_end):
    assert scheme.epoch_end == epoch_end
    assert scheme.as_dict().get("epoch_end") == epoch_end


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: Scheme(levels=(Level("world", sync=Gradients()),), epoch_end="average"),
            "Scheme: epoch_end='average', but with gradients in every update the ranks never differ; leave it out",
        ),
        (
            lambda: param_avg(every=3, epoch_end="outer"),
            "Scheme: epoch_end='outer' needs a level with sync=Outer(...); use 'average'",
        ),
        (
            lambda: diloco(epoch_end="as_is"),
            "Scheme: epoch_end='as_is' leaves the epoch end to RETURNN, which knows no outer step; use 'outer', 'view'"
            " or 'average'",
        ),
    ],
)
def test_epoch_ends_that_make_no_sense(call, text):
    assert message(call) == text


def test_the_dict_of_a_scheme_is_plain_and_leaves_out_defaults():
    assert param_avg(every=2.0).as_dict() == {
        "levels": [{"group": "world", "every": 2, "sync": {"class": "Average"}}],
        "epoch_end": "average",
    }
    assert ddp(options={"static_graph": True}, buffers=None).as_dict() == {
        "levels": [
            {
                "group": "world",
                "every": 1,
                "sync": {"class": "Gradients", "options": {"static_graph": True}, "buffers": None},
            }
        ]
    }
    assert diloco().as_dict() == {
        "levels": [
            {
                "group": "world",
                "every": 500,
                "sync": {
                    "class": "Outer",
                    "optimizer": {"class": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True},
                },
            }
        ],
        "epoch_end": "outer",
    }
    assert Scheme(levels=(Level([[1, 0], [2]], 2), WORLD10)).as_dict()["levels"][0]["group"] == [[0, 1], [2]]
