"""The same with the real config classes of i6_core, classic and V2."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_sisyphus

SETUP = """
import pickle
from i6_core.returnn.config import ReturnnConfig, ReturnnConfigV2
from sisyphus import tk
from sisyphus.hash import short_hash
from syncopate import Cluster, Sweep, ddp, diloco, hierarchical, param_avg, with_scheme
from syncopate.errors import ConfigError, SweepError

CPU = Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu")
SCHEMES = [ddp(), param_avg(every=3), hierarchical(node="gradients", world_every=4), diloco()]

def make(cls, **kwargs):
    return cls(
        {
            "backend": "torch",
            "train": {"class": "HDFDataset", "files": [tk.Path("/data/a.hdf")], "partition_epoch": 4},
            "dev": {"class": "HDFDataset"},
            "learning_rate": 0.5,
            "torch_distributed": {"timeout_sec": 60},
        },
        {"log_verbosity": 3, **kwargs},
        python_prolog=["import math"],
        python_epilog="x = 1",
        black_formatting=False,
    )

def state(config):
    return {key: repr(value) for key, value in vars(config).items()}
"""


def test_the_given_config_is_not_changed(setup_folder, python):
    python(
        SETUP
        + """
for cls in (ReturnnConfig, ReturnnConfigV2):
    for scheme in SCHEMES:
        config = make(cls)
        before, old_hash = state(config), short_hash(config)
        result = with_scheme(config, scheme, CPU, torch_distributed={"dataset_distribution": "shard"})
        assert type(result) is cls
        assert state(config) == before and short_hash(config) == old_hash
        assert short_hash(result) != old_hash
        assert short_hash(with_scheme(result, scheme, CPU)) == short_hash(result)
        result.config["train"]["files"].append("b.hdf")
        result.post_config["x"] = 1
        result.python_prolog.append("import os")
        assert state(config) == before
        assert short_hash(pickle.loads(pickle.dumps(result))) == short_hash(result)
""",
        cwd=setup_folder,
    )


def test_both_classes_write_a_text_with_the_same_options(setup_folder, python):
    python(
        SETUP
        + """
for scheme in SCHEMES:
    found = []
    for cls in (ReturnnConfig, ReturnnConfigV2):
        config = with_scheme(make(cls), scheme, CPU)
        config.write("returnn.config")
        values = {}
        exec(compile(open("returnn.config").read(), "returnn.config", "exec"), values)
        found.append(values["torch_distributed"])
    assert found[0] == found[1] == with_scheme(make(ReturnnConfig), scheme, CPU).config["torch_distributed"], found
""",
        cwd=setup_folder,
    )


def test_options_of_a_post_config_are_seen(setup_folder, python):
    python(
        SETUP
        + """
def refused(text, **post_config):
    for cls in (ReturnnConfig, ReturnnConfigV2):
        try:
            with_scheme(make(cls, **post_config), ddp(), CPU)
        except ConfigError as exc:
            assert text in str(exc), exc
        else:
            raise AssertionError(post_config)

refused("the config sets device='gpu'; leave it out", device="gpu")
refused("the config sets num_epochs=3; leave it out", num_epochs=3)
refused("the config sets use_horovod=True; leave it out", use_horovod=True)
refused("options ['torch_distributed'] stand in config and in post_config", torch_distributed={})
""",
        cwd=setup_folder,
    )


def test_a_sweep_over_such_a_config(setup_folder, python):
    """Its options may be Sisyphus' objects; the record of the sweep is plain data nevertheless."""
    python(
        SETUP
        + """
import json
for cls in (ReturnnConfig, ReturnnConfigV2):
    base = make(cls)
    before = state(base)
    sweep = Sweep("s", base=base, cluster=CPU, num_epochs=4, score="dev_loss_ce", seeds=[1, 2])
    for lr in (0.5, 1.0):
        sweep.add("ddp", ddp(), learning_rate=lr)
    (run, _) = sweep.add("psync", param_avg(every=3), train={"files": [tk.Path("/data/b.hdf")], "partition_epoch": 4})
    sweep.check()
    assert state(base) == before
    assert [run.config.config["learning_rate"] for run in sweep.runs[:4]] == [0.5, 0.5, 1.0, 1.0]
    assert [run.name for run in sweep.runs] == [
        "ddp,learning_rate=0.5,seed1", "ddp,learning_rate=0.5,seed2",
        "ddp,learning_rate=1.0,seed1", "ddp,learning_rate=1.0,seed2",
        "psync,trial0,seed1", "psync,trial0,seed2",
    ]
    read = json.loads(sweep.record(lambda run: ("x", None), references=None).to_json())
    options = read["runs"][4]["options"]
    assert options == {"train": {"files": ["/data/b.hdf"], "partition_epoch": 4}}, options
    assert [run["data_passes"] for run in read["runs"]] == [4.0] * 6
""",
        cwd=setup_folder,
    )


def test_rows_of_one_job_are_found_though_their_paths_are_copies(setup_folder, python):
    python(
        SETUP
        + """
base = make(ReturnnConfig)

def sweep(file):
    sweep = Sweep("s", base=base, cluster=CPU, num_epochs=4, score="dev_loss_ce")
    sweep.add("one", ddp())
    sweep.add("two", ddp(), train={**base.config["train"], "files": [tk.Path(file)]})
    return sweep

sweep("/data/b.hdf").check()
try:
    sweep("/data/a.hdf").check()
except SweepError as exc:
    assert str(exc).startswith("Sweep 's': 'one' and 'two,trial0' are the same training"), exc
else:
    raise AssertionError("two rows of one job")
""",
        cwd=setup_folder,
    )
