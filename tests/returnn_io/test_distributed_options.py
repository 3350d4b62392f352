"""What is written into ``torch_distributed``, and how it meets what is there already."""

from __future__ import annotations

import pytest

from syncopate import Average, Cluster, Gradients, Level, Outer, Scheme, ddp, diloco, hierarchical, param_avg
from syncopate.errors import ClusterError, ConfigError, DeclarationError, SchemeError
from syncopate.returnn_io.distributed_options import check_options, merged_options, needs_runtime, scheme_options

TWO = Cluster(num_nodes=2, num_gpus_per_node=2)
CPU = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
NODES = [[0, 1], [2, 3]]
ENDS = {"sync_at_epoch_end": True, "sync_complete_frac": True}

WRITTEN = [
    (ddp(), {"reduce_type": "grad", "options": {"broadcast_buffers": False}}),
    (ddp(buffers=None), {"reduce_type": "grad"}),
    (ddp(explicit=True), {"reduce_type": "grad_explicit"}),
    (
        ddp(options={"find_unused_parameters": False}),
        {"reduce_type": "grad", "options": {"find_unused_parameters": False, "broadcast_buffers": False}},
    ),
    (
        ddp(options={"broadcast_buffers": True}, buffers=None),
        {"reduce_type": "grad", "options": {"broadcast_buffers": True}},
    ),
    (param_avg(every=100), {"reduce_type": "param", "param_sync_step": 100, **ENDS}),
    (param_avg(every=100.0, epoch_end="as_is"), {"reduce_type": "param", "param_sync_step": 100}),
    (
        param_avg(every=3, optimizer_state=True, on_cpu=True),
        {"reduce_type": "param", "param_sync_step": 3, "sync_optimizer_state": True, "sync_on_cpu": True, **ENDS},
    ),
    (
        hierarchical(node="gradients", world_every=20),
        {"sync": [{"group": NODES, "type": "grad"}, {"group": "world", "type": "param", "every": 20}], **ENDS},
    ),
    (
        hierarchical(node="parameters", node_every=5, world_every=20, on_cpu=True, epoch_end="as_is"),
        {
            "sync": [
                {"group": NODES, "type": "param", "every": 5, "sync_on_cpu": True},
                {"group": "world", "type": "param", "every": 20, "sync_on_cpu": True},
            ]
        },
    ),
    (
        Scheme(levels=(Level([[2, 0], [1, 3]], 2), Level(4, 4, Average(optimizer_state=True)))),
        {
            "sync": [
                {"group": [[0, 2], [1, 3]], "type": "param", "every": 2},
                {"group": [[0, 1, 2, 3]], "type": "param", "every": 4, "sync_optimizer_state": True},
            ],
            **ENDS,
        },
    ),
    (Scheme(levels=(Level(4, sync=Gradients()),)), {"reduce_type": "grad", "options": {"broadcast_buffers": False}}),
]
IDS = [scheme.text for scheme, _ in WRITTEN]


def message(call, error=ConfigError):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, DeclarationError)
    return str(caught.value)


@pytest.mark.parametrize(("scheme", "options"), WRITTEN, ids=IDS)
def test_a_scheme_is_exactly_returnn_s_own_dict(scheme, options):
    assert repr(scheme_options(scheme, TWO)) == repr(options)
    assert merged_options(None, scheme, TWO) == options
    assert not needs_runtime(scheme)


@pytest.mark.parametrize(("scheme", "options"), WRITTEN, ids=IDS)
def test_k05_the_backend_is_gloo_on_a_cpu_and_the_user_s_choice_wins(scheme, options):
    assert merged_options(None, scheme, CPU) == {**options, "backend": "gloo"}
    assert merged_options({"backend": "mpi"}, scheme, CPU) == {**options, "backend": "mpi"}
    assert merged_options({"backend": "nccl"}, scheme, TWO) == {**options, "backend": "nccl"}
    assert "backend" not in merged_options({}, scheme, TWO)


@pytest.mark.parametrize(("scheme", "options"), WRITTEN, ids=IDS)
@pytest.mark.parametrize("cluster", [TWO, CPU], ids=str)
def test_a_dict_that_is_there_already_is_the_same_dict(scheme, options, cluster):
    once = merged_options({"dataset_distribution": "shard", "timeout_sec": 60}, scheme, cluster)
    assert merged_options(once, scheme, cluster) == once
    assert once == {**merged_options(None, scheme, cluster), "dataset_distribution": "shard", "timeout_sec": 60}
    check_options(once, cluster)


def test_k06_the_word_node_is_never_written():
    for scheme, _ in WRITTEN:
        for cluster in (TWO, Cluster(num_gpus_per_node=4), Cluster(num_nodes=4)):
            if scheme.levels[0].group == "node":
                assert "'node'" not in repr(scheme_options(scheme, cluster))


