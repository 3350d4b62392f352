"""
How long a sweep of 1,000 trainings takes to be declared and, where Sisyphus is installed, to be put into its graph.

Run as ``python benchmarks/build_sweep.py``; prints JSON. Each figure is from a process of its own, which starts with an
interpreter that has imported nothing of us; the training's python is asked once for what it has, which is counted too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SCHEMES = 10
SEEDS = 5


def build(num_trainings: int) -> dict[str, object]:
    """:return: a sweep that was declared and checked, with the seconds it took"""
    start = time.perf_counter()
    from syncopate import Cluster, Sweep, ddp, hierarchical, param_avg
    from syncopate.tasks.char_lm import char_lm

    imported = time.perf_counter()
    sweep = Sweep(
        "build_sweep",
        base=char_lm(),
        cluster=Cluster(num_nodes=2, num_gpus_per_node=2, device="cpu"),
        num_epochs=4,
        baseline="ddp",
        seeds=range(SEEDS),
    )
    schemes = {"ddp": ddp(), "node": hierarchical(node="gradients", world_every=20)}
    schemes |= {f"psync{every}": param_avg(every=every) for every in range(1, SCHEMES - 1)}
    for trial in range(num_trainings // (SEEDS * SCHEMES)):
        for name, scheme in schemes.items():
            sweep.add(name, scheme, learning_rate=0.001 * (trial + 1))
    declared = time.perf_counter()
    sweep.check()
    checked = time.perf_counter()
    return {
        "sweep": sweep,
        "trainings": len(sweep.runs),
        "import_s": imported - start,
        "declare_s": declared - imported,
        "check_s": checked - declared,
    }


def measure(*, num_trainings: int, with_sisyphus: bool) -> dict[str, object]:
    """:return: figures of this process, which stands in a folder that Sisyphus can be started in"""
    start = time.perf_counter()
    figures = build(num_trainings)
    sweep = figures.pop("sweep")
    if with_sisyphus:
        before = time.perf_counter()
        sweep.register()
        figures["register_s"] = time.perf_counter() - before
    figures["total_s"] = time.perf_counter() - start
    figures["total_cpu_s"] = time.process_time()
    figures["torch_imported"] = "torch" in sys.modules
    return figures


def in_a_process_of_its_own(*options: str) -> dict[str, object]:
    """:return: what :func:`measure` gave in a new process and a new folder"""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("recipe", "setups", "settings.py"):
            (Path(folder) / name).symlink_to(REPOSITORY / name)
        done = subprocess.run(
            [sys.executable, __file__, "--measure", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.path.join(folder, "recipe")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measures in new processes, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3, help="processes of which the fastest counts")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sisyphus", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(num_trainings=args.trainings, with_sisyphus=args.sisyphus)))
        return
    sys.path.insert(0, str(REPOSITORY / "recipe"))
    from syncopate.launch.components import i6_core_state, sisyphus_state

    kinds = {"declared": []}
    if sisyphus_state() == i6_core_state() == "rwth":
        kinds["in_the_graph"] = ["--sisyphus"]
    report: dict[str, object] = {"python": platform.python_version(), "cpus": os.cpu_count(), "repeat": args.repeat}
    for kind, options in kinds.items():
        runs = [in_a_process_of_its_own("--trainings", str(args.trainings), *options) for _ in range(args.repeat)]
        report[kind] = min(runs, key=lambda run: run["total_s"])
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
