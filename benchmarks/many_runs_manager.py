"""
``sis manager -r CONFIG`` with clocks, for ``many_runs.py``: ``many_runs_manager.py CONFIG FILE``.

Each cycle of the manager's loop becomes a line of JSON in FILE: seconds by part of the loop, without the sleep between
cycles, and of the reports among them; CPU seconds of the process; and states of the jobs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = (
    "update_jobs",
    "update_state_overview",
    "print_state_overview",
    "setup_held_jobs",
    "resume_jobs",
    "run_jobs",
    "check_output",
)


class Clocks:
    """
    Of one manager. What its other threads do is in the CPU seconds alone.

    :param cycles: gets a line at the end of each cycle
    """

    def __init__(self, cycles: Path) -> None:
        self._cycles = cycles
        self._begun = self._now()
        self._parts: Counter[str] = Counter()
        self._reports: Counter[str] = Counter()
        self._is_inside = False

    def part(self, inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        """:return: the method, with a clock; parts of parts are not counted twice"""

        def clocked(manager: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread() or self._is_inside:
                return inner(manager, *args, **kwargs)
            self._is_inside = True
            start_s = time.perf_counter()
            try:
                return inner(manager, *args, **kwargs)
            finally:
                self._parts[name] += time.perf_counter() - start_s
                self._is_inside = False

        return clocked

    def report(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """:return: the method that writes a report, with a clock"""

        def clocked(report: Any) -> None:
            start_s = time.perf_counter()
            inner(report)
            if threading.current_thread() is threading.main_thread():
                self._reports[os.path.basename(report._output_path)] += time.perf_counter() - start_s

        return clocked

    def cycle(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """:return: the method by which the manager asks whether to begin another cycle"""
        inner = self.part(inner, "continue_manager_loop")

        def clocked(manager: Any) -> Any:
            self._write({state: len(jobs) for state, jobs in manager.jobs.items()})
            return inner(manager)

        return clocked

    def _write(self, states: dict[str, int]) -> None:
        now = self._now()
        line = {
            "begin_s": self._begun["time_s"],
            "end_s": now["time_s"],
            "seconds": sum(self._parts.values()),
            "cpu_s": now["cpu_s"] - self._begun["cpu_s"],
            "parts_s": dict(self._parts),
            "reports_s": dict(self._reports),
            "states": states,
            "load": os.getloadavg()[0],
        }
        with self._cycles.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
        self._begun = now
        self._parts.clear()
        self._reports.clear()

    @staticmethod
    def _now() -> dict[str, float]:
        return {"time_s": time.time(), "cpu_s": time.process_time()}


def main() -> None:
    """Is the manager."""
    _, config, cycles = sys.argv
    # Sisyphus takes from here how workers are started.
    sys.argv = [str(Path(sys.executable).with_name("sis")), "manager", "-r", config]
    from sisyphus.__main__ import main as sis_main
    from sisyphus.graph import OutputReport
    from sisyphus.manager import Manager

    clocks = Clocks(Path(cycles))
    for name in PARTS:
        setattr(Manager, name, clocks.part(getattr(Manager, name), name))
    OutputReport.write_report = clocks.report(OutputReport.write_report)
    Manager.continue_manager_loop = clocks.cycle(Manager.continue_manager_loop)
    sis_main()


if __name__ == "__main__":
    main()
