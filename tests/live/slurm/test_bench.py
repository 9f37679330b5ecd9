"""The bench keeps its own promises, or nothing that is shown on it counts."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from .cluster import SlurmCluster
from .installation import Installation
from .processes import BenchError, processes_of
from .tables import NODES, Bench, NodeSpec, PartitionSpec

SMALL = Bench(
    nodes=(NodeSpec("n1", "a100", 2),),
    partitions=(PartitionSpec("only", ("n1",), default=True),),
    accounting=False,
)
GREETING = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
    job_desc.admin_comment = "greeted"
    slurm.log_user("%s", "good morning")
    return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
"""


def test_every_node_is_idle(slurm: SlurmCluster) -> None:
    assert slurm.node_states() == {node.name: "idle" for node in NODES}


@pytest.mark.parametrize("gpu_type", ["a100", "v100", "p100"])
def test_a_gpu_job_of_an_ordinary_user_runs_on_a_node_of_its_type(
    bench: SlurmCluster, user: str | None, gpu_type: str
) -> None:
    output = bench.work / f"{gpu_type}.out"
    output.touch()
    output.chmod(0o666)
    script = '#!/bin/sh\necho "$SLURMD_NODENAME"\n'
    asked = (f"--gres=gpu:{gpu_type}:2", f"--output={output}")
    job = bench.wait(bench.submit(*asked, script=script, user=user).job_id)
    assert job["JobState"] == "COMPLETED"
    assert f"gres/gpu:{gpu_type}=2" in job.get("AllocTRES", job.get("TRES", ""))
    assert output.read_text().split() == [f"{gpu_type[0]}1"]


def test_the_time_limits_of_the_partitions_hold(bench: SlurmCluster) -> None:
    limits = {
        partition: bench.job(bench.submit("--hold", f"--partition={partition}").job_id)["TimeLimit"]
        for partition in ("gpu", "short", "nolimit")
    }
    assert limits == {"gpu": "1-00:00:00", "short": "00:10:00", "nolimit": "UNLIMITED"}


def test_srun_and_salloc_run_steps_on_several_nodes(bench: SlurmCluster, user: str | None) -> None:
    step = ("srun", "printenv", "SLURMD_NODENAME")
    for command in (("srun", "-N3", *step[1:]), ("salloc", "-N3", *step)):
        done = bench.run(*command, user=user)
        assert len(set(done.stdout.split())) == 3, done


def test_accounting_has_the_job_with_its_comment_and_gpus(
    bench: SlurmCluster, user: str | None
) -> None:
    comment = "model=resnet50 Precision=amp"
    job_id = bench.submit("--gres=gpu:v100:2", f"--comment={comment}", user=user).job_id
    assert bench.wait(job_id)["Comment"] == comment
    recorded = bench.sacct(job_id, "state", "comment", "alloctres", "nodelist")
    assert recorded["state"] == "COMPLETED"
    assert recorded["comment"] == comment
    assert "gres/gpu:v100=2" in recorded["alloctres"].split(",")
    assert recorded["nodelist"] == "v1"


def test_a_changed_hook_is_in_force_at_the_next_submit(
    bench: SlurmCluster, user: str | None
) -> None:
    before = bench.submit("--hold", user=user)
    bench.set_hook(GREETING)
    after = bench.submit("--hold", user=user)
    assert before.messages == ()
    assert after.messages == ("sbatch: good morning",)
    assert bench.job(after.job_id)["AdminComment"] == "greeted"


def test_a_restarted_controller_knows_its_jobs(bench: SlurmCluster) -> None:
    job_id = bench.submit("--hold", "--comment=kept").job_id
    bench.restart_controller()
    assert bench.job(job_id)["Comment"] == "kept"


def test_reconfigure_takes_new_lines(installation: Installation) -> None:
    with SlurmCluster(installation, SMALL) as cluster:
        cluster.reconfigure("EnforcePartLimits=ALL")
        told = "EnforcePartLimits       = ALL"  # newer Slurms start anew for it
        cluster.wait_until(lambda: told in cluster.run("scontrol", "show", "config").stdout)
        assert cluster.wait(cluster.submit("--gres=gpu:1").job_id)["JobState"] == "COMPLETED"


def test_two_benches_run_side_by_side(installation: Installation) -> None:
    with SlurmCluster(installation, SMALL) as one, SlurmCluster(installation, SMALL) as other:
        job_id = one.submit("--hold", "--comment=of one").job_id
        assert other.submit("--hold").job_id == job_id
        assert one.job(job_id)["Comment"] == "of one"
        assert "Comment" not in other.job(job_id)


def test_stop_leaves_no_process_though_a_job_runs(installation: Installation) -> None:
    with SlurmCluster(installation, SMALL) as cluster:
        script = "#!/bin/sh\nsleep 600 & setsid sleep 600 & wait\n"
        cluster.wait(cluster.submit(script=script).job_id, ["RUNNING"])
        cluster.wait_until(
            lambda: sum("sleep 600" in process for process in processes_of(cluster.root)) == 2
        )
    assert processes_of(cluster.root) == []
    assert not cluster.root.exists()


def test_a_controller_that_does_not_start_says_why(installation: Installation) -> None:
    bench = Bench(nodes=SMALL.nodes, partitions=SMALL.partitions, accounting=False, hook="not Lua")
    with pytest.raises(BenchError, match=r"(?s)slurmctld ended .*job_submit\.lua"):
        SlurmCluster(installation, bench).__enter__()


def test_daemons_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    supervisor = Path(__file__).with_name("supervisor.py")
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(supervisor), str(tmp_path)], stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"started\n"
    assert any("sleep" in process for process in processes_of(tmp_path))
    starter.kill()
    starter.communicate()
    deadline = time.monotonic() + 60
    while left := processes_of(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


_STARTER = """\
import os, subprocess, sys, time
supervisor, mark = sys.argv[1:]
subprocess.Popen(
    [sys.executable, supervisor, "1", "sh", "-c", "sleep 600 & echo started; wait"],
    stdin=subprocess.PIPE, env={**os.environ, "MARK": mark},
)
time.sleep(600)
"""
