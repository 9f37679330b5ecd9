"""What runs and waits in Slurm: which GPUs each job has or may get, and what it is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import replay
from clusters import gpu_node

from predictor.errors import ArtifactError
from predictor.site.calibration.site_state import SiteState, read_state, write_state
from predictor.site.capacity.jobs import UNKNOWN
from predictor.site.capacity.live import Live, LiveJob
from predictor.site.replay import Pool
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd
from predictor.site.similar.request import JobRequest
from slurm_plugin.cluster import GpuGres, SlurmJob, SlurmNode
from slurm_plugin.config import Slurm, SlurmHardware, SlurmPolicy
from slurm_plugin.live_queue import Places, etas, read
from slurm_plugin.mark import JobMark
from slurm_plugin.sources.choose import open_source

A100, V100, P100 = "a100-sxm4-80gb", "v100-sxm2-16gb", "p100-pcie-16gb"
NODES = tuple(gpu_node(name) for name in ("a1", "a2", "p1", "v1"))
JOB = SlurmJob(
    job_id=1, user="u1", name="train", state="PENDING", partitions=("gpu",), gpus=2, label="1"
)
VERSIONS = ("2205", "2511", "2605")


def places(*nodes: SlurmNode, **hardware: object) -> Places:
    return Places(nodes or NODES, SlurmHardware(**hardware))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, None),
        ({"gpu_type": "v100"}, V100),
        ({"features": "volta"}, V100),
        ({"features": "ampere|volta"}, None),
        ({"gpu_type": "unheard-of"}, "unheard-of"),
        ({"state": "RUNNING", "node_names": ("p1",)}, P100),
        ({"state": "RUNNING", "node_names": ("gone",), "gpu_type": "a100"}, A100),
    ],
)
def test_the_type_is_told_where_only_one_will_do(
    asked: dict[str, object], expected: str | None
) -> None:
    job = replace(JOB, **asked)  # type: ignore[arg-type]
    assert places().gpu_type(job) == expected


def test_a_partition_may_leave_one_type() -> None:
    only = replace(JOB, partitions=("pascal",))
    assert places(*NODES, gpu_node("p9", partitions=("pascal",))).gpu_type(only) == P100


def test_nodes_that_are_down_take_nothing() -> None:
    down = gpu_node("v1", states=frozenset({"DOWN"}))
    assert [place.node.name for place in places(down, gpu_node("a1")).usable] == ["a1"]


def test_gpus_that_we_do_not_know_keep_the_name_that_slurm_has() -> None:
    found = places(gpu_node("a1", gpus=(GpuGres("homemade", 2),), features=frozenset())).usable
    assert [(place.name, place.count) for place in found] == [("homemade", 2)]
    found = places(gpu_node("a1", gpus=(GpuGres(None, 4),), features=frozenset())).usable
    assert [place.name for place in found] == [UNKNOWN], "as the jobs that ran on them"


def test_a_type_that_means_several_gpus_is_the_one_there_is_most_of() -> None:
    names = {"a1": "a100-sxm4-40gb"}
    found = places(*NODES, gpu_node("a3"), node_gpus=names)
    assert found.gpu_type(replace(JOB, gpu_type="a100")) == A100


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue_of_a_real_slurm_is_there(tmp_path: Path, version: str) -> None:
    commands = replay.commands(tmp_path, replay.PAYLOADS / version)
    policy = SlurmPolicy(slurm=Slurm(bin_dir=commands, source="text"))
    source, found = open_source(policy.slurm), read(policy)
    assert (found.scheduler, found.cluster) == ("slurm", source.settings().cluster_name)
    theirs = {job.label: job for job in source.queue() if job.gpus}
    assert {job.job_id for job in found.jobs} == theirs.keys()
    for job in found.jobs:
        told = theirs[job.job_id]
        assert (job.start_s is None) == (told.state == "PENDING")
        assert (job.request.gpus, job.priority, job.held) == (told.gpus, told.priority, told.held)
        assert job.limit_s == (None if told.limit_min is None else 60 * told.limit_min)
    assert all(isinstance(pool, Pool) for pool in found.pools)
    assert sum(pool.gpus for pool in found.pools) > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads as another user")
def test_root_reads_what_the_daemon_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home is the daemon's, whose user needs no name; what a third one put there is refused."""
    daemon, memory = 64_999, SiteMemory()
    request = JobRequest(user="ada", gpus=1, name="train")
    done = RunEnd.COMPLETED
    memory.add(PastRun(request=request, submit_s=0.0, end_s=60.0, run_s=60.0, ended=done, batch=""))
    with TemporaryDirectory() as name:
        monkeypatch.setenv("PRECISION_TIME_HOME", name)
        Path(name).chmod(0o755)
        path = write_state(SiteState((), memory))
        for one in (Path(name), *Path(name).iterdir()):
            os.chown(one, daemon, -1)
        assert len(read_state().memory.runs()) == 1
        os.chown(path, daemon - 1, -1)
        with pytest.raises(ArtifactError, match="belongs to user"):
            read_state()


