"""What the workers and ranks of a test job saw, judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from syncopate.cluster import Cluster
from syncopate.doctor.finding import Note
from syncopate.errors import ComponentError
from syncopate.launch.check_record import Exchange, RankCheck, WorkerCheck
from syncopate.launch.kept import ENGINE, HOST_SUFFIX, INTERFACE, MEETING_HOST

CLOCK_NOTE_S = 1.0
SEEN_NOTE_S = 5.0
_CONFIGURE = 'end settings.py with configure(globals(), engine="slurm") of syncopate.settings'
_PASSED_ON_PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_")
_PASSED_ON = (ENGINE, HOST_SUFFIX, INTERFACE, MEETING_HOST)
_NEEDED = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_PROCID", "SLURM_CONF")


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """
    A test job that ended, in whatever way.

    :param cluster: that was asked for
    :param cpus: per node that were asked for
    :param python: of the trainings
    :param environ: of the manager
    :param workers: that started
    :param ranks: that started
    """

    __test__ = False  # pytest takes it for a test

    cluster: Cluster
    cpus: int
    python: str
    environ: Mapping[str, str]
    workers: tuple[WorkerCheck, ...]
    ranks: tuple[RankCheck, ...]

    @property
    def by_node(self) -> dict[str, list[RankCheck]]:
        """Ranks by name of the node."""
        found: dict[str, list[RankCheck]] = {}
        for rank in self.ranks:
            found.setdefault(rank.node, []).append(rank)
        return found

    def check_worker(self) -> str:
        """:return: how often the worker runs"""
        if self.cluster.num_nodes == 1:
            return f"runs once, on {self.workers[0].node}"
        if self.workers[0].on_each_node is False:
            return (
                f"runs once, in the batch script on {self.workers[0].node}, and starts a launcher on each node by srun"
            )
        nodes = sorted({worker.node for worker in self.workers})
        return f"runs once on each node, started by srun: {', '.join(nodes)}"

    def check_python(self) -> str:
        """
        :raises ComponentError: if the training python does not answer on a node
        """
        self._raise_errors(((worker.node, worker.python_error) for worker in self.workers), cure=_SAME_FILES)
        return f"{self.python} answers on {_nodes(self.workers)}"

    def check_syncopate(self) -> str:
        """
        :raises ComponentError: if it does not find there what ranks import
        """
        self._raise_errors((worker.node, worker.syncopate_error) for worker in self.workers)
        self._raise_errors((rank.node, rank.syncopate_error) for rank in self.ranks)
        return f"found as ranks import it, on {_nodes(self.ranks or self.workers)}"

    def check_returnn(self) -> str | Note:
        """
        :raises ComponentError: if RETURNN would not train there
        """
        self._raise_errors((rank.node, rank.returnn_error) for rank in self.ranks)
        versions = {rank.versions: rank.node for rank in self.ranks}
        if len(versions) > 1:
            listed = "; ".join(f"{text} on {node}" for text, node in versions.items())
            return Note(text=f"nodes differ: {listed}; ranks of one training should run the same")
        return next(iter(versions))

    def check_environment(self) -> str:
        """
        :raises ComponentError: if variables do not reach the ranks
        """
        wanted = {name for name in self.environ if name.startswith(_PASSED_ON_PREFIXES) or name in _PASSED_ON} | {
            name for name in _NEEDED if name != "SLURM_CONF" or name in self.workers[0].names
        }
        for rank in self.ranks:
            lost = sorted(wanted - set(rank.names))
            here = next((worker for worker in self.workers if worker.node == rank.node), self.workers[0])
            in_python = [name for name in lost if name in here.names]
            if in_python:
                raise ComponentError(
                    f"on {rank.node} the training python loses {', '.join(in_python)}, which the worker has; if it is a"
                    " script that enters a container, let it pass them on (apptainer and singularity do so without"
                    " --cleanenv, docker with -e)"
                )
            if lost:
                raise ComponentError(
                    f"on {rank.node} the worker has no {', no '.join(lost)}; look for --export in sbatch_args, which"
                    " must begin with ALL, and for a worker_wrapper in settings.py that empties the environment"
                )
        num_slurm = min(sum(name.startswith("SLURM") for name in rank.names) for rank in self.ranks)
        others = sorted(name for name in wanted if not name.startswith("SLURM"))
        return f"{', '.join([f'{num_slurm} names of SLURM', *others])} reach the ranks"

    def check_rendezvous(self) -> str:
        """
        :raises ComponentError: if the ranks did not get through their exchange
        """
        met = self._exchanges()
        alone = [rank.rank for rank in self.ranks if rank.exchange is None]
        missing = sorted(set(range(self.cluster.world_size)) - {rank.rank for rank in self.ranks})
        if alone or missing:
            parts = [f"ranks {missing} were never seen"] if missing else []
            parts += [f"ranks {alone} did not get through the exchange with the others"] if alone else []
            raise ComponentError(f"{'; '.join(parts)}. The line of the test job above says what is known")
        if not all(exchange.is_sum_right for _, exchange in met):
            raise ComponentError("the sum over all ranks is wrong, so not all of them took part in it")
        slowest_s = max(exchange.join_s for _, exchange in met)
        return (
            f"{len(met)} ranks on {_nodes(self.ranks)} met and added up within {slowest_s:.1f} s, backend"
            f" {met[0][1].backend}"
        )

    def check_clocks(self) -> str | Note:
        """:return: how much they differ"""
        offsets_s = {node: exchange.clock_offset_s for node, exchange in self._exchanges()}
        late, early = (choose(offsets_s, key=lambda node: offsets_s[node]) for choose in (max, min))
        apart_s = offsets_s[late] - offsets_s[early]
        if apart_s < CLOCK_NOTE_S:
            return f"differ by {apart_s:.3f} s at most"
        return Note(
            text=f"that of {late} is {apart_s:.1f} s ahead of that of {early}. The rank that failed first is found by"
            " such times, so the wrong one may be named; ask the administrators for a time service on all nodes"
        )

    def check_network(self) -> str | Note:
        """:return: over which interfaces the ranks talked"""
        used = {node: ", ".join(exchange.interfaces) or "none known" for node, exchange in self._exchanges()}
        by_nccl = sorted({exchange.nccl_network for _, exchange in self._exchanges() if exchange.nccl_network})
        nccl = f"; NCCL says {'; '.join(by_nccl)}" if by_nccl else ""
        if len(set(used.values())) == 1:
            return f"{next(iter(used.values()))} on every node{nccl}"
        listed = ", ".join(f"{interface} on {node}" for node, interface in used.items())
        return Note(
            text=f"{listed}{nccl}. Where one of them is slow, name the right one by DEFAULT_ENVIRONMENT_SET"
            f"[{INTERFACE!r}], or Site(interface=...), in settings.py"
        )

    def check_cpus(self) -> str:
        """
        :raises ComponentError: if the ranks of a node may use fewer CPUs than were asked for
        """
        usable = {node: len({cpu for rank in ranks for cpu in rank.cpus}) for node, ranks in self.by_node.items()}
        for node, ranks in self.by_node.items():
            host = ranks[0].num_host_cpus
            if usable[node] >= min(self.cpus, host):
                continue
            step = ranks[0].step_cpus
            if step is None:
                cure = f"since SLURM 22.05 a step does not take the CPUs of its job; {_CONFIGURE}"
            else:
                cure = (
                    f"SRUN_CPUS_PER_TASK is {step}, so something else binds them: look for --cpu-bind, --hint and"
                    " --threads-per-core in sbatch_args, for SLURM_CPU_BIND, and for taskset in the script of the"
                    " training python"
                )
            raise ComponentError(
                f"on {node} the ranks may use {usable[node]} of the {self.cpus} CPUs that were asked for (the host has"
                f" {host}); {cure}"
            )
        numbers = sorted(set(usable.values()))
        text = f"{' to '.join(map(str, numbers))} usable on each node, {self.cpus} asked for"
        if numbers[0] < self.cpus:
            return f"{text}; the host has no more"
        return text if numbers[-1] == self.cpus else f"{text}, which are as many as the ranks' threads"

    def check_gpus(self) -> str | Note:
        """
        :raises ComponentError: if a rank would find no GPU
        """
        wanted = self.cluster.num_gpus_per_node
        for rank in self.ranks:
            found = len(rank.gpus or ())
            if found < wanted:
                raise ComponentError(
                    f"on {rank.node} the training python sees {found} GPUs, and {wanted} ranks need one each; it must"
                    " have a torch for GPUs (python -c 'import torch; print(torch.version.cuda)'), a container must be"
                    " entered with them (apptainer and singularity: --nv), and SLURM must give them (see"
                    " --gres in scontrol show job)"
                )
        names = sorted({name for rank in self.ranks for name in rank.gpus or ()})
        more = [rank for rank in self.ranks if len(rank.gpus or ()) > wanted]
        if more:
            return Note(
                text=f"on {more[0].node} {len(more[0].gpus or ())} GPUs are visible, and {wanted} were asked for, so"
                " that jobs on one node may use the same one"
            )
        return f"{wanted} on each node, as many as ranks ({', '.join(names)})"

    def check_time_left(self) -> str:
        """
        :raises ComponentError: if RETURNN could not ask for it
        """
        for rank in self.ranks:
            if rank.time_left_error is None:
                continue
            here = next((worker for worker in self.workers if worker.node == rank.node), self.workers[0])
            cure = (
                "the worker has squeue, so if the training python enters a container, make squeue, SLURM's"
                " configuration and the socket of munge visible there"
                if here.has_squeue
                else f"put its folder into PATH of DEFAULT_ENVIRONMENT_SET, or {_CONFIGURE}"
            )
            raise ComponentError(
                f"on {rank.node} the training python cannot ask how much time is left: {rank.time_left_error}. A"
                f" training then does not stop in time, and loses its last epoch; {cure}"
            )
        told = [f"{rank.time_left} on {rank.node}" for rank in self.ranks if rank.time_left is not None]
        return f"squeue answers in the training python: {', '.join(told)}"

    def check_shared_folder(self) -> str | Note:
        """
        :raises ComponentError: if a rank did not see what others wrote
        """
        slowest_s = 0.0
        nobody_saw = set.intersection(*(set(exchange.unseen) for _, exchange in self._exchanges()))
        for node, exchange in self._exchanges():
            unseen = sorted(set(exchange.unseen) - nobody_saw)
            if unseen:
                raise ComponentError(
                    f"{node} does not see {', '.join(unseen)}, which other nodes wrote into the folder of the job; the"
                    " folder work must be on a file system that all nodes share, and a container must mount it"
                )
            slowest_s = max(slowest_s, *(after_s for after_s in exchange.seen_after_s.values() if after_s is not None))
        if nobody_saw:
            return Note(
                text=f"every node sees the files of all ranks, but there is no {', '.join(sorted(nobody_saw))}, so"
                " that Sisyphus has no log to show when a training fails; the engine in settings.py should make it"
            )
        text = f"every node sees the log of the worker and the files of all ranks, after {slowest_s:.1f} s at most"
        if slowest_s < SEEN_NOTE_S:
            return text
        return Note(text=f"{text}; let WAIT_PERIOD_JOB_FS_SYNC in settings.py be more than that")

    def _exchanges(self) -> list[tuple[str, Exchange]]:
        return [(rank.node, rank.exchanged) for rank in self.ranks if rank.exchanged is not None]

    def _raise_errors(self, errors: Iterable[tuple[str, str | None]], *, cure: str = "") -> None:
        by_error: dict[str, list[str]] = {}
        for node, error in errors:
            if error is not None and node not in by_error.setdefault(error, []):
                by_error[error].append(node)
        if by_error:
            raise ComponentError(
                "; ".join(f"on {', '.join(nodes)}: {error}" for error, nodes in by_error.items()) + cure
            )


_SAME_FILES = "; give a python that lies on a file system of all nodes, as RETURNN_PYTHON_EXE in settings.py"


def _nodes(found: Iterable[WorkerCheck] | Iterable[RankCheck]) -> str:
    return ", ".join(sorted({one.node for one in found}))
