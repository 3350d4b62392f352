"""
One rank of a test job: ``python -m syncopate.launch.rank_check FOLDER OPTIONS``, started as RETURNN is.

It looks at what a training would find here, meets the other ranks, and writes what it found into a folder that all
nodes see. It trains nothing, needs no data, and ends by itself.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType

_PARENT_PID = os.getppid()  # as early as possible: it is looked at again once we are bound to it

from syncopate.errors import ComponentError, LaunchError  # noqa: E402
from syncopate.launch.check_record import CheckFolder, Exchange, RankCheck  # noqa: E402
from syncopate.launch.components import check_training_python, own_training_python  # noqa: E402
from syncopate.launch.environment import DEVICE, RANK_DIR, RETURNN_ROOT  # noqa: E402
from syncopate.launch.interfaces import interfaces_in_use  # noqa: E402
from syncopate.launch.kept import kept_names  # noqa: E402
from syncopate.launch.lifeline import die_with_parent  # noqa: E402
from syncopate.launch.rank_record import RankRecord, write_record  # noqa: E402

_SEEN_LIMIT_S = 30.0
"""Network file systems may keep an old listing of a folder for as long."""
_SQUEUE_LIMIT_S = 10.0
"""RETURNN's own."""
_CLOCK_ROUNDS = 10
_EXIT_CODE_OF_LIMIT = 4
_NCCL_NETWORK = re.compile(r"NCCL INFO (NET/\w+ ?: Using .*)")


def main(argv: Sequence[str]) -> None:
    """
    :param argv: arguments after the name of the program
    """
    args = _parser().parse_args(argv)
    if not die_with_parent(_PARENT_PID):
        raise LaunchError("the torchrun agent that started this rank is gone, so this rank does not start")
    record = RankRecord.of_this_process(os.environ)
    rank_dir = Path(os.environ[RANK_DIR])
    write_record(rank_dir, record)
    folder = CheckFolder(path=args.folder)
    limit = threading.Timer(args.limit_s, _give_up, args=(record, rank_dir, args.limit_s))
    limit.daemon = True
    limit.start()
    try:
        check = look(record, modules=args.module, nccl_log=folder.path / f"nccl{record.rank}.log")
        check.write(folder.file_of_rank(record.rank))
        exchange = meet(check, folder, others=args.sees, world_size=record.world_size, limit_s=args.limit_s)
        replace(check, exchange=asdict(exchange)).write(folder.file_of_rank(record.rank))
    except Exception as exc:
        write_record(rank_dir, record.ended("failed", exit_code=1, error=f"{type(exc).__name__}: {exc}"))
        raise
    write_record(rank_dir, record.ended("finished", exit_code=0))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m syncopate.launch.rank_check")
    parser.add_argument("folder", type=Path, help="where all ranks write what they find")
    parser.add_argument("--limit-s", type=float, default=90.0, help="seconds after which this rank ends in any case")
    parser.add_argument("--module", action="append", default=[], help="that a training imports")
    parser.add_argument("--sees", action="append", default=[], type=Path, help="file of another process")
    return parser


def _give_up(record: RankRecord, rank_dir: Path, limit_s: float) -> None:
    error = f"TimeoutError: it did not get through the exchange with the other ranks within {limit_s:g} s"
    write_record(rank_dir, record.ended("failed", exit_code=_EXIT_CODE_OF_LIMIT, error=error))
    # From this thread nothing else ends a process that waits inside of torch.
    os._exit(_EXIT_CODE_OF_LIMIT)


def look(record: RankRecord, *, modules: Sequence[str], nccl_log: Path) -> RankCheck:
    """
    :param record: who this rank is
    :param modules: that a training imports
    :param nccl_log: where NCCL is to write what it does
    :return: what it finds by itself
    """
    device = os.environ.get(DEVICE, "gpu")
    names = tuple(sorted(kept_names(os.environ) & set(os.environ)))
    gpus: tuple[str, ...] | None = None
    if device == "gpu":
        # Read when torch starts NCCL.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(nccl_log))
        torch = _torch()
        gpus = tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    versions, returnn_error = _returnn(device)
    time_left, time_left_error = _time_left() if record.local_rank == 0 else (None, None)
    return RankCheck(
        rank=record.rank,
        local_rank=record.local_rank,
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        python=sys.executable,
        versions=versions,
        syncopate_error=_import_error(modules),
        returnn_error=returnn_error,
        names=names,
        num_host_cpus=os.cpu_count() or 1,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        step_cpus=os.environ.get("SRUN_CPUS_PER_TASK"),
        gpus=gpus,
        time_left=time_left,
        time_left_error=time_left_error,
    )


def _torch() -> ModuleType:
    """Not at the top: what reads the files of a test job has no torch."""
    import torch
    import torch.distributed

    return torch


