"""Text of the configuration files: munge.key, slurm.conf, slurmdbd.conf, gres.conf, cgroup.conf."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from layout import CLUSTER, NODES, Layout, user_name

GPUS_PER_NODE = 2
# A node offers 4 CPUs, also on a host that has 2, so that a job can ask for 4 on each of 4 nodes. SLURM binds steps to
# cores of the host: were these 4 cores, a step of 4 CPUs could not start where the host has 2 ("Unable to layout tasks
# on given cpus"). With 2 cores of 2 threads it starts and may use both, and 2 tasks of 2 CPUs get a core each.
_SHAPE = "CPUs=4 Sockets=1 CoresPerSocket=2 ThreadsPerCore=2"
# Two trainings of two ranks that ask for 4 GB each, as they do by default. SLURM gives out no more than this, but does
# not look whether the host has it.
_MEMORY_PER_NODE_MB = 16384
_MEMORY_PER_CPU_MB = 2048


def write(layout: Layout) -> None:
    """Everything that the daemons read."""
    for name in ("log", "state", "gpu", "pid", "cgroup"):
        (layout.folder / name).mkdir()
    for node in NODES:
        (layout.sockets / node).mkdir()
    for index in range(GPUS_PER_NODE):
        # It has to be a device. SLURM uses only the number at the end of its name.
        (layout.folder / "gpu" / f"gpu{index}").symlink_to("/dev/null")
    if layout.memory_group is not None:
        (layout.folder / "cgroup" / "memory").symlink_to(layout.memory_group)
    _write(layout.folder / "munge.key", os.urandom(256))
    for name, text in (
        ("slurm.conf", _slurm_conf(layout)),
        ("slurmdbd.conf", _slurmdbd_conf(layout)),
        ("gres.conf", f"AutoDetect=off\nName=gpu File={layout.folder}/gpu/gpu[0-{GPUS_PER_NODE - 1}]\n"),
        ("cgroup.conf", f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={layout.folder}/cgroup\nConstrainRAMSpace=yes\n"),
    ):
        _write(layout.folder / name, text.encode())


def _slurm_conf(layout: Layout) -> str:
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={layout.ports[node]} {_SHAPE}"
        f" RealMemory={_MEMORY_PER_NODE_MB} Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN"
        for node in NODES
    )
    if layout.memory_group is not None:
        limit = "TaskPlugin=task/affinity,task/cgroup"
    else:
        # It kills too, but calls the step CANCELLED and the job FAILED.
        limit = "TaskPlugin=task/affinity\nJobAcctGatherParams=OverMemoryKill"
    return f"""\
ClusterName={CLUSTER}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={layout.ports["slurmctld"]}
SlurmUser={user_name()}
SlurmdUser={user_name()}
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
CredType=cred/munge

StateSaveLocation={layout.folder}/state
SlurmdSpoolDir={layout.sockets}/%n
SlurmctldPidFile={layout.folder}/slurmctld.pid
SlurmdPidFile={layout.folder}/%n.pid
SlurmctldLogFile={layout.log("slurmctld")}
SlurmdLogFile={layout.log("%n")}
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet
MailProg=/bin/true

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={layout.ports["slurmdbd"]}
AccountingStoragePass={layout.munge_socket}
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2

{limit}
ProctrackType=proctrack/linuxproc
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={_MEMORY_PER_CPU_MB}
# A node has what is said here, not what the host has.
SlurmdParameters=config_overrides

SchedulerType=sched/backfill
# Units are seconds, but microseconds in sched_min_interval.
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,bf_interval=2
JobRequeue=1
SlurmdTimeout=30
KillWait=10
MinJobAge=3600
ReturnToService=2

{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=short Nodes=ALL MaxTime=5 State=UP
"""


def _slurmdbd_conf(layout: Layout) -> str:
    return f"""\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={layout.ports["slurmdbd"]}
SlurmUser={user_name()}
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
PidFile={layout.folder}/slurmdbd.pid
LogFile={layout.log("slurmdbd")}
DebugLevelSyslog=quiet
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user_name()}
"""


def _write(path: Path, content: bytes) -> None:
    """Nobody else may read it: SLURM and munge ask for that."""
    path.touch(mode=0o600)
    path.write_bytes(content)
