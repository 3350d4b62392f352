"""What is said about what a test job saw, where it takes several real hosts or GPUs to see it."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from syncopate.cluster import Cluster
from syncopate.doctor.finding import Note
from syncopate.doctor.slurm_findings import TestJob
from syncopate.errors import ComponentError, ReadError
from syncopate.launch.check_record import CheckFolder, Exchange, RankCheck, WorkerCheck

FILES = {"rank0.json": 0.0, "rank1.json": 0.2, "log.run.1": 0.0}
NAMES = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_PROCID")


def exchange(**changes):
    fields = {
        "backend": "gloo",
        "is_sum_right": True,
        "join_s": 0.5,
        "clock_offset_s": 0.0,
        "interfaces": ("ib0",),
        "nccl_network": None,
        "seen_after_s": FILES,
    }
    return asdict(Exchange(**{**fields, **changes}))


def rank(number, **changes):
    fields = {
        "rank": number,
        "local_rank": 0,
        "node": f"n{number + 1}",
        "python": "/p",
        "versions": "Python 3.12",
        "syncopate_error": None,
        "returnn_error": None,
        "names": NAMES,
        "num_host_cpus": 96,
        "cpus": (8, 9, 10, 11),
        "step_cpus": "4",
        "gpus": None,
        "time_left": "4:50",
        "time_left_error": None,
        "exchange": exchange(),
    }
    return RankCheck(**{**fields, **changes})


def worker(number, **changes):
    fields = {
        "number": number,
        "node": f"n{number + 1}",
        "on_each_node": True,
        "names": NAMES,
        "has_squeue": True,
        "python_error": None,
        "syncopate_error": None,
    }
    return WorkerCheck(**{**fields, **changes})


def job(*ranks, workers=None, environ=None, **cluster):
    return TestJob(
        cluster=Cluster(**{"num_nodes": 2, "device": "cpu", **cluster}),
        cpus=4,
        python="/p",
        environ=environ or {},
        workers=tuple(workers or [worker(0), worker(1)]),
        ranks=ranks or (rank(0), rank(1)),
    )


def lacking(check):
    with pytest.raises(ComponentError) as caught:
        check()
    return str(caught.value)


def test_records_can_be_read_again(tmp_path):
    folder = CheckFolder(path=tmp_path)
    for number in (10, 9):
        rank(number).write(folder.file_of_rank(number))
    worker(0).write(folder.file_of_worker(0))
    assert [one.rank for one in folder.ranks()] == [9, 10]
    assert folder.ranks()[0].exchanged.interfaces == ["ib0"]
    assert folder.workers()[0].node == "n1"
    folder.file_of_rank(9).write_text("{")
    with pytest.raises(ReadError, match=r"rank9\.json: not a RankCheck"):
        folder.ranks()


def test_cpus():
    assert job().check_cpus() == "4 usable on each node, 4 asked for"
    one = rank(1, cpus=(0,), step_cpus=None)
    assert lacking(job(rank(0), one).check_cpus) == (
        "on n2 the ranks may use 1 of the 4 CPUs that were asked for (the host has 96); since SLURM 22.05 a step does"
        ' not take the CPUs of its job; end settings.py with configure(globals(), engine="slurm") of syncopate.settings'
    )
    assert "SRUN_CPUS_PER_TASK is 4, so something else binds them" in lacking(
        job(rank(0), replace(one, step_cpus="4")).check_cpus
    )
    all_of_host = [rank(number, cpus=tuple(range(96))) for number in range(2)]
    assert job(*all_of_host).check_cpus().startswith("96 usable on each node, 4 asked for")
    two_per_node = [rank(0, cpus=(0, 1)), rank(1, node="n1", local_rank=1, cpus=(2, 3))]
    assert job(*two_per_node, num_nodes=1, num_gpus_per_node=2).check_cpus() == "4 usable on each node, 4 asked for"


def test_gpus():
    names = ("NVIDIA H100", "NVIDIA H100")
    both = (rank(0, gpus=names), rank(1, gpus=names))
    assert (
        job(*both, device="gpu", num_gpus_per_node=2).check_gpus() == "2 on each node, as many as ranks (NVIDIA H100)"
    )
    found = job(*both, device="gpu").check_gpus()
    assert isinstance(found, Note)
    assert found.text.startswith("on n1 2 GPUs are visible, and 1 were asked for")
    assert lacking(job(both[0], rank(1, gpus=names[:1]), device="gpu", num_gpus_per_node=2).check_gpus).startswith(
        "on n2 the training python sees 1 GPUs, and 2 ranks need one each"
    )


def test_interfaces():
    assert job().check_network() == "ib0 on every node"
    used = exchange(interfaces=("eth0",), nccl_network="NET/Socket : Using [0]eth0:10.0.0.2<0>")
    found = job(rank(0), rank(1, exchange=used)).check_network()
    assert isinstance(found, Note)
    assert found.text == (
        "ib0 on n1, eth0 on n2; NCCL says NET/Socket : Using [0]eth0:10.0.0.2<0>. Where one of them is slow, name the"
        " right one by DEFAULT_ENVIRONMENT_SET['SYNCOPATE_INTERFACE'], or Site(interface=...), in settings.py"
    )


def test_clocks():
    assert job().check_clocks() == "differ by 0.000 s at most"
    assert job(rank(0), rank(1, exchange=exchange(clock_offset_s=-0.9))).check_clocks() == "differ by 0.900 s at most"
    found = job(rank(0), rank(1, exchange=exchange(clock_offset_s=-1.0))).check_clocks()
    assert isinstance(found, Note)
    assert found.text.startswith("that of n1 is 1.0 s ahead of that of n2")


def test_shared_folder():
    assert job().check_shared_folder() == (
        "every node sees the log of the worker and the files of all ranks, after 0.2 s at most"
    )
    late = job(rank(0), rank(1, exchange=exchange(seen_after_s={**FILES, "rank0.json": 12.0}))).check_shared_folder()
    assert isinstance(late, Note)
    assert late.text.endswith("after 12.0 s at most; let WAIT_PERIOD_JOB_FS_SYNC in settings.py be more than that")
    unseen = exchange(seen_after_s={**FILES, "rank0.json": None})
    assert lacking(job(rank(0), rank(1, exchange=unseen)).check_shared_folder).startswith(
        "n2 does not see rank0.json, which other nodes wrote into the folder of the job"
    )
    no_log = exchange(seen_after_s={**FILES, "log.run.1": None})
    found = job(rank(0, exchange=no_log), rank(1, exchange=no_log)).check_shared_folder()
    assert isinstance(found, Note)
    assert found.text.startswith("every node sees the files of all ranks, but there is no log.run.1")


def test_environment():
    environ = {"NCCL_DEBUG": "WARN", "SYNCOPATE_INTERFACE": "ib0", "HOME": "/h"}
    with_them = (*NAMES, "NCCL_DEBUG", "SYNCOPATE_INTERFACE")
    workers = [worker(0, names=with_them), worker(1, names=with_them)]
    all_reach = job(rank(0, names=with_them), rank(1, names=with_them), workers=workers, environ=environ)
    assert all_reach.check_environment() == "4 names of SLURM, NCCL_DEBUG, SYNCOPATE_INTERFACE reach the ranks"
    in_python = job(rank(0, names=with_them), rank(1), workers=workers, environ=environ)
    assert lacking(in_python.check_environment).startswith(
        "on n2 the training python loses NCCL_DEBUG, SYNCOPATE_INTERFACE, which the worker has; if it is a script"
    )
    assert lacking(job(environ=environ).check_environment).startswith(
        "on n1 the worker has no NCCL_DEBUG, no SYNCOPATE_INTERFACE; look for --export in sbatch_args"
    )


def test_rendezvous():
    assert job().check_rendezvous() == "2 ranks on n1, n2 met and added up within 0.5 s, backend gloo"
    assert lacking(job(rank(0, exchange=None)).check_rendezvous).startswith(
        "ranks [1] were never seen; ranks [0] did not get through the exchange with the others"
    )
    wrong = job(rank(0), rank(1, exchange=exchange(is_sum_right=False)))
    assert lacking(wrong.check_rendezvous) == "the sum over all ranks is wrong, so not all of them took part in it"


def test_pythons_of_the_nodes():
    only_there = [worker(0), worker(1, python_error="/p does not exist, or is no program that may be executed")]
    assert lacking(job(workers=only_there).check_python).startswith("on n2: /p does not exist, or is no program")
    differ = job(rank(0), rank(1, versions="Python 3.13")).check_returnn()
    assert isinstance(differ, Note)
    assert (
        differ.text == "nodes differ: Python 3.12 on n1; Python 3.13 on n2; ranks of one training should run the same"
    )
    broken = job(rank(0, syncopate_error="import syncopate.runtime: ImportError: no x"))
    assert lacking(broken.check_syncopate) == "on n1: import syncopate.runtime: ImportError: no x"
    assert lacking(job(rank(0, returnn_error="it has no torch"), rank(1)).check_returnn) == "on n1: it has no torch"


def test_time_left():
    assert job().check_time_left() == "squeue answers in the training python: 4:50 on n1, 4:50 on n2"
    silent = rank(1, time_left=None, time_left_error="there is no squeue on its PATH")
    assert "the worker has squeue, so if the training python enters a container" in lacking(
        job(rank(0), silent).check_time_left
    )
    assert "put its folder into PATH of DEFAULT_ENVIRONMENT_SET, or end settings.py with configure" in lacking(
        job(rank(0), silent, workers=[worker(0), worker(1, has_squeue=False)]).check_time_left
    )
