"""A partition of a cluster, and the nodes in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncopate.errors import SiteError
from syncopate.scheme.declaration import known_options
from syncopate.site.need import Need, described_gpus, duration, plural
from syncopate.site.numbers import amount, count, minutes_down, word
from syncopate.site.sbatch_args import SbatchArgs


@known_options(SiteError)
@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """
    What a task can get of one node.

    :param cpus: CPUs, as SLURM counts them (``sinfo -o "%P %c %m %G %l"``)
    :param mem_gb: main memory that tasks can get: less than is built in
    :param gpus: GPUs
    :param gpu_name: what SLURM calls them, as in ``--gres=gpu:NAME:4``; None asks for any
    :param gpu_mem_gb: memory of one GPU; None if nobody is to ask for it
    :raises SiteError: if it is no such thing
    """

    cpus: int
    mem_gb: float
    gpus: int = 0
    gpu_name: str | None = None
    gpu_mem_gb: float | None = None

    def __post_init__(self) -> None:
        count(self.cpus, what="NodeShape: cpus", least=1)
        if amount(self.mem_gb, what="NodeShape: mem_gb") < 1:
            raise SiteError(f"NodeShape: mem_gb must be at least 1, got {self.mem_gb!r}")
        count(self.gpus, what="NodeShape: gpus", least=0)
        if self.gpu_name is not None:
            word(self.gpu_name, what="NodeShape: gpu_name")
        if self.gpu_mem_gb is not None:
            amount(self.gpu_mem_gb, what="NodeShape: gpu_mem_gb")
        if not self.gpus and (self.gpu_name is not None or self.gpu_mem_gb is not None):
            raise SiteError("NodeShape: gpu_name and gpu_mem_gb are for nodes with GPUs, but gpus is 0")

    def __str__(self) -> str:
        gpus = described_gpus(self.gpus, name=self.gpu_name, mem_gb=self.gpu_mem_gb)
        return f"{gpus}{plural(self.cpus, 'CPU')}, {self.mem_gb:g} GB per node"


@known_options(SiteError)
@dataclass(frozen=True, kw_only=True)
class Partition:
    """
    Nodes of one shape that SLURM knows under one name.

    :param name: of the partition
    :param shape: of its nodes
    :param max_time_h: hours that one submission may take
    :param max_nodes: that one task may get; None for as many as there are
    :param whole_node: whether a task has, and pays for, all of each of its nodes: it is submitted with ``--exclusive``
    :param sbatch_args: more options of ``sbatch`` for each task, such as ``["--qos=long"]``; the task's own ones win
    :raises SiteError: if it is no such thing
    """

    name: str
    shape: NodeShape
    max_time_h: float
    max_nodes: int | None = None
    whole_node: bool = False
    sbatch_args: Sequence[str] | str = ()

    def __post_init__(self) -> None:
        what = f"Partition {word(self.name, what='Partition: name')!r}"
        if not isinstance(self.shape, NodeShape):
            raise SiteError(f"{what}: shape must be a NodeShape(...), got {self.shape!r}")
        if minutes_down(amount(self.max_time_h, what=f"{what}: max_time_h")) < 1:
            raise SiteError(f"{what}: max_time_h must be a minute or more, got {self.max_time_h!r}")
        if self.max_nodes is not None:
            count(self.max_nodes, what=f"{what}: max_nodes", least=1)
        if not isinstance(self.whole_node, bool):
            raise SiteError(f"{what}: whole_node must be True or False, got {self.whole_node!r}")
        args = SbatchArgs(self.sbatch_args)
        if "partition" in args:
            raise SiteError(f"{what}: sbatch_args name the partition {args.value('partition')!r}; name says it already")
        object.__setattr__(self, "sbatch_args", tuple(args.words))

    def __str__(self) -> str:
        nodes = "" if self.max_nodes is None else f"{plural(self.max_nodes, 'node')} and "
        return f"{self.shape}, at most {nodes}{duration(self.max_time_h)}"

    @property
    def max_minutes(self) -> int:
        """What SLURM can be asked for at most."""
        return minutes_down(self.max_time_h)

    @property
    def max_mem_gb(self) -> int:
        """What SLURM can be asked for at most; Sisyphus rounds up to whole GB."""
        return math.floor(self.shape.mem_gb)

    def refusals(self, need: Need, *, memory: bool = True, time: bool = True) -> list[str]:
        """
        :param need: of a task
        :param memory: whether main memory is a reason
        :param time: whether time is a reason
        :return: what is lacking for it here; empty if it gets that
        """
        shape = self.shape
        same_gpus = not shape.gpus or need.gpu_name in (None, shape.gpu_name) or shape.gpu_name is None
        lacking = {
            "no GPUs": need.gpus > 0 and shape.gpus == 0,
            "too few GPUs": need.gpus > shape.gpus > 0,
            "other GPUs": not same_gpus,
            "GPUs of unknown memory": shape.gpus and need.gpu_mem_gb is not None and shape.gpu_mem_gb is None,
            "GPUs with too little memory": (need.gpu_mem_gb or 0) > (shape.gpu_mem_gb or math.inf),
            "too few CPUs": need.cpus > shape.cpus,
            "too little memory": memory and need.whole_mem_gb > shape.mem_gb,
            "too few nodes": self.max_nodes is not None and need.num_nodes > self.max_nodes,
            "too little time, after which it could not go on": time and need.minutes > self.max_minutes,
        }
        return [what for what, is_lacking in lacking.items() if is_lacking]
