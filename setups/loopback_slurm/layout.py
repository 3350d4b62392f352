"""What the cluster is made of: folder, ports, daemons and their commands."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import memory

NODES = ("node1", "node2", "node3", "node4")
# In the order in which they need each other.
DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", *NODES)
CLUSTER = "loopback"

# Below what Linux gives to outgoing connections, so that none of those takes a port between its choice and its use.
_PORTS = range(20000, 32000)
# The kernel takes 107 characters; the longest name below is /node1/node1_4294967295.4294967295.
_MAX_SOCKET_FOLDER = 70


@dataclass(frozen=True, kw_only=True)
class Layout:
    """
    What was chosen when the cluster was made.

    :param folder: everything of the cluster
    :param sockets: sockets, and the spool folders of the nodes, in which SLURM puts more of them. In ``folder``, or a
        temporary folder if that has too long a path for sockets
    :param ports: by daemon
    :param memory_group: control group that limits the memory of jobs, None if the user may not make one
    """

    folder: Path
    sockets: Path
    ports: dict[str, int]
    memory_group: Path | None

    @classmethod
    def choose(cls, folder: Path) -> Layout:
        """Finds free ports, and makes the folder of sockets and the control group."""
        names = DAEMONS[DAEMONS.index("slurmdbd") :]
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        sockets = folder / "sockets"
        if len(os.fsencode(sockets)) > _MAX_SOCKET_FOLDER:
            sockets = Path(tempfile.mkdtemp(prefix="loopback_slurm-", dir="/tmp"))
        else:
            sockets.mkdir()
        return cls(folder=folder, sockets=sockets, ports=ports, memory_group=memory.make_group())

    @classmethod
    def load(cls, folder: Path) -> Layout | None:
        """That of the cluster in this folder, None if there is none."""
        try:
            data = json.loads((folder / "cluster.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        group = data.get("memory_group")
        return cls(
            folder=folder,
            sockets=Path(data["sockets"]),
            ports=data["ports"],
            memory_group=None if group is None else Path(group),
        )

    def save(self) -> None:
        text = json.dumps(asdict(self), indent=1, default=str)
        (self.folder / "cluster.json").write_text(text + "\n", encoding="utf-8")

    @property
    def slurm_conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.sockets / "munge"

    @property
    def mariadb_socket(self) -> Path:
        return self.sockets / "mariadb"

    def pid_file(self, daemon: str) -> Path:
        return self.folder / "pid" / daemon

    def log(self, daemon: str) -> Path:
        return self.folder / "log" / f"{daemon}.log"

    def output(self, daemon: str) -> Path:
        """What it says before it has opened its log."""
        return self.folder / "log" / f"{daemon}.out"

    def environ(self) -> dict[str, str]:
        """Environment of daemons and clients."""
        # slurmdbd.conf has no setting for the socket of the database.
        return {**os.environ, "SLURM_CONF": str(self.slurm_conf), "MYSQL_UNIX_PORT": str(self.mariadb_socket)}

    def command(self, daemon: str) -> list[str]:
        """In the foreground: its process id is that of who is started, and not what a file says."""
        if daemon == "munged":
            return [
                program("munged"),
                "--foreground",
                "--num-threads=2",
                f"--socket={self.munge_socket}",
                f"--key-file={self.folder}/munge.key",
                f"--pid-file={self.folder}/munged.pid",
                f"--seed-file={self.folder}/munged.seed",
                f"--log-file={self.log(daemon)}",
                # Without it munged refuses folders that a group, or as /tmp everybody, may write to.
                "--force",
            ]
        if daemon == "mariadbd":
            return [
                program("mariadbd"),
                *self._database_options(),
                f"--socket={self.mariadb_socket}",
                f"--pid-file={self.folder}/mariadbd.pid",
                "--skip-networking",
                "--skip-log-bin",
            ]
        if daemon in NODES:
            return [program("slurmd"), "-D", "-N", daemon]
        return [program(daemon), "-D"]

    def install_database(self) -> list[str]:
        return [
            program("mariadb-install-db"),
            *self._database_options(),
            "--skip-test-db",
            # There is no password: the socket says which user it is.
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={user_name()}",
        ]

    def _database_options(self) -> list[str]:
        """Small and fast: nothing here has to outlive a power cut."""
        return [
            "--no-defaults",
            f"--datadir={self.folder}/db",
            f"--tmpdir={self.folder}",
            f"--user={user_name()}",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=8M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--innodb-flush-method=nosync",
            "--debug-no-sync",
        ]


def user_name() -> str:
    """Of the user, whatever the variables of the shell say."""
    return pwd.getpwuid(os.getuid()).pw_name


def program(name: str) -> str:
    """
    Its path. Daemons are often outside of a user's PATH.

    :raises SystemExit: if it is not installed
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        raise SystemExit(
            f"cluster: there is no {name}; install it by: apt-get install slurm-wlm munge slurmdbd mariadb-server"
        )
    return path


def _free_ports(number: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as test:
            try:
                test.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise SystemExit(f"cluster: fewer than {number} ports are free from {_PORTS.start} to {_PORTS.stop - 1}")
