"""Starts the ranks of a training job, made by us or by others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from syncopate.cluster import Cluster
from syncopate.launch.local import run_training
from syncopate.returnn_io.with_scheme import TORCH_DISTRIBUTED


def start_ranks(job: Any, *, cluster: Cluster, returnn_root: str | None) -> None:
    """
    Called in the work folder of a job whose config is written. Returns when the training is done and its learning-rate
    file is an output.

    :param job: a ``ReturnnTrainingJob``
    :param cluster: where it runs
    :param returnn_root: a checkout of RETURNN, None for the one installed for the job's python
    :raises LaunchError: if the ranks could not be started, or one of them died
    """
    run_training(
        config_file=job.out_returnn_config_file.get_path(),
        run_dir=Path(job._sis_path(abspath=True)),
        work_dir=Path.cwd(),
        cluster=cluster,
        python=job.returnn_python_exe.get_path(),
        returnn_root=returnn_root,
        environ=os.environ,
        num_cores=min(len(os.sched_getaffinity(0)), int(job.rqmt["cpu"]) * cluster.num_nodes),
        distributed=job.returnn_config.get(TORCH_DISTRIBUTED) is not None,
    )
    job._relink(job.returnn_config.get("learning_rate_file", "learning_rates"), job.out_learning_rates.get_path())
