"""Which setup of a repository is for this host."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from syncopate.errors import SiteError, did_you_mean

SETUP = "SYNCOPATE_SETUP"
HOSTS = "hosts"
DEFAULT = "local"


def chosen_setup(
    folder: str | Path, environ: Mapping[str, str], *, host_names: Iterable[str] | None = None
) -> tuple[str, Path]:
    """
    The variable ``SYNCOPATE_SETUP`` names it. Without it, it is the setup whose file ``hosts`` has a pattern for a name
    of this host, one a line, ``*`` for anything and ``#`` before a comment; and ``local`` if there is none.

    :param folder: with one folder per setup
    :param environ: of this process
    :param host_names: of this host; None asks the system for its full and its short one
    :return: name of the setup, and its ``settings.py``
    :raises SiteError: if there is no such setup, or more than one is for this host
    """
    folder = Path(folder)
    setups = sorted(path.parent.name for path in folder.glob("*/settings.py"))
    name = environ.get(SETUP)
    if name:
        if name not in setups:
            raise SiteError(
                f"{SETUP}={name!r}, but there is no {folder / name / 'settings.py'}; setups are"
                f" {setups}{did_you_mean(name, setups)}"
            )
    else:
        names = {socket.getfqdn(), socket.gethostname()} if host_names is None else set(host_names)
        fitting = [setup for setup in setups if _is_for(folder / setup / HOSTS, names)]
        if len(fitting) > 1:
            raise SiteError(
                f"the setups {fitting} of {folder} are all for this host, {sorted(names)}; let one of their files"
                f" {HOSTS} match it, or name one by {SETUP}"
            )
        name = fitting[0] if fitting else DEFAULT
    return name, folder / name / "settings.py"


def _is_for(hosts: Path, names: Iterable[str]) -> bool:
    if not hosts.is_file():
        return False
    lines = (line.partition("#")[0].strip().lower() for line in hosts.read_text(encoding="utf-8").splitlines())
    return any(fnmatchcase(name.lower(), pattern) for pattern in lines if pattern for name in names)
