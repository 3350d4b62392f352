"""A sweep over a recipe's own `train` helper: what is new in the helper are the three marked lines."""

from importlib.util import find_spec
from os.path import dirname

from sisyphus import tk

from i6_core.returnn import ReturnnConfig, ReturnnTrainingJob
from syncopate import Cluster, ProducedFile, Sweep, ddp, hierarchical, param_avg
from syncopate.jobs.produce import ProduceJob
from syncopate.tasks.char_lm.text import prepare

PREFIX = "helper_example"
RETURNN_ROOT = tk.Path(dirname(dirname(find_spec("returnn").origin)), hash_overwrite="RETURNN")


def text(name):
    """A file of the corpus; yours come from jobs of your recipe."""
    return ProduceJob.file(ProducedFile(make=prepare, name=name, kwargs={"max_train_sequences": 512}))


def train(name, *, sync, num_epochs, learning_rate):  # new: sync
    vocab = {"class": "CharacterTargets", "vocab_file": text("vocab"), "unknown_label": "\ufffd"}
    data = {"class": "LmDataset", "orth_vocab": vocab, "dtype": "int32"}
    config = {
        "backend": "torch",
        "behavior_version": 31,
        "train": {**data, "corpus_file": text("train.txt"), "seq_ordering": "random"},
        "dev": {**data, "corpus_file": text("dev.txt"), "seq_ordering": "default"},
        "extern_data": {"data": {"shape": [None], "sparse": True, "dtype": "int32", "vocab": vocab}},
        "max_seqs": 16,
        "batch_size": 2000,
        "optimizer": {"class": "adamw"},
        "learning_rates": [learning_rate * 0.9**epoch for epoch in range(num_epochs)],
        "learning_rate_control_error_measure": "dev_loss_ce",
        "model_opts": {"num_layers": 1, "dim": 32, "num_heads": 2, "dropout": 0.0},
    }
    config.update(sync.config_updates)  # new
    job = ReturnnTrainingJob(
        ReturnnConfig(config, python_prolog=["from syncopate.tasks.char_lm.model import get_model, train_step"]),
        num_epochs=num_epochs,
        device="cpu",
        cpu_rqmt=1,
        returnn_root=RETURNN_ROOT,
        **sync.training_kwargs,  # new
    )
    job.add_alias(f"{PREFIX}/train/{name}")
    return job


def py():
    sweep = Sweep(
        PREFIX,
        train=train,
        cluster=Cluster(num_nodes=2, num_gpus_per_node=1, device="cpu"),
        num_epochs=2,
        baseline="ddp",
        torch_distributed={"dataset_distribution": "shard"},
    )
    for learning_rate in (0.003, 0.01):  # every row gets the same tuning budget
        sweep.add("ddp", ddp(), learning_rate=learning_rate)
        sweep.add("psync10", param_avg(every=10), learning_rate=learning_rate)
        sweep.add("hierarchical", hierarchical(node="gradients", world_every=8), learning_rate=learning_rate)
        sweep.add("single", None, cluster=Cluster(device="cpu"), learning_rate=learning_rate)
    sweep.register()