def _returnn(device: str) -> tuple[str, str | None]:
    """:return: versions in words, and why RETURNN would not train here"""
    try:
        found = own_training_python(python=sys.executable, returnn_root=os.environ.get(RETURNN_ROOT))
        check_training_python(found, device=device)
    except ComponentError as exc:
        return f"Python {platform.python_version()}", str(exc)
    return f"Python {found.python_version}, RETURNN {found.returnn_version}, torch {found.torch_version}", None


def _import_error(modules: Sequence[str]) -> str | None:
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as exc:
            return f"import {name}: {type(exc).__name__}: {exc}"
    return None


def _time_left() -> tuple[str | None, str | None]:
    """:return: what RETURNN would be told, asked as it asks; and why it would not"""
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        return None, "SLURM_JOB_ID is not set"
    command = ["squeue", "-h", "-j", job_id, "-O", "TimeLeft"]
    if shutil.which("squeue") is None:
        return None, "there is no squeue on its PATH"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SQUEUE_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return None, f"squeue fails: {exc}"
    if done.returncode != 0 or ":" not in done.stdout:
        words = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        return None, f"squeue ends with exit code {done.returncode}: {words}"
    return done.stdout.strip(), None


def meet(check: RankCheck, folder: CheckFolder, *, others: Sequence[Path], world_size: int, limit_s: float) -> Exchange:
    """
    :param check: what this rank found by itself, already written
    :param folder: of all ranks
    :param others: files of other processes that this rank should see as well
    :param world_size: how many ranks there are
    :param limit_s: how long one step may take
    :return: what it finds out together with all others
    """
    torch = _torch()
    dist = torch.distributed
    uses_gpu = check.gpus is not None and len(check.gpus) > check.local_rank and dist.is_nccl_available()
    # As RETURNN does by itself on GPUs.
    backend = "cpu:gloo,cuda:nccl" if uses_gpu else "gloo"
    began_s = time.monotonic()
    dist.init_process_group(backend=backend, timeout=timedelta(seconds=limit_s))
    try:
        devices = [torch.device("cpu"), *([torch.device("cuda", check.local_rank)] if uses_gpu else [])]
        sums = []
        for device in devices:
            total = torch.full((1024,), float(check.rank + 1), device=device)
            dist.all_reduce(total)
            sums.append(set(total.tolist()))
        join_s = time.monotonic() - began_s
        ours = [folder.file_of_rank(rank) for rank in range(world_size)]
        exchange = Exchange(
            backend=backend,
            is_sum_right=all(one == {world_size * (world_size + 1) / 2} for one in sums),
            join_s=join_s,
            clock_offset_s=_clock_offset_s(torch),
            interfaces=tuple(interfaces_in_use(except_port=int(os.environ["MASTER_PORT"]))),
            nccl_network=nccl_network(os.environ.get("NCCL_DEBUG_FILE")) if uses_gpu else None,
            seen_after_s=_seen_after_s([*ours, *others]),
        )
        _wait_for_all(torch)  # nobody leaves while another one still looks for its file
    finally:
        dist.destroy_process_group()
    return exchange


def _wait_for_all(torch: ModuleType) -> None:
    """A barrier by way of the CPU: that of torch may choose a GPU."""
    torch.distributed.all_reduce(torch.zeros(1))


def _clock_offset_s(torch: ModuleType) -> float:
    """
    All read their clocks when they leave a barrier, which they do at nearly the same time.

    :return: how much this clock is ahead of that of rank 0, the median of several tries
    """
    own = []
    for _ in range(_CLOCK_ROUNDS):
        _wait_for_all(torch)
        own.append(time.time())
    of_this = torch.tensor(own, dtype=torch.float64)
    of_first = of_this.clone()
    torch.distributed.broadcast(of_first, src=0)
    return float((of_this - of_first).median())


def nccl_network(log: str | None) -> str | None:
    """
    :param log: of NCCL, None if there is none
    :return: which network it says it uses, None if it says nothing
    """
    if log is None or not os.path.exists(log):
        return None
    found = _NCCL_NETWORK.findall(Path(log).read_text(errors="replace"))
    return found[-1].strip() if found else None


def _seen_after_s(files: Sequence[Path]) -> dict[str, float | None]:
    """:return: by name of the file, after how long it was seen with something in it; None for never"""
    began_s = time.monotonic()
    seen: dict[str, float | None] = {path.name: None for path in files}
    while True:
        waited_s = time.monotonic() - began_s
        for path in files:
            if seen[path.name] is None and _has_text(path):
                seen[path.name] = waited_s
        if None not in seen.values() or waited_s > _SEEN_LIMIT_S:
            return seen
        time.sleep(0.2)


def _has_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
