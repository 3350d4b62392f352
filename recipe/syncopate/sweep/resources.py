"""What a training asks for, beside its ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncopate.errors import SweepError
from syncopate.scheme.declaration import known_options
from syncopate.scheme.plain import python_value
from syncopate.sweep.values import checked_int


@known_options(SweepError)
@dataclass(frozen=True, kw_only=True)
class Resources:
    """
    What one rank asks for.

    :param time_h: hours a training may take in one go
    :param mem_gb: main memory per rank
    :param cpus: CPUs per rank
    :param gpu_mem_gb: memory that its GPU has at least, by which a setup chooses among its nodes; None for any
    """

    time_h: float = 4.0
    mem_gb: float = 4.0
    cpus: int = 1
    gpu_mem_gb: float | None = None

    def __post_init__(self) -> None:
        for name in ("time_h", "mem_gb", "gpu_mem_gb"):
            value = python_value(getattr(self, name))
            if name == "gpu_mem_gb" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise SweepError(f"Resources: {name} must be a number above 0, got {value!r}")
            object.__setattr__(self, name, value)
        object.__setattr__(self, "cpus", checked_int(self.cpus, what="Resources: cpus"))
