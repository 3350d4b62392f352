"""What is to be started, and what is done around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syncopate.cluster import Cluster
from syncopate.launch.attempts import begin_attempt
from syncopate.launch.command import JOIN_LIMIT_S
from syncopate.launch.environment import expose_package


@dataclass(frozen=True, kw_only=True)
class Training:
    """
    What is to be started. It can be written down, for the launchers of other nodes.

    :param config_file: RETURNN config
    :param run_dir: gets ``logs/<attempt>/`` and ``python_path/``
    :param work_dir: working directory of the ranks, where RETURNN writes what its config names by relative paths
    :param cluster: nodes, and ranks per node
    :param python: of the training
    :param returnn_root: checkout of RETURNN; None takes the package that the training python has
    :param distributed: False for one process without torchrun and without ``torch.distributed``
    :param key: tells apart what one SLURM job may start
    :param tail: what each rank runs instead of RETURNN, see :func:`syncopate.launch.command.rank_tail`
    :param cpus_per_node: that the ranks of one node may use together; None takes those that the launcher may use
    :param echo: print what the ranks print; it is in their log files in any case
    :param join_limit_s: how long the nodes may take to meet
    """

    config_file: Path
    run_dir: Path
    work_dir: Path
    cluster: Cluster
    python: str
    returnn_root: Path | None = None
    distributed: bool = True
    key: str = "train"
    tail: tuple[str, ...] | None = None
    cpus_per_node: int | None = None
    echo: bool = True
    join_limit_s: int = JOIN_LIMIT_S

    def __post_init__(self) -> None:
        for name in ("config_file", "run_dir", "work_dir", "returnn_root"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value).absolute())
        if self.tail is not None:
            object.__setattr__(self, "tail", tuple(self.tail))

    def as_dict(self) -> dict[str, Any]:
        """:return: it in what JSON knows"""
        fields = asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Training:
        """
        :param fields: see :meth:`as_dict`
        """
        return cls(**{**fields, "cluster": Cluster(**fields["cluster"])})


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """
    What is done once per start, by whoever starts it: on several nodes, where nothing else is said, by the launcher of
    the first one.

    :param prepare: before any rank starts, such as writing the config
    :param finish: after all ranks on all nodes ended well, such as writing outputs
    :param on_poll: a few times per second while ranks run here; what it raises ends them
    :param progress: how far the training is, as a number that grows
    :param max_starts: how many starts in a row may bring no progress, None for any number
    :param absent: says why the launcher of a node that has not appeared will not come, None if it may; called by the
        launchers of all nodes
    """

    prepare: Callable[[], None] | None = None
    finish: Callable[[], None] | None = None
    on_poll: Callable[[], None] | None = None
    progress: Callable[[], float | None] | None = None
    max_starts: int | None = None
    absent: Callable[[int], str | None] | None = None

    def begin(self, run_dir: Path, attempt: str) -> None:
        """
        Before any rank starts.

        :param run_dir: of the training
        :param attempt: id of this start, which supersedes all others from now on
        :raises LaunchError: if there were too many starts before
        """
        progress = self.progress() if self.progress else None
        begin_attempt(run_dir, attempt, progress=progress, max_starts=self.max_starts)
        expose_package(run_dir)
        if self.prepare is not None:
            self.prepare()
