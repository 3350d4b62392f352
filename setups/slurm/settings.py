"""
A SLURM cluster, to be filled in. Copy this folder to ``setups/NAME``, look at each line that says FILL IN, and write
the names of the cluster's hosts into a file ``hosts`` beside it; docs/setups.md goes through it.

``SYNCOPATE_ACCOUNT`` names the account that pays, ``SYNCOPATE_LOCAL_CPUS`` says how many CPUs of the manager's host
short tasks may use.
"""

import os

from sisyphus import global_settings as _defaults

from syncopate.settings import configure
from syncopate.site import NodeShape, Partition, Site

_SITE = Site(
    # Of those that give what a task needs, the first is taken. `sinfo -o "%P %c %m %G %l %D"` shows, for each
    # partition, CPUs and MB of main memory per node, GPUs per node, the time limit, and the number of nodes.
    partitions=[
        Partition(
            name="gpu",  # FILL IN
            shape=NodeShape(
                gpus=4,  # FILL IN: per node
                gpu_name=None,  # FILL IN where nodes differ in it: "h100" for --gres=gpu:h100:4
                gpu_mem_gb=80,  # FILL IN: of one GPU; Resources(gpu_mem_gb=...) asks for it
                cpus=64,  # FILL IN: per node
                mem_gb=480,  # FILL IN: per node, what tasks can get, so less than is built in
            ),
            max_time_h=24,  # FILL IN: a training that wants more goes on in a second submission
            max_nodes=8,  # FILL IN: that one task may get; None for as many as there are
            whole_node=False,  # FILL IN: True where whole nodes are billed, whatever a task uses of them
            sbatch_args=[],  # FILL IN where needed: such as "--qos=gpu" or "--constraint=nvlink"
        ),
        Partition(
            name="cpu",  # FILL IN
            shape=NodeShape(cpus=64, mem_gb=240),  # FILL IN
            max_time_h=72,  # FILL IN
        ),
    ],
    # Where neither this nor SBATCH_ACCOUNT is set, SLURM takes the user's default account.
    account=os.environ.get("SYNCOPATE_ACCOUNT") or None,
    bad_nodes=[],  # FILL IN: nodes that no task is to get, for as long as they are broken
    host_suffix="",  # FILL IN where nodes have a second name in the fast network: "i" if node1 is also node1i
    interface=None,  # FILL IN where ranks choose a network that is slow, or does not work: such as "ib0"
)


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    from syncopate.jobs.slurm_engine import SlurmEngine

    return EngineSelector(
        engines={
            # Tasks of seconds, which need no place in the queue.
            "short": LocalEngine(cpu=int(os.environ.get("SYNCOPATE_LOCAL_CPUS", 2))),
            "long": SlurmEngine(
                default_rqmt={"cpu": 1, "mem": 2, "gpu": 0, "time": 1},
                has_memory_resource=True,  # FILL IN: False where SLURM does not manage memory, and refuses --mem
                gateway=None,  # FILL IN where sbatch works on another host alone: its name, for ssh
            ),
        },
        default_engine="long",
    )


# What tasks find in their environment beside what they need for training: names, and values.
DEFAULT_ENVIRONMENT_KEEP = {*_defaults.DEFAULT_ENVIRONMENT_KEEP}  # FILL IN: such as "SCRATCH", "http_proxy"
DEFAULT_ENVIRONMENT_SET = {**_defaults.DEFAULT_ENVIRONMENT_SET}  # FILL IN: such as "HF_HOME": "/scratch/hf"

# Each look at the tasks is one call of squeue for all of them: at most two a minute, which no cluster minds.
WAIT_PERIOD_BETWEEN_CHECKS = 30
# Seconds until a file that one host wrote is seen by the others: 30 is Sisyphus' own choice for network file systems.
WAIT_PERIOD_JOB_FS_SYNC = 30

USE_VERBOSE_TRACEBACK = False
PRINT_ERROR_LINES = 20
SHOW_JOB_TARGETS = False

configure(globals(), engine="slurm", site=_SITE)
