"""
What a sweep of 200 submitted trainings costs the manager and the scheduler.

Run as ``python benchmarks/many_runs.py``; prints JSON, and what it says in words on stderr; the exit code is 1 if a
limit is missed. It takes most of an hour on two cores, and 12 GB of memory. All of it is real: ``sis manager`` with our
engine and the periods of ``setups/slurm``, a SLURM of its own on this host, and trainings that it submits, which first
wait and then run. Added are clocks around the parts of the manager's loop, and a log of the calls of SLURM's commands;
and the state of the jobs is shown in every cycle, as if it always changed.

200 training processes do not fit on a small host. So each training is started by SLURM and trains some epochs; then its
training process is ended behind the back of its launcher, which waits on, as do Sisyphus' worker and the SLURM job.
What the manager looks at stays as it was: jobs that run, processes that are alive, logs, and the learning-rate files
that RETURNN wrote. The last few trainings keep their processes, and train for a moment every second while the manager
is measured, so that it finds new epochs. As root, manager and slurmctld go before everything else on the host.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from many_runs_folder import PREFIX, REPOSITORY, Setup

LIMITS_S = {"waiting": 1.0, "running": 5.0}
STEP_LIMIT_S = 900
MOMENT_S = 0.1


def wait_for_cycles(
    setup: Setup, manager: subprocess.Popen[bytes], *, state: str, number: int, pids: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """
    :param state: in which all trainings are to be
    :param number: of cycles in a row
    :param pids: of processes that are stopped, and train for a moment every now and then
    :return: those cycles, without the one before, in which states may have changed
    """
    end_s, begin = time.monotonic() + STEP_LIMIT_S + number * 60, len(setup.read_cycles())
    while True:
        last = setup.read_cycles()[begin:][-number - 1 :]
        if len(last) > number and all(cycle["states"].get(state) == setup.trainings for cycle in last):
            return last[1:]
        if manager.poll() is not None or time.monotonic() > end_s:
            tail = setup.manager_log.read_text(encoding="utf-8", errors="replace")[-3000:]
            seen = [cycle["states"] for cycle in last]
            raise SystemExit(f"not all {setup.trainings} trainings are {state!r}; states: {seen}\n{tail}")
        for number_of_signal in (signal.SIGCONT, signal.SIGSTOP):
            for pid in pids:
                os.kill(pid, number_of_signal)
            time.sleep(MOMENT_S)
        time.sleep(1)


def epochs_done(folder: Path) -> int:
    """:return: how many epochs of a training have a score on dev, which is the last that RETURNN notes"""
    try:
        return (folder / "work" / "learning_rates").read_bytes().count(b"'dev_loss_ce':")
    except FileNotFoundError:
        return 0


def rank_pid(folder: Path) -> int:
    """:return: the process that trains"""
    (record,) = folder.glob("logs/*/ranks/rank0.json")
    return int(json.loads(record.read_text(encoding="utf-8"))["pid"])


def is_alive(pid: int) -> bool:
    """:return: whether it runs and trains"""
    try:
        return b"syncopate.launch.rank" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def train_all(setup: Setup, *, at_a_time: int, epochs: int, training: int) -> list[int]:
    """
    Lets SLURM start all trainings, some at a time.

    :param at_a_time: how many train at once
    :param epochs: after so many the process that trains is ended, or stopped
    :param training: how many keep their process
    :return: those processes, which are stopped
    """
    jobs = setup.jobs()
    setup.slurm("scontrol", "hold", ",".join(jobs))
    setup.slurm("scontrol", "update", "NodeName=node[1-4]", "State=RESUME")
    waiting, started, stopped, begin_s = list(jobs), {}, [], time.monotonic()
    while waiting or started:
        for folder, since_s in list(started.items()):
            if (folder / "error.run.1").exists() or time.monotonic() - since_s > STEP_LIMIT_S:
                log = folder / "log.run.1"
                end = log.read_text(encoding="utf-8", errors="replace")[-3000:] if log.exists() else "it has no log"
                raise SystemExit(f"{folder} failed, or did not train {epochs} epochs in {STEP_LIMIT_S} s: {end}")
            if epochs_done(folder) < epochs:
                continue
            pid = rank_pid(folder)
            if not is_alive(pid):
                raise SystemExit(f"{folder}: the process {pid}, which trains, is gone")
            del started[folder]
            if len(waiting) + len(started) < training:
                stopped.append(pid)
                os.kill(pid, signal.SIGSTOP)
            else:
                (folder / "work" / "parked").touch()
                os.kill(pid, signal.SIGKILL)
            done = setup.trainings - len(waiting) - len(started)
            print(f"{done} trainings ran {epochs} epochs, {time.monotonic() - begin_s:.0f} s", file=sys.stderr)
        if waiting and len(started) < at_a_time:
            job = waiting.pop(0)
            setup.slurm("scontrol", "release", job)
            started[jobs[job]] = time.monotonic()
        time.sleep(0.3)
    return stopped


def summary(setup: Setup, cycles: list[dict[str, Any]], *, limit_s: float) -> dict[str, Any]:
    """:return: figures of cycles that followed each other"""
    begin_s, end_s = cycles[0]["begin_s"], cycles[-1]["end_s"]
    calls = setup.read_calls(begin_s, end_s)
    return {
        "median_s": statistics.median(cycle["seconds"] for cycle in cycles),
        "max_s": max(cycle["seconds"] for cycle in cycles),
        "limit_s": limit_s,
        "cpu_median_s": statistics.median(cycle["cpu_s"] for cycle in cycles),
        "minutes": (end_s - begin_s) / 60,
        "calls": calls,
        "calls_per_minute": {
            who: {name: number * 60 / (end_s - begin_s) for name, number in numbers.items()}
            for who, numbers in calls.items()
        },
        "cycles": cycles,
    }


def check_running(setup: Setup, cycles: list[dict[str, Any]], *, training: int) -> dict[str, Any]:
    """:return: what proves that the trainings were running, and were shown with their epochs"""
    from syncopate.compare.tables import measure_all
    from syncopate.sweep.record import SweepRecord

    base, folders = setup.folder / "output" / PREFIX, setup.jobs().values()
    states = Counter(one.state for one in measure_all(SweepRecord.read(base / "sweep.json"), base=base))
    shown = re.findall(r"running: .*\{ep (\d+)/\d+\}", setup.manager_log.read_text(encoding="utf-8", errors="replace"))
    last = [int(epoch) for epoch in shown[-setup.trainings :]]
    if states != {"running": setup.trainings} or len(shown) < len(cycles) * setup.trainings or 0 in last:
        raise SystemExit(f"not all of it ran: table {dict(states)}, shown by the manager {len(shown)}, {last}")
    alive = sum(is_alive(rank_pid(folder)) for folder in folders)
    if alive != training:
        raise SystemExit(f"{alive} processes train, not {training}")
    epochs = [epochs_done(folder) for folder in folders]
    return {
        "epochs_in_files": {"least": min(epochs), "median": statistics.median(epochs), "all": sum(epochs)},
        "processes_that_train": alive,
    }


def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """:return: all figures"""
    setup = Setup(folder, trainings=args.trainings, mem_mb=args.mem_mb)
    with setup.cluster(), setup.manager() as manager:
        begin_s = time.time()
        waiting = wait_for_cycles(setup, manager, state="queue", number=args.cycles)
        print(f"{args.trainings} trainings wait, and were measured", file=sys.stderr)
        first_s = waiting[0]["begin_s"]
        report = {
            "goes_first": setup.goes_first,
            "submission": {"seconds": first_s - begin_s, "calls": setup.read_calls(begin_s, first_s)},
            "waiting": summary(setup, waiting, limit_s=LIMITS_S["waiting"]),
        }
        pids = train_all(setup, at_a_time=args.at_a_time, epochs=args.epochs, training=args.training)
        running = wait_for_cycles(setup, manager, state="running", number=args.cycles, pids=pids)
        report["running"] = summary(setup, running, limit_s=LIMITS_S["running"])
        report["running"] |= check_running(setup, running, training=args.training)
        if args.keep:
            for path in (setup.cycles, setup.calls, setup.manager_log, folder / "output" / PREFIX / "live.txt"):
                shutil.copy(path, args.keep)
    return report


def in_words(report: dict[str, Any]) -> Iterator[str]:
    """:return: lines"""
    number = report["trainings"]
    calls = _listed(report["submission"]["calls"]["manager"], digits=0)
    yield f"{number} trainings submitted, {report['submission']['seconds']:.0f} s after the start: {calls}"
    for state in LIMITS_S:
        found = report[state]
        verdict = "kept" if found["max_s"] <= found["limit_s"] else "MISSED"
        yield (
            f"{number} {state}: a cycle takes {found['median_s']:.2f} s, at most {found['max_s']:.2f} s (limit"
            f" {found['limit_s']:g} s, {verdict}); {found['cpu_median_s']:.2f} s of CPU"
        )
        for kind in ("parts_s", "reports_s"):
            names = {name for cycle in found["cycles"] for name in cycle[kind]}
            each = {name: statistics.median(cycle[kind].get(name, 0) for cycle in found["cycles"]) for name in names}
            yield f"  {kind.removesuffix('_s')}: {_listed(each, digits=3)}"
        for who, each in found["calls_per_minute"].items():
            yield f"  calls per minute, {who}: {_listed(each, digits=1)}"
    found = report["running"]
    yield f"  epochs in learning-rate files: {found['epochs_in_files']}; {found['processes_that_train']} still train"
    cost_s = (found["median_s"] - report["waiting"]["median_s"]) / number
    yield f"  that one more training runs instead of waiting costs {1000 * cost_s:.1f} ms of a cycle"


def _listed(numbers: dict[str, float], *, digits: int) -> str:
    ordered = sorted(numbers.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {number:.{digits}f}" for name, number in ordered) or "none"


def main() -> int:
    """:return: exit code"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--at-a-time", type=int, default=8, help="how many train at once")
    parser.add_argument("--epochs", type=int, default=50, help="that each trains")
    parser.add_argument("--training", type=int, default=4, help="how many still train while the manager is measured")
    parser.add_argument("--cycles", type=int, default=5, help="of the manager that are measured, of 30 s each")
    parser.add_argument("--mem-mb", type=int, default=320, help="that SLURM gives to each training")
    parser.add_argument("--keep", metavar="FOLDER", help="gets the logs and the table")
    args = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY / "recipe"))
    # Ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Not TMPDIR: sockets of SLURM have to have short paths.
    with tempfile.TemporaryDirectory(prefix="many_runs-", dir="/tmp") as folder:
        report = {
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "trainings": args.trainings,
            **measure(Path(folder), args),
        }
    print(json.dumps(report, indent=1))
    print("\n".join(in_words(report)), file=sys.stderr)
    return int(any(report[state]["max_s"] > report[state]["limit_s"] for state in LIMITS_S))


if __name__ == "__main__":
    sys.exit(main())