def test_k07_a_scheme_that_leaves_ranks_apart_on_a_cluster_is_not_written():
    scheme = Scheme(levels=(Level(2, 5),))
    assert scheme_options(scheme, Cluster(num_gpus_per_node=2))["sync"][0]["group"] == [[0, 1]]
    assert "never synchronises the world" in message(lambda: scheme_options(scheme, TWO), SchemeError)
    message(lambda: scheme_options(Scheme(levels=(Level(3, 5), Level("world", 5))), TWO), ClusterError)


@pytest.mark.parametrize(
    "scheme",
    [
        diloco(),
        diloco(epoch_end="average"),
        param_avg(every=3, epoch_end="view"),
        Scheme(levels=(Level("node", 5), Level("world", 10, Outer(optimizer={"class": "adam", "lr": 1e-3})))),
    ],
    ids=lambda scheme: scheme.text,
)
def test_what_returnn_cannot_train_is_written_as_plain_data_for_the_runtime(scheme):
    assert needs_runtime(scheme)
    options = merged_options({"dataset_distribution": "shard"}, scheme, CPU)
    assert options == {"syncopate": scheme.as_dict(), "dataset_distribution": "shard", "backend": "gloo"}
    assert merged_options(options, scheme, CPU) == options
    assert "the config says syncopate=" in message(lambda: merged_options(options, ddp(), CPU))


# Merging

SEVERAL = {"backend": "gloo", "timeout_sec": 1800.0, "dataset_distribution": "shard"}


def test_options_for_every_way_of_synchronising_are_kept():
    for scheme, options in WRITTEN:
        assert merged_options(SEVERAL, scheme, TWO) == {**options, **SEVERAL}
        for key in ENDS:
            if key not in options:
                assert merged_options({key: False}, scheme, TWO)[key] is False


def test_options_of_ddp_are_joined():
    options = {"reduce_type": "grad", "options": {"static_graph": True, "bucket_cap_mb": 25.0}}
    assert merged_options(options, ddp(options={"find_unused_parameters": True}), TWO) == {
        "reduce_type": "grad",
        "options": {
            "static_graph": True,
            "bucket_cap_mb": 25,
            "find_unused_parameters": True,
            "broadcast_buffers": False,
        },
    }
    assert merged_options({"options": {"static_graph": True}}, ddp(buffers=None), TWO) == {
        "reduce_type": "grad",
        "options": {"static_graph": True},
    }


def test_a_class_of_ddp_is_kept_as_it_is():
    marker = object()
    assert merged_options({"class": marker}, ddp(), TWO)["class"] is marker
    assert "class=" in message(lambda: merged_options({"class": marker}, param_avg(every=2), TWO))


def test_what_is_there_is_not_changed_and_not_shared():
    existing = {"options": {"process_group": {"a": [1]}}, "reduce_type": "grad"}
    before = repr(existing)
    merged = merged_options(existing, ddp(), TWO)
    merged["options"]["process_group"]["a"].append(2)
    assert repr(existing) == before


@pytest.mark.parametrize(
    ("existing", "scheme", "text"),
    [
        (
            {"reduce_type": "param"},
            ddp(),
            "torch_distributed: the config says reduce_type='param', the scheme says 'grad'; leave 'reduce_type' out of"
            " the config",
        ),
        (
            {"param_sync_step": 50},
            param_avg(every=100),
            "torch_distributed: the config says param_sync_step=50, the scheme says 100; leave 'param_sync_step' out of"
            " the config",
        ),
        (
            {"param_sync_step": 50},
            ddp(),
            "torch_distributed: the config says param_sync_step=50, which has no place beside the scheme 'gradients of"
            " all ranks every update (DDP)'; leave 'param_sync_step' out of the config. Kept are ['backend',"
            " 'timeout_sec', 'dataset_distribution', 'sync_at_epoch_end', 'sync_complete_frac']",
        ),
        (
            {"sync_at_epoch_end": False},
            param_avg(every=100),
            "torch_distributed: the config says sync_at_epoch_end=False, the scheme says True; leave"
            " 'sync_at_epoch_end' out of the config",
        ),
        (
            {"sync_optimizer_state": True},
            param_avg(every=100),
            "torch_distributed: the config says sync_optimizer_state=True, the scheme says False; leave"
            " 'sync_optimizer_state' out of the config",
        ),
        (
            {"sync_on_cpu": False},
            param_avg(every=100, on_cpu=True),
            "torch_distributed: the config says sync_on_cpu=False, the scheme says True; leave 'sync_on_cpu' out of the"
            " config",
        ),
        (
            {"options": {"broadcast_buffers": True}},
            ddp(),
            "torch_distributed: the config says options['broadcast_buffers']=True, the scheme says"
            " broadcast_buffers=False; leave it out of one of them; ddp(buffers=None) leaves it to the config",
        ),
        (
            {"options": {"forward_sync_buffers": False}},
            ddp(),
            "torch_distributed: the config says options['forward_sync_buffers']=False, the scheme says"
            " broadcast_buffers=False; leave it out of one of them; ddp(buffers=None) leaves it to the config",
        ),
        (
            {"options": {"static_graph": True}},
            ddp(options={"static_graph": False}),
            "torch_distributed: the config says options['static_graph']=True, the scheme says static_graph=False; leave"
            " it out of one of them",
        ),
        (
            {"options": [1]},
            ddp(),
            "torch_distributed: options must be a dict of DDP's keyword arguments, got [1]",
        ),
        (
            {"options": {"comm_hook": print}},
            ddp(),
            "torch_distributed: options['comm_hook']: <built-in function print> of type builtin_function_or_method"
            " cannot be written into a config; use None, bool, int, finite float, str, and lists, tuples or dicts of"
            " them",
        ),
        (
            {"sync": [{"group": "world", "type": "param"}], "reduce_type": "param"},
            param_avg(every=1),
            "torch_distributed: sync=[{'group': 'world', 'type': 'param'}] and reduce_type='param' are both given, but"
            " RETURNN takes one of them; leave both to the scheme",
        ),
        (
            {"redcue_type": "param"},
            ddp(),
            "torch_distributed: unknown option 'redcue_type', on which RETURNN would stop; allowed are ['backend',"
            " 'class', 'dataset_distribution', 'options', 'param_sync_step', 'reduce_type', 'sync',"
            " 'sync_at_epoch_end', 'sync_complete_frac', 'sync_on_cpu', 'sync_optimizer_state', 'syncopate',"
            " 'timeout_sec'] (did you mean 'reduce_type'?)",
        ),
        (
            {"dataset_distribution": "shards"},
            ddp(),
            "torch_distributed: dataset_distribution must be one of ['random_seed_offset', 'shard'], got 'shards' (did"
            " you mean 'shard'?)",
        ),
        ([], ddp(), "torch_distributed must be a dict, got []"),
    ],
)
def test_k02_contradictions_and_unknown_options_are_refused(existing, scheme, text):
    assert message(lambda: merged_options(existing, scheme, TWO)) == text


