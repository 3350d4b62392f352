"""What the agents and ranks find in their environment, and how the training python finds syncopate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import syncopate
from syncopate.cluster import Cluster
from syncopate.errors import LaunchError
from syncopate.launch.kept import INTERFACE

RANK_DIR = "SYNCOPATE_RANK_DIR"
ATTEMPT = "SYNCOPATE_ATTEMPT"
AGENT = "SYNCOPATE_AGENT"
DEVICE = "SYNCOPATE_DEVICE"
RETURNN_ROOT = "SYNCOPATE_RETURNN_ROOT"
RETURNN_INIT_INFO = "_RETURNN_TORCH_DISTRIBUTED_INIT_INFO"
"""By this RETURNN tells its data workers the rank. Inherited by a rank, it would skip ``init_process_group``."""

_STALE_NAMES = {
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PYTHON_EXEC",  # torchrun would start the ranks with it
    "RANK",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "WORLD_SIZE",
    RETURNN_INIT_INFO,
}
_STALE_PREFIXES = ("TORCHELASTIC_", "PET_", "SYNCOPATE_RANK_")  # PET_* are torchrun's options by environment


def rank_environment(
    *,
    environ: Mapping[str, str],
    python_path: str | Path,
    num_cores: int,
    ranks_on_host: int,
    rank_dir: str | Path,
    attempt: str,
    agent: int,
    device: str = "gpu",
    returnn_root: str | Path | None = None,
) -> dict[str, str]:
    """
    :param environ: of the launcher; what is not named below is passed on, NCCL_* and GLOO_* among it
    :param python_path: folder that holds nothing but syncopate, see :func:`expose_package`
    :param num_cores: that the ranks on this host may use together
    :param ranks_on_host: how many ranks share them
    :param rank_dir: where each rank keeps a file about itself
    :param attempt: id of this start of the training
    :param agent: number of the agent that gets this environment
    :param device: what the ranks compute on, "gpu" or "cpu": decides what their RETURNN must be able to do
    :param returnn_root: checkout of RETURNN; None takes the installed package
    :return: the whole environment of the agent, inherited by its ranks
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _STALE_NAMES and not name.startswith(_STALE_PREFIXES) and name != RETURNN_ROOT
    }
    threads = str(max(1, num_cores // ranks_on_host))
    inherited_path = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    ours = {
        # In front of what the user wants there. Nothing of the manager's own python comes along.
        "PYTHONPATH": os.pathsep.join([str(python_path), *inherited_path]),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank ${rank}] ",
        RANK_DIR: str(rank_dir),
        ATTEMPT: attempt,
        AGENT: str(agent),
        DEVICE: device,
        **interface_environment(environ),
    }
    if returnn_root is not None:
        ours[RETURNN_ROOT] = str(returnn_root)
    return {**kept, **ours}


def gpus_of_agent(environ: Mapping[str, str], cluster: Cluster, agent: int, *, agents_here: int) -> dict[str, str]:
    """
    :param environ: of the launcher
    :param cluster: nodes, and ranks per node
    :param agent: number of an agent
    :param agents_here: how many nodes are emulated on this host; 1 if it is one itself
    :return: ``CUDA_VISIBLE_DEVICES`` where it must be set, so that no two emulated nodes use one GPU
    :raises LaunchError: if the launcher was not given a GPU for each rank
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    needed = cluster.num_gpus_per_node * agents_here
    if visible is None and agents_here == 1:
        return {}
    names = list(map(str, range(needed))) if visible is None else [name for name in visible.split(",") if name]
    if len(names) < needed:
        where = f"{cluster} emulated on one host" if agents_here > 1 else f"a node of {cluster}"
        raise LaunchError(
            f"{where} needs {needed} GPUs, but CUDA_VISIBLE_DEVICES={visible!r} names {len(names)}; ask for as many"
            " GPUs as ranks, use fewer ranks, or device='cpu'"
        )
    return (
        {} if agents_here == 1 else {"CUDA_VISIBLE_DEVICES": ",".join(names[r] for r in cluster.ranks_of_node(agent))}
    )


def interface_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """
    One choice of a network interface, to each library in its own syntax.

    :param environ: of the launcher; what the user set for a library itself stays
    :return: what to add
    """
    name = environ.get(INTERFACE)
    if not name:
        return {}
    # NCCL takes a bare name as a prefix, "=" makes it exact; Gloo knows exact names only.
    wanted = {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
    return {key: value for key, value in wanted.items() if key not in environ}


def expose_package(run_dir: Path) -> Path:
    """
    :param run_dir: of the training
    :return: a folder for PYTHONPATH with syncopate and nothing else: beside the package there is often more, such as
        i6_core or the manager's other packages, which must not reach the training python
    """
    package = Path(syncopate.__file__).resolve().parent
    folder = exposed_folder(run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "syncopate"
    if not (link.is_symlink() and link.readlink() == package):
        new = folder / f".syncopate.{os.getpid()}"
        new.symlink_to(package)
        new.replace(link)
    return folder


def exposed_folder(run_dir: Path) -> Path:
    """
    :param run_dir: of the training
    :return: what :func:`expose_package` makes
    """
    return run_dir / "python_path"
