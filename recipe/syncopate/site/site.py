"""A cluster, and where in it a task goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncopate.errors import SiteError
from syncopate.scheme.declaration import known_options
from syncopate.site.need import Need
from syncopate.site.numbers import word
from syncopate.site.partition import Partition
from syncopate.site.sbatch_args import SbatchArgs


@known_options(SiteError)
@dataclass(frozen=True, kw_only=True)
class Site:
    """
    A SLURM cluster as its users see it.

    :param partitions: in the order in which they are tried
    :param account: that pays; None leaves it to SLURM, which reads ``SBATCH_ACCOUNT`` of the shell
    :param bad_nodes: names of nodes that no task gets
    :param host_suffix: added to SLURM's name of a node, it gives its name in the fast network, as ``"i"`` at JSC
    :param interface: network interface over which ranks talk; None lets them choose
    :param sbatch_args: more options of ``sbatch`` for each task; those of the partition and of the task win
    :raises SiteError: if it is no such thing
    """

    partitions: Sequence[Partition]
    account: str | None = None
    bad_nodes: Sequence[str] = ()
    host_suffix: str = ""
    interface: str | None = None
    sbatch_args: Sequence[str] | str = ()

    def __post_init__(self) -> None:
        partitions = _sequence(self.partitions, what="Site: partitions")
        if not partitions or not all(isinstance(partition, Partition) for partition in partitions):
            raise SiteError(f"Site: partitions must be one or more Partition(...), got {self.partitions!r}")
        names = [partition.name for partition in partitions]
        if len(set(names)) < len(names):
            raise SiteError(f"Site: partitions must have different names, got {names}")
        for name in ("account", "interface"):
            if getattr(self, name) is not None:
                word(getattr(self, name), what=f"Site: {name}")
        bad_nodes = _sequence(self.bad_nodes, what="Site: bad_nodes")
        for node in bad_nodes:
            # SLURM's short form, node[1-3,7], has commas inside.
            if not isinstance(node, str) or not node or node != "".join(node.split()):
                raise SiteError(f"Site: bad_nodes must be names of nodes without spaces, got {node!r}")
        if not isinstance(self.host_suffix, str) or self.host_suffix != "".join(self.host_suffix.split()):
            raise SiteError(f"Site: host_suffix must be a text without spaces, got {self.host_suffix!r}")
        object.__setattr__(self, "partitions", partitions)
        object.__setattr__(self, "bad_nodes", bad_nodes)
        object.__setattr__(self, "sbatch_args", tuple(SbatchArgs(self.sbatch_args).words))

    def route(self, rqmt: Mapping[str, Any], *, resumes: bool = True) -> dict[str, Any]:
        """
        Tasks with GPUs go to partitions with GPUs, those without go there only if no other gives what they need. Among
        these the first counts that gives all of the time; where none does, and the task resumes, the first that gives
        most of it, and the time is cut. What is routed already stays as it is.

        :param rqmt: requirement
        :param resumes: whether the task goes on in a second submission when its time is over
        :return: the same with ``sbatch_args`` that name the partition, the account and so on. Options that are there
            win; if they name a partition, only that one is looked at, and it need not be declared
        :raises SiteError: if no partition gives that
        """
        need, args = Need.of(rqmt), SbatchArgs(rqmt.get("sbatch_args"))
        partition = self._choose(need, args, resumes=resumes)
        routed = dict(rqmt)
        if partition is not None and need.minutes > partition.max_minutes:
            routed["time"] = partition.max_minutes / 60
        defaults = [] if self.account is None else [f"--account={self.account}"]
        # Of several that the task names, SLURM chooses one.
        if partition is not None and "," not in (args.value("partition") or ""):
            if need.gpus and need.gpu_name is None and partition.shape.gpu_name is not None:
                routed["gpu_name"] = partition.shape.gpu_name
            defaults.insert(0, f"--partition={partition.name}")
            if partition.whole_node and "oversubscribe" not in args:
                defaults.append("--exclusive")
            args = args.with_defaults(*partition.sbatch_args)
        args = args.with_defaults(*self.sbatch_args)
        if self.bad_nodes:
            args = args.with_value("exclude", _joined(args.value("exclude"), self.bad_nodes))
        routed["sbatch_args"] = args.with_defaults(*defaults).words
        return routed

    def mem_cap_gb(self, rqmt: Mapping[str, Any]) -> float:
        """
        :param rqmt: requirement; its memory and time do not count
        :return: GB per node that it may ask for at most; infinite if it names a partition that is not declared
        :raises SiteError: if no partition gives the rest of it
        """
        need, args = Need.of(rqmt), SbatchArgs(rqmt.get("sbatch_args"))
        candidates = self._candidates(args)
        if candidates is None:
            return math.inf
        fitting = [one for one in candidates if not one.refusals(need, memory=False, time=False)]
        if not fitting:
            raise self._refused(need, args, candidates, resumes=True)
        return max(one.max_mem_gb for one in fitting)

    def partition_of(self, rqmt: Mapping[str, Any]) -> Partition | None:
        """
        :param rqmt: requirement that was routed
        :return: the partition that it names, None if that is not a declared one
        """
        candidates = self._candidates(SbatchArgs(rqmt.get("sbatch_args")))
        return candidates[0] if candidates is not None and len(candidates) == 1 else None

    def _candidates(self, args: SbatchArgs) -> Sequence[Partition] | None:
        """:return: in order of preference; None if the options name partitions that are not declared"""
        own = args.value("partition")
        if own is None:
            return self.partitions
        names = own.split(",")
        return tuple(one for one in self.partitions if one.name in names) or None

    def _choose(self, need: Need, args: SbatchArgs, *, resumes: bool) -> Partition | None:
        candidates = self._candidates(args)
        if candidates is None:
            return None
        fitting = [one for one in candidates if not one.refusals(need, time=not resumes)]
        if not fitting:
            raise self._refused(need, args, candidates, resumes=resumes)
        if not need.gpus:
            fitting = [one for one in fitting if not one.shape.gpus] or fitting
        in_time = [one for one in fitting if need.minutes <= one.max_minutes]
        return in_time[0] if in_time else max(fitting, key=lambda one: one.max_minutes)

    def _refused(self, need: Need, args: SbatchArgs, candidates: Iterable[Partition], *, resumes: bool) -> SiteError:
        listed = "; ".join(
            f"{one.name!r} ({one}) has {', '.join(one.refusals(need, time=not resumes))}" for one in candidates
        )
        own = args.value("partition")
        who = "no partition gives" if own is None else f"the partition {own!r} of its sbatch_args does not give"
        return SiteError(f"{who} {need}: {listed}; ask for less, or for more nodes with less each")


def _sequence(values: Any, *, what: str) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise SiteError(f"{what} must be a list, got {values!r}")
    return tuple(values)


def _joined(own: str | None, bad_nodes: Sequence[str]) -> str:
    """``sbatch`` takes the last list of excluded nodes alone."""
    listed = [] if own is None else [own]
    return ",".join([*listed, *(node for node in bad_nodes if own is None or node not in _nodes(own))])


def _nodes(listed: str) -> set[str]:
    """:return: the entries of a list of nodes, whose short form has commas inside: ``a[1-2,5],b``"""
    entries, depth = [""], 0
    for char in listed:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "," and not depth:
            entries.append("")
        else:
            entries[-1] += char
    return set(entries)
