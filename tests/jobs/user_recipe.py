"""A recipe as users have it, with a helper used a hundred times, and the ways in which such a helper goes wrong."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from sisyphus import tk

from i6_core.returnn import ReturnnConfig, ReturnnConfigV2, ReturnnTrainingJob

BASE = {
    "backend": "torch",
    "behavior_version": 31,
    "train": {"class": "HDFDataset", "files": ["train.hdf"], "partition_epoch": 2},
    "dev": {"class": "HDFDataset", "files": ["dev.hdf"]},
    "learning_rate_control_error_measure": "dev_loss_ce",
    "optimizer": {"class": "adamw"},
}
ROOT = tk.Path("/opt/returnn", hash_overwrite="RETURNN_ROOT")


class NoPrologConfig(ReturnnConfig):
    """A config class of a group that keeps its configs free of code."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        assert not self.python_prolog, "no prolog in our configs"


class OurTrainingJob(ReturnnTrainingJob):
    """A user's own class, as many setups have one."""

    def info(self):
        return "ours"


class StubbornTrainingJob(ReturnnTrainingJob):
    """A class that starts its training in its own way."""

    def run(self):
        raise NotImplementedError


@dataclass
class ModelWithCheckpoints:
    """What the helper of a real recipe returns."""

    job: ReturnnTrainingJob

    def get_training_job(self):
        return self.job


def dict_update_deep(config, updates):
    """Nested dicts are joined, as recipes do it."""
    result = copy.deepcopy(config)
    for key, value in updates.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = dict_update_deep(result[key], value)
        else:
            result[key] = value
    return result


def train(
    name,
    *,
    sync,
    num_epochs,
    base_lr=0.5,
    fault=None,
    config_class=ReturnnConfig,
    job_class=ReturnnTrainingJob,
    device="gpu",
    use_post_config=False,
):
    """Builds config and job; ``fault`` breaks it in one way."""
    config = dict_update_deep(BASE, {"learning_rates": [base_lr * 0.9**epoch for epoch in range(num_epochs)]})
    updates = copy.deepcopy(sync.config_updates)
    kwargs = dict(sync.training_kwargs)
    if fault == "drops the dict":
        updates.pop("torch_distributed", None)
    if fault == "changes the dict":
        updates["torch_distributed"] = {**updates["torch_distributed"], "param_sync_step": 7, "timeout_sec": 5}
    if fault == "keeps a dict":
        updates["torch_distributed"] = {"reduce_type": "grad"}
    if fault == "ignores the epochs":
        num_epochs = 25
    if fault == "horovod alone":
        kwargs["horovod_num_processes"] = 4
    if fault == "no kwargs":
        kwargs = {}
    if fault == "device in the config":
        updates["device"] = "gpu"
    if fault == "drops the seed":
        updates = {key: value for key, value in updates.items() if key == "torch_distributed"}
    config = dict_update_deep(config, updates)
    post_config = {"cleanup_old_models": True}
    job = job_class(
        config_class(config, post_config),
        num_epochs=num_epochs,
        device=device,
        cpu_rqmt=2,
        mem_rqmt=10,
        time_rqmt=12,
        returnn_root=ROOT,
        **kwargs,
    )
    job.add_alias(f"user/{name}")
    tk.register_output(f"user/{name}/learning_rates", job.out_learning_rates)
    if fault == "returns nothing":
        return None
    if fault == "returns another thing":
        return {"job": job}
    return ModelWithCheckpoints(job)


CONFIG_CLASSES = {"classic": ReturnnConfig, "V2": ReturnnConfigV2, "no prolog": NoPrologConfig}
