"""Four schemes on 2 nodes x 2 ranks, emulated on this machine: a character language model on the Python reference."""

from syncopate import Cluster, Sweep, ddp, hierarchical, param_avg
from syncopate.tasks.char_lm import char_lm


def py():
    sweep = Sweep(
        "quickstart",
        base=char_lm(),
        cluster=Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"),
        num_epochs=4,
        baseline="ddp",
        torch_distributed={"dataset_distribution": "shard"},
    )
    sweep.add("ddp", ddp())
    sweep.add("psync10", param_avg(every=10))
    sweep.add("node-grads-world20", hierarchical(node="gradients", world_every=20))
    sweep.add("node-params5-world20", hierarchical(node="parameters", node_every=5, world_every=20))
    sweep.register()
