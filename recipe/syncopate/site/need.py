"""What a task needs, read from Sisyphus' requirement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncopate.errors import SiteError
from syncopate.site.numbers import amount, minutes_up, word


@dataclass(frozen=True, kw_only=True)
class Need:
    """
    All per node but the time.

    :param num_nodes: nodes
    :param gpus: GPUs
    :param gpu_name: what SLURM calls the GPUs, None for any
    :param gpu_mem_gb: memory that each GPU has at least, None for any
    :param cpus: CPUs
    :param mem_gb: main memory
    :param time_h: hours in one go
    """

    num_nodes: int
    gpus: int
    gpu_name: str | None
    gpu_mem_gb: float | None
    cpus: float
    mem_gb: float
    time_h: float

    @classmethod
    def of(cls, rqmt: Mapping[str, Any]) -> Need:
        """
        :param rqmt: requirement
        :raises SiteError: if a value in it is no such thing
        """

        def number(key: str, unit: str, default: float) -> float:
            value = rqmt.get(key)
            return amount(value, what=f"the requirement {key!r} ({unit})") if value else default

        def whole(key: str, unit: str, default: int) -> int:
            value = number(key, unit, default)
            if value != int(value):
                raise SiteError(f"the requirement {key!r} ({unit}) must be a whole number, got {value!r}")
            return int(value)

        gpus = whole("gpu", "GPUs per node", 0)
        name = word(rqmt["gpu_name"], what="the requirement 'gpu_name'") if rqmt.get("gpu_name") else None
        gpu_mem_gb = number("gpu_mem", "GB per GPU", 0) or None
        return cls(
            num_nodes=whole("multi_node_slots", "nodes", 1),
            gpus=gpus,
            gpu_name=name if gpus else None,
            gpu_mem_gb=gpu_mem_gb if gpus else None,
            cpus=number("cpu", "CPUs per node", 1),
            mem_gb=number("mem", "GB per node", 0),
            time_h=number("time", "hours", 0),
        )

    @property
    def minutes(self) -> int:
        """What SLURM is asked for."""
        return minutes_up(self.time_h)

    @property
    def whole_mem_gb(self) -> int:
        """What SLURM is asked for."""
        return math.ceil(self.mem_gb)

    def __str__(self) -> str:
        gpus = described_gpus(self.gpus, name=self.gpu_name, mem_gb=self.gpu_mem_gb)
        each = " each" if self.num_nodes > 1 else ""
        time = f", for {duration(self.time_h)}" if self.time_h else ""
        cpus = plural(self.cpus, "CPU")
        return f"{plural(self.num_nodes, 'node')} with {gpus}{cpus} and {self.whole_mem_gb} GB{each}{time}"


def plural(number: float, noun: str) -> str:
    """
    :param number: of them
    :param noun: for one
    :return: such as "1 node", "2 nodes"
    """
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def duration(time_h: float) -> str:
    """
    :param time_h: hours
    :return: such as "24 h", "5 min"
    """
    return f"{time_h:.6g} h" if time_h >= 1 else f"{time_h * 60:.3g} min"


def described_gpus(number: int, *, name: str | None, mem_gb: float | None) -> str:
    """
    :param number: of GPUs
    :param name: what SLURM calls them
    :param mem_gb: memory of each
    :return: such as "4 h100 GPUs of 80 GB, ", and "" for none
    """
    if not number:
        return ""
    return f"{plural(number, f'{name} GPU' if name else 'GPU')}{f' of {mem_gb:g} GB' if mem_gb else ''}, "