def test_an_equal_option_may_be_given_twice():
    existing = {"reduce_type": "param", "param_sync_step": 2.0, "sync_on_cpu": False}
    assert merged_options(existing, param_avg(every=2), TWO) == {
        "reduce_type": "param",
        "param_sync_step": 2,
        "sync_on_cpu": False,
        **ENDS,
    }


# Options that did not come from a scheme


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduce_type": "grad", "options": {"static_graph": True}},
        {"reduce_type": "param", "param_sync_step": 3},
        {"sync": [{"group": "world", "type": "param", "every": 3}]},
        {"sync": ({"group": 2, "type": "grad"}, {"group": [[0, 1, 2, 3]], "type": "param", "every": 3})},
    ],
)
def test_hand_written_options_that_can_be_trained(options):
    check_options(options, TWO)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reduce_typ": "grad"}, "torch_distributed: unknown option 'reduce_typ', on which RETURNN would stop"),
        (
            {"reduce_type": "params"},
            "torch_distributed: reduce_type must be one of ['grad', 'grad_explicit', 'param'], got 'params' (did you"
            " mean 'param'?)",
        ),
        ({"reduce_type": "grad", "sync": []}, "torch_distributed: sync=[] and reduce_type='grad' are both given"),
        ({"sync": []}, "torch_distributed: sync must be a list of levels such as"),
        ({"sync": [{"group": "world"}]}, "torch_distributed: sync must be a list of levels such as"),
        ({"sync": "world"}, "torch_distributed: sync must be a list of levels such as"),
        (
            {"sync": [{"group": "node", "type": "grad"}]},
            "Scheme: it never synchronises the world: its outermost level is 'gradients of ranks 0,1 | 2,3 every",
        ),
        ({"reduce_type": "sync"}, "torch_distributed: reduce_type must be one of ['grad', 'grad_explicit', 'param']"),
        ({"reduce_type": "param"}, "torch_distributed: param_sync_step must be an int of at least 1, got None"),
        (
            {"sync": [{"group": "world", "type": "foo"}]},
            "torch_distributed: sync must be a list of levels such as",
        ),
        (
            {"sync": [{"group": "world", "type": "param", "every": 0}]},
            "torch_distributed: every of the level {'group': 'world', 'type': 'param', 'every': 0} must be an int",
        ),
        (
            {
                "sync": [
                    {"group": "node", "type": "param", "every": 7},
                    {"group": "world", "type": "param", "every": 10},
                ]
            },
            "Scheme: the period of 'parameters of ranks 0,1,2,3 every 10 updates' is no multiple of that of",
        ),
        (3, "torch_distributed must be a dict, got 3"),
    ],
)
def test_k07_hand_written_options_that_cannot(options, text):
    assert message(lambda: check_options(options, TWO), DeclarationError).startswith(text)


def test_hand_written_groups_for_another_cluster():
    options = {"sync": [{"group": [[0, 1], [2, 3]], "type": "grad"}, {"group": "world", "type": "param", "every": 3}]}
    text = message(lambda: check_options(options, Cluster(num_nodes=2, num_gpus_per_node=4)), ClusterError)
    assert "the rank lists [[0, 1], [2, 3]] hold the ranks 0..3, but 2x4 gpu has the ranks 0..7" in text
