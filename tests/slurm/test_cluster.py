"""The cluster itself: what it promises to those who rehearse a sweep on it, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.slurm.conftest import PROGRAM

NODES = ["node1", "node2", "node3", "node4"]
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL")


def final_states(cluster, job_id):
    """Of the job and its steps, when accounting knows how they ended."""

    def look():
        states = cluster.sacct(job_id)
        return states if states and all(state.startswith(ENDED) for state in states.values()) else None

    return cluster.wait_for(f"end of job {job_id} in sacct", look)


def sleeping(cluster, job_id):
    """Those of its processes that sleep, and not those that started them."""
    return [each for each in cluster.processes(job_id) if Path(each.command.split()[0]).name == "sleep"]


def runs(pid):
    """An exit code that nobody has asked for is no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_up_where_it_is_up_says_so_and_changes_nothing(cluster):
    before = cluster.run(PROGRAM, "status")
    assert cluster.up() == f"cluster: is up in {cluster.folder}\n"
    assert cluster.run(PROGRAM, "status") == before
    assert {name: cluster.node_state(name) for name in NODES} == dict.fromkeys(NODES, "idle")


def test_the_environment_for_a_shell_is_enough_to_ask_the_cluster(cluster):
    script = f'eval "$({PROGRAM} env)"; squeue --noheader; sinfo --noheader --format="%P %l %D"; sacct --noheader >&2'
    environ = {"PATH": cluster.environ["PATH"], "SYNCOPATE_CLUSTER_DIR": str(cluster.folder)}
    done = subprocess.run(["bash", "-ec", script], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["main* 1-00:00:00 4", "short 5:00 4"]


def test_two_nodes_run_a_step_and_sacct_knows_how_it_ended(no_jobs, tmp_path):
    show = "echo $SLURMD_NODENAME $SLURM_PROCID $SLURM_STEP_NUM_NODES $CUDA_VISIBLE_DEVICES"
    job_id = no_jobs.submit(
        *("--nodes=2", "--ntasks=2", "--cpus-per-task=4", "--mem=3G", "--gres=gpu:2"),
        wrap=f"srun -o {tmp_path}/%t sh -c '{show}'",
    )
    states = final_states(no_jobs, job_id)
    assert states == {str(job_id): "COMPLETED", f"{job_id}.batch": "COMPLETED", f"{job_id}.0": "COMPLETED"}
    said = [(tmp_path / name).read_text().split() for name in ("0", "1")]
    assert [words[1:] for words in said] == [["0", "2", "0,1"], ["1", "2", "0,1"]]
    assert len({words[0] for words in said} & set(NODES)) == 2


def test_a_step_gets_the_cpus_of_its_tasks(no_jobs):
    """A node has 4 CPUs, of which this host may have only 2; half of them are other ones than the other half."""
    show = ["python3", "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]
    whole = no_jobs.run("srun", "--nodes=4", "--ntasks=4", "--cpus-per-task=4", *show).splitlines()
    assert [len(cpus.split()) for cpus in whole] == [min(4, os.cpu_count() or 0)] * 4
    first, second = no_jobs.run("srun", "--nodes=1", "--ntasks=2", "--cpus-per-task=2", *show).splitlines()
    assert first
    assert second
    assert not set(first.split()) & set(second.split())


def test_what_takes_more_memory_than_it_asked_for_is_killed(no_jobs):
    """OUT_OF_MEMORY comes of the kernel's control groups, which not every user may use."""
    layout = json.loads((no_jobs.folder / "cluster.json").read_text(encoding="utf-8"))
    take = "import time; taken = b'x' * (400 << 20); time.sleep(60)"
    job_id = no_jobs.submit("--mem=200M", wrap=f'srun python3 -c "{take}"')
    state = final_states(no_jobs, job_id)[f"{job_id}.0"]
    assert state == (f"CANCELLED by {os.getuid()}" if layout["memory_group"] is None else "OUT_OF_MEMORY")


def test_a_cancelled_job_leaves_no_process_and_other_processes_are_not_the_clusters(no_jobs):
    bystander = subprocess.Popen(["sleep", "60"], env=no_jobs.environ)
    try:
        job_id = no_jobs.submit("--nodes=2", "--ntasks=2", wrap="srun sleep 60")
        no_jobs.wait_for("step", lambda: {each.node for each in sleeping(no_jobs, job_id)} == {"node1", "node2"})
        assert bystander.pid not in [each.pid for each in no_jobs.processes()]
        no_jobs.run("scancel", str(job_id))
        no_jobs.wait_for("end of the processes", lambda: not no_jobs.processes(job_id))
        assert final_states(no_jobs, job_id)[str(job_id)].startswith("CANCELLED")
    finally:
        bystander.kill()
        bystander.wait()


def test_a_daemon_that_crashed_is_started_again_and_jobs_do_not_notice(no_jobs, tmp_path):
    done = tmp_path / "done"
    job_id = no_jobs.submit(f"--output={tmp_path}/batch", wrap=f"srun sh -c 'sleep 5; touch {done}'")
    no_jobs.wait_for("step", lambda: sleeping(no_jobs, job_id))
    pid = no_jobs.slurmd_pid("node1")
    no_jobs.kill_slurmd("node1")
    no_jobs.start_slurmd("node1")
    assert no_jobs.slurmd_pid("node1") != pid
    assert final_states(no_jobs, job_id)[str(job_id)] == "COMPLETED"
    assert done.exists()


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_job_is_ended_at_its_time_limit(no_jobs):
    """SLURM looks every 30 s, so a job has up to 90 s of its minute."""
    job_id = no_jobs.submit("--time=1", wrap="srun sleep 300")
    no_jobs.wait_for("end of the job", lambda: job_id not in no_jobs.squeue(), limit_s=180)
    assert final_states(no_jobs, job_id)[str(job_id)] == "TIMEOUT"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_job_whose_node_is_lost_starts_again(no_jobs, tmp_path):
    job_id = no_jobs.submit(
        *("--nodes=2", "--ntasks=2", "--open-mode=append"),
        wrap=f"srun -o {tmp_path}/%t sh -c 'echo restarts ${{SLURM_RESTART_COUNT:-0}}; sleep 300'",
    )
    outputs = [tmp_path / "0", tmp_path / "1"]
    no_jobs.wait_for("start", lambda: all(path.exists() and path.read_text() for path in outputs))
    left = sleeping(no_jobs, job_id)
    # Not the node of the batch script.
    lost = max(each.node for each in left)
    left = {each.pid for each in left if each.node == lost}
    try:
        no_jobs.kill_slurmd(lost)
        no_jobs.wait_for("loss of the node", lambda: no_jobs.node_state(lost) == "down*", limit_s=180)
        no_jobs.wait_for("requeue", lambda: no_jobs.squeue().get(job_id) == "PENDING")
        # It would wait two minutes.
        no_jobs.run("scontrol", "update", f"jobid={job_id}", "StartTime=now")
        no_jobs.wait_for("second start", lambda: all("restarts 1\n" in path.read_text() for path in outputs))
        assert [path.read_text().splitlines()[0] for path in outputs] == ["restarts 0"] * 2
        # Nobody could tell the tasks on the lost node.
        assert left <= {each.pid for each in no_jobs.processes(job_id)}
    finally:
        no_jobs.start_slurmd(lost)
    # Now it is told.
    no_jobs.wait_for("end of the tasks left", lambda: not left & {each.pid for each in no_jobs.processes()})
    assert no_jobs.node_state(lost) in ("idle", "mixed", "allocated")


def test_down_leaves_no_process_and_no_folder(make_cluster, tmp_path):
    """Also none of a job that left its parent, its session and its environment, and does not care for SIGTERM."""
    other = make_cluster()
    other.up()
    layout = json.loads((other.folder / "cluster.json").read_text(encoding="utf-8"))
    daemons = [int(path.read_text().split()[0]) for path in (other.folder / "pid").iterdir()]
    assert len(daemons) == 8
    empty = "" if layout["memory_group"] is None else "env -i"
    hide = f"(trap '' TERM; {empty} setsid sh -c 'echo $$ > {tmp_path}/hidden; exec sleep 300' >/dev/null 2>&1 &)"
    (tmp_path / "task").write_text(f"#!/bin/sh\n{hide}\nsleep 300\n")
    job_id = other.submit(wrap=f"srun sh {tmp_path}/task")
    other.submit("--begin=now+1hour", wrap="true")
    other.wait_for("hidden process", lambda: (tmp_path / "hidden").exists() and (tmp_path / "hidden").read_text())
    pids = [*daemons, *(each.pid for each in other.processes(job_id))]
    assert int((tmp_path / "hidden").read_text()) in pids
    assert other.down() == "cluster: down\n"
    assert [pid for pid in pids if runs(pid)] == []
    for path in (other.folder, layout["sockets"], layout["memory_group"] or other.folder):
        assert not os.path.exists(path)
    assert other.down() == f"cluster: there is none in {other.folder}\n"


def test_what_a_crash_left_is_cleaned_up_and_foreign_processes_are_not_touched(make_cluster):
    other = make_cluster()
    other.up()
    files = list((other.folder / "pid").iterdir())
    for file in files:
        os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        # Its id was that of a daemon once.
        file = other.folder / "pid" / "node1"
        file.write_text(f"{bystander.pid} {file.read_text().split()[1]}\n")
        said = other.up().splitlines()
        assert said[0] == f"cluster: nothing of that in {other.folder} runs; starting a new one"
        assert said[1].startswith(f"cluster: up in {other.folder} after ")
        assert other.run("srun", "--nodes=4", "hostname").count("\n") == 4
        other.down()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_daemon_that_does_not_start_is_shown_by_its_log_and_the_others_are_stopped(make_cluster, tmp_path):
    (tmp_path / "slurmctld").write_text("#!/bin/sh\necho no plugin here\nexit 3\n")
    (tmp_path / "slurmctld").chmod(0o755)
    other = make_cluster()
    other.environ["PATH"] = f"{tmp_path}:{other.environ['PATH']}"
    with pytest.raises(AssertionError, match=r"slurmctld ended.*\n  no plugin here\n"):
        other.up()
    with pytest.raises(AssertionError) as error:
        other.run(PROGRAM, "status")
    assert str(error.value).count("does not run") == 8


def test_missing_packages_are_named_in_one_line(tmp_path):
    program = tmp_path / "setups" / "loopback_slurm"
    shutil.copytree(PROGRAM.parent, program, ignore=shutil.ignore_patterns("__pycache__"))
    text = (program / "layout.py").read_text()
    assert text.count(":/usr/local/sbin:/usr/sbin:/sbin") == 1
    # Where these folders are those of this host, the programs are found.
    (program / "layout.py").write_text(text.replace(":/usr/local/sbin:/usr/sbin:/sbin", ""))
    (tmp_path / "python3").symlink_to(shutil.which("python3", path="/usr/bin") or shutil.which("python3"))
    done = subprocess.run(
        [str(tmp_path / "python3"), str(program / "cluster"), "up"],
        env={"PATH": str(tmp_path), "SYNCOPATE_CLUSTER_DIR": str(tmp_path / "cluster")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    install = "apt-get install slurm-wlm munge slurmdbd mariadb-server"
    assert (done.returncode, done.stderr) == (1, f"cluster: there is no munged; install it by: {install}\n")
    assert not (tmp_path / "cluster").exists()


@pytest.mark.needs_sisyphus
def test_the_settings_name_the_cluster_or_say_that_there_is_none(cluster, setup_folder, python, tmp_path):
    show = "import os, sisyphus.global_settings as gs; print(os.environ['SLURM_CONF'], gs.DEFAULT_ENVIRONMENT_SET)"
    environ = {name: cluster.environ[name] for name in ("SYNCOPATE_SETUP", "SYNCOPATE_CLUSTER_DIR")}
    said = python(show, cwd=setup_folder, env=environ).stdout
    assert said.startswith(f"{cluster.folder}/slurm.conf ")
    assert "'SYNCOPATE_MEETING_HOST': '127.0.0.1'" in said
    none = {**environ, "SYNCOPATE_CLUSTER_DIR": str(tmp_path / "none")}
    done = python(show, cwd=setup_folder, env=none, check=False)
    assert (done.returncode, done.stderr) == (1, f"there is no cluster in {tmp_path}/none: run make cluster-up\n")


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_folder_of_something_else_is_left_alone(make_cluster, tmp_path, command):
    del make_cluster  # It skips where SLURM is not installed.
    (tmp_path / "thesis.tex").touch()
    done = subprocess.run(
        [PROGRAM, command],
        env={**os.environ, "SYNCOPATE_CLUSTER_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"cluster: {'the folder ' if command == 'down' else ''}{tmp_path} ")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["thesis.tex"]


def test_the_makefile_starts_and_stops_it(make_cluster):
    made = make_cluster()
    repository = PROGRAM.parents[2]
    assert "up in" in made.run("make", "--silent", "cluster-up", cwd=repository)
    assert made.run("sinfo", "--noheader", "--format=%D", "--partition=main").strip() == "4"
    made.run("make", "--silent", "cluster-down", cwd=repository)
    assert not made.folder.exists()
