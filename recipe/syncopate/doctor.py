"""``python -m syncopate doctor``: what is installed, and what is lacking."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from syncopate.errors import SyncopateError
from syncopate.launch.components import (
    check_training_python,
    probe_training_python,
    require_i6_core,
    require_sisyphus,
)


def doctor_main(argv: Sequence[str]) -> int:
    """
    :param argv: arguments after the name of the command
    :return: exit code: 0, 1 if something is lacking
    """
    parser = argparse.ArgumentParser(prog="python -m syncopate doctor", description="Say what is lacking.")
    parser.add_argument("--python", default=sys.executable, help="the python of the ranks (default: this one)")
    parser.add_argument("--returnn-root", help="a checkout of RETURNN (default: the one installed there)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"], help="what is trained on (default: cpu)")
    parser.add_argument("--sisyphus", action="store_true", help="look for Sisyphus and i6_core alone")
    args = parser.parse_args(argv)

    def training_python() -> str:
        found = probe_training_python(args.python, returnn_root=args.returnn_root)
        check_training_python(found, device=args.device)
        return f"Python {found.python_version}, RETURNN {found.returnn_version}, torch {found.torch_version}"

    checks: dict[str, Callable[[], object]] = {"Sisyphus": require_sisyphus, "i6_core": require_i6_core}
    if not args.sisyphus:
        checks = {"training python": training_python, **checks}
    good = True
    for name, check in checks.items():
        try:
            print(f"{name}: {check() or 'found'}")
        except SyncopateError as exc:
            good = False
            print(f"{name}: {exc}")
    return 0 if good else 1
