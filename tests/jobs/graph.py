"""Builds the jobs that the tests of ids look at, and prints their ids: run in a folder with a settings.py."""

import json

from sisyphus import tk  # noqa: F401  (settings first)

from syncopate import (
    Average,
    Cluster,
    Gradients,
    Level,
    ProducedFile,
    Scheme,
    SyncTrainingJob,
    TrainingConfig,
    ddp,
    hierarchical,
    param_avg,
    with_scheme,
)
from syncopate.tasks.char_lm.text import prepare

CLUSTER = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
SCHEMES = {
    "ddp": ddp(),
    "ddp explicit": ddp(explicit=True),
    "psync10": param_avg(every=10),
    "node gradients": hierarchical(node="gradients", world_every=20),
    "node parameters": hierarchical(node="parameters", node_every=5, world_every=20),
    "three levels": Scheme(
        levels=(Level(1, sync=Gradients()), Level("node", 5), Level("world", 10, sync=Average(optimizer_state=True)))
    ),
}


def base(**post_config):
    """A config, of which only what is hashed is the same every time."""
    return TrainingConfig(
        config={
            "backend": "torch",
            "learning_rate": 0.001,
            "train": {"class": "LmDataset", "corpus_file": ProducedFile(make=prepare, name="train.txt")},
        },
        post_config=post_config,
        imports=("from syncopate.tasks.char_lm.model import get_model, train_step",),
    )


def job(scheme, *, cluster=CLUSTER, config=None, num_epochs=4, **kwargs):
    """A training job of a scheme."""
    config = with_scheme(config or base(), scheme, cluster)
    return SyncTrainingJob(config, cluster=cluster, num_epochs=num_epochs, **kwargs)


def ids():
    """Ids by what they are of."""
    found = {name: job(scheme).job_id() for name, scheme in SCHEMES.items()}
    for shape in ((1, 4), (4, 4)):
        cluster = Cluster(num_nodes=shape[0], num_gpus_per_node=shape[1], device="cpu")
        found[f"psync10 on {shape[0]}x{shape[1]}"] = job(param_avg(every=10), cluster=cluster).job_id()
    found["psync10 on GPUs"] = job(param_avg(every=10), cluster=Cluster(num_nodes=2, num_gpus_per_node=2)).job_id()
    found["single"] = job(None, cluster=Cluster(device="cpu")).job_id()
    return found


if __name__ == "__main__":
    print(json.dumps(ids()))