def test_what_was_told_at_submit_has_a_range_that_what_has_run_moves() -> None:
    mark = JobMark(steps_s=(5000.0, 6500.0, 7200.0, 8000.0, 14_400.0)).text()
    job = LiveJob(
        job_id="1",
        request=JobRequest(user="u1", name="train", partition="gpu", gpus=1, gpu_type=A100),
        submit_s=0.0,
        start_s=0.0,
        limit_s=86_400.0,
    )
    record = replace(JOB, admin_comment=mark, state="RUNNING")
    ends = []
    for now_s in (0.0, 7200.0, 30_000.0):
        live = Live(scheduler="slurm", cluster="c", at_s=now_s, jobs=(job,), pools=())
        (eta,) = etas(live, [record], SiteMemory())
        assert (eta.basis, eta.state) == ("physics", "R")
        assert eta.end is not None
        assert now_s < eta.end.low_s < eta.end.expected_s <= eta.end.high_s <= 86_400
        ends.append(eta.end.expected_s)
    assert ends == sorted(ends)
    assert ends[0] == pytest.approx(7200.0, rel=1e-3)


def test_a_guess_at_submit_is_not_called_more_than_what_it_rests_on() -> None:
    """Without physics the mark holds a share of the limit, at a site where nothing was learned."""
    mark = JobMark(expected_s=3600.0, upper_s=40_000.0).text()
    record = replace(JOB, admin_comment=mark)
    for limit_s, basis in ((36_000.0, "limit"), (None, "nothing known")):
        request = JobRequest(user="u1", gpus=1, gpu_type=A100, limit_s=limit_s)
        job = LiveJob(job_id="1", request=request, submit_s=0.0, start_s=None, limit_s=limit_s)
        pool = Pool(name=A100, gpus=4)
        live = Live(scheduler="slurm", cluster="c", at_s=0.0, jobs=(job,), pools=(pool,))
        (eta,) = etas(live, [record], SiteMemory())
        assert (eta.basis, eta.state) == (basis, "PD")


def test_jobs_that_run_long_tell_those_of_their_like_more_than_the_few_that_ended() -> None:
    """Of jobs submitted together the short ones end first: alone they say nothing of the rest."""
    mine = JobRequest(user="u1", name="sweep", gpus=1, gpu_type=A100, limit_s=86_400.0)
    theirs = replace(mine, user="u2", name="other")
    waits = LiveJob(job_id="0", request=mine, submit_s=0.0, start_s=None, limit_s=86_400.0)
    failed = PastRun.cut_off(mine.without_names(), 0.0, 0.0, 60.0)

    def last_starts_s(runs: JobRequest) -> float:
        memory = SiteMemory()
        for _ in range(3):
            memory.add(replace(failed, ended=RunEnd.STOPPED))
        begun = [replace(waits, job_id=f"r{n}", request=runs, start_s=600.0) for n in range(4)]
        queue = [replace(waits, job_id=str(n), submit_s=float(n)) for n in range(9)]
        jobs, pool = (*begun, *queue), Pool(name=A100, gpus=4)
        live = Live(scheduler="slurm", cluster="c", at_s=36_000.0, jobs=jobs, pools=(pool,))
        start = next(eta for eta in etas(live, (), memory) if eta.job_id == "8").start
        assert start is not None
        return start.expected_s

    assert last_starts_s(mine) > last_starts_s(theirs) + 3600.0
