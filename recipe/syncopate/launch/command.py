"""
The command line of one node's torchrun agent: one pure function for emulated nodes and for real ones.

``--nproc-per-node`` is the number of ranks *of one node*, as its name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.place import Meeting

RANK_MODULE = "syncopate.launch.rank"
LOCAL_HOST = "127.0.0.1"

JOIN_LIMIT_S = 600
"""How long agents wait for each other: started at once, a python can still take minutes to load from a busy server."""


def rank_tail(config_file: str | Path) -> list[str]:
    """
    :param config_file: RETURNN config
    :return: what follows the python, or torchrun's options, to start a rank
    """
    return ["-m", RANK_MODULE, str(config_file)]


def agent_command(
    *,
    python: str,
    cluster: Cluster,
    meeting: Meeting,
    agent: int,
    tail: Sequence[str],
    log_dir: str | Path,
    local_address: str | None = None,
    distributed: bool = True,
    join_limit_s: int = JOIN_LIMIT_S,
) -> list[str]:
    """
    :param python: of the training
    :param cluster: nodes, and ranks per node
    :param meeting: where the agents meet
    :param agent: number of the agent
    :param tail: what each rank runs, see :func:`rank_tail`
    :param log_dir: of this agent; torchrun makes a folder per rank inside
    :param local_address: by which other nodes reach this one; None lets torchrun look up this host's full name
    :param distributed: False for one process without torchrun and without ``torch.distributed``
    :param join_limit_s: how long the agents may take to meet
    :return: the command line of the agent, or without torchrun that of the only rank
    """
    if not distributed:
        if cluster.world_size != 1:
            raise LaunchError(
                f"distributed=False starts a single process, but the cluster has {cluster.world_size} ranks"
            )
        return [python, *tail]
    conf = {
        # Exactly one agent hosts the store. Left out, torchrun compares host names, and emulated nodes all match.
        "is_host": str(agent == 0).lower(),
        "join_timeout": join_limit_s,
        # Also how long an agent waits for a store that is not there yet.
        "read_timeout": join_limit_s,
        "close_timeout": 10,
    }
    command = [
        python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={cluster.num_nodes}",
        f"--nproc-per-node={cluster.num_gpus_per_node}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={meeting.host}:{meeting.port}",
        f"--rdzv-id={meeting.id}",
        f"--rdzv-conf={','.join(f'{key}={value}' for key, value in conf.items())}",
        "--max-restarts=0",
        f"--log-dir={log_dir}",
        "--redirects=3",
        "--tee=3",
    ]
    if local_address is not None:
        # torchrun hands it to all ranks as MASTER_ADDR, if it happens to make this node its first.
        command.append(f"--local-addr={local_address}")
    return [*command, *tail]
