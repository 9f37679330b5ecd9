"""An accounting table made of twenty traps, against sums written by hand."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from capacity_jobs import DAY_S, START_S

from predictor.estimate.store import load_predictor
from predictor.site.capacity.forecast import daily
from predictor.site.capacity.jobs import of_file
from predictor.site.capacity.queue import queue_at
from predictor.site.capacity.report import Wanted, make_report
from predictor.site.capacity.report_data import CapacityReport, Dimension, GpuHours
from predictor.site.history.ingest import Period
from predictor.site.replay import Pool
from predictor.site.similar.estimate import estimate_job
from predictor.site.similar.memory import SiteMemory

PERIOD = Period(since_s=START_S, until_s=START_S + DAY_S)  # 2025-01-06, UTC
HEAD = "JobID|User|Account|Partition|AllocTRES|State|Submit|Start|End|Timelimit"
# Each line is a trap, with what it comes to in GPU-hours of the day; @ is a time of that day.
LINES = (
    # 1 unknown state: 2 GPUs x 1 h
    "1|ada|lab|gpu|gres/gpu:h100=2|MELTED|@00:00|@01:00|@02:00|02:00:00",
    # 2 no state: 1 x 1 h
    "2|ada|lab|gpu|gres/gpu:h100=1||@00:00|@01:00|@02:00|02:00:00",
    # 3, 4, 5 three names of one GPU: 1 x 1 h, 2 x 1 h, 4 x 1 h
    "3|ada|lab|gpu|gres/gpu:H100-SXM=1|COMPLETED|@00:00|@01:00|@02:00|02:00:00",
    "4|ada|lab|gpu|gres/gpu:nvidia_h100_80gb_hbm3=2|COMPLETED|@00:00|@01:00|@02:00|02:00:00",
    "5|ada|lab|gpu|gres/gpu=4,gres/gpu:h100=4|COMPLETED|@00:00|@01:00|@02:00|02:00:00",
    # 6 another zone, the same hour: 1 x 1 h
    "6|bob|lab|gpu|gres/gpu:a100=1|COMPLETED|@00:00|2025-01-06T02:00:00+01:00|2025-01-06T02:00:00+00:00|",
    # 7 times as numbers: 1 x 1 h
    "7|bob|lab|gpu|gres/gpu:a100=1|COMPLETED|1736121600|1736125200|1736128800|02:00:00",
    # 8, 9 tasks of an array, each counts: 2 x (1 x 1 h)
    "8_0|bob|lab|gpu|gres/gpu:a100=1|FAILED|@00:00|@01:00|@02:00|02:00:00",
    "8_1|bob|lab|gpu|gres/gpu:a100=1|FAILED|@00:00|@01:00|@02:00|02:00:00",
    # 10 a step of a job: nothing
    "5.batch|||gpu|gres/gpu=4|COMPLETED|@00:00|@01:00|@02:00|",
    # 11, 12 a requeued job has two records: 2 x (1 h + 3 h)
    "11|eve|lab|gpu|gres/gpu:a100=2|REQUEUED|@00:00|@01:00|@02:00|04:00:00",
    "11|eve|lab|gpu|gres/gpu:a100=2|TIMEOUT|@02:00|@03:00|@06:00|03:00:00",
    # 13 the same record again: nothing
    "11|eve|lab|gpu|gres/gpu:a100=2|TIMEOUT|@02:00|@03:00|@06:00|03:00:00",
    # 14 no user and no account: 1 x 1 h
    "14|||gpu|gres/gpu:a100=1|CANCELLED by 1000|@00:00|@01:00|@02:00|",
    # 15 it ends before it starts: nothing
    "15|bob|lab|gpu|gres/gpu:a100=1|COMPLETED|@00:00|@05:00|@02:00|",
    # 16 it starts long before it was submitted: nothing
    "16|bob|lab|gpu|gres/gpu:a100=1|COMPLETED|@04:00|@01:00|@06:00|",
    # 17 cancelled before it started: nothing
    "17|bob|lab|gpu|gres/gpu:a100=1|CANCELLED|@00:00|Unknown|@02:00|",
    # 18 no GPU: nothing
    "18|bob|lab|cpu|cpu=64|COMPLETED|@00:00|@01:00|@02:00|",
    # 19 across midnight, 1 h of it inside, without a limit: 1 x 1 h
    "19|bob|lab|gpu|gres/gpu:a100=1|OUT_OF_MEMORY|2025-01-05T20:00:00Z|2025-01-05T22:00:00Z|@01:00|UNLIMITED",
    # 20 a GPU that nobody knows: 1 x 1 h
    "20|bob|lab|gpu|gres/gpu:homemade-9000=1|PREEMPTED|@00:00|@01:00|@02:00|",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> CapacityReport:
    path = tmp_path_factory.mktemp("traps") / "sacct.csv"
    lines = (re.sub(r"@(\d\d:\d\d)", r"2025-01-06T\1:00Z", line) for line in LINES)
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    pools = (Pool(name="h100-sxm5-80gb", gpus=8),)
    return make_report(of_file(path), PERIOD, load_predictor(), Wanted(pools=pools))


def test_the_sums_are_those_written_by_hand(report: CapacityReport) -> None:
    assert report.hours == GpuHours(
        completed=1 + 2 + 4 + 1 + 1,
        failed=1 + 1 + 1,  # two tasks of an array, and memory that ran out
        timed_out=6,
        cancelled=1,
        preempted=2 + 1,  # the first run of the requeued job, and a preempted one
        unknown=2 + 1,
    )
    assert report.origin.jobs == 14


def test_a_gpu_has_one_name_and_one_that_nobody_knows_keeps_its_own(report: CapacityReport) -> None:
    types = {one.key: one.hours.allocated for one in report.splits[Dimension.GPU_TYPE]}
    assert types == {"h100-sxm5-80gb": 10, "a100-sxm4-80gb": 14, "homemade-9000": 1}


def test_users_have_what_is_theirs_and_nobody_is_unknown(report: CapacityReport) -> None:
    users = {one.key: one.hours.allocated for one in report.splits[Dimension.USER]}
    assert users == {"ada": 10, "bob": 1 + 1 + 2 + 1 + 1, "eve": 8, "unknown": 1}


def test_what_is_left_out_is_told_with_its_reason(report: CapacityReport) -> None:
    assert {one.reason: one.jobs for one in report.origin.set_aside} == {
        "a step of a job": 1,
        "ends before it starts": 1,
        "it never started": 1,
        "starts before it was submitted": 1,
        "the same record again": 1,
        "without GPUs": 1,
    }


def test_losses_are_by_user_account_and_state(report: CapacityReport) -> None:
    found = {(one.user, one.account, one.state): (one.jobs, one.gpu_hours) for one in report.losses}
    assert found == {
        ("eve", "lab", "timeout"): (1, 6),
        ("ada", "lab", "unknown"): (2, 3),
        ("bob", "lab", "failed"): (2, 2),
        ("eve", "lab", "requeued"): (1, 2),
        ("bob", "lab", "out_of_memory"): (1, 1),
        ("bob", "lab", "preempted"): (1, 1),
        ("unknown", "unknown", "cancelled"): (1, 1),
    }


def test_waiting_is_split_by_what_caused_it(report: CapacityReport) -> None:
    found = {one.cause: (one.jobs, one.gpu_hours) for one in report.wait_causes}
    # All H100 jobs wait from 0:00 to 1:00, all eight free; of other types nothing is known.
    assert found["free"] == (5, pytest.approx(2 + 1 + 1 + 2 + 4))
    assert "taken" not in found
    assert found["unknown"][1] == pytest.approx(1 + 1 + 2 + 2 + 2 + 1 + 1)


def test_epoch_and_iso_times_of_a_history_are_alike(tmp_path: Path) -> None:
    head = "job_id,submit_s,start_s,end_s,gpus,gpu_type\n"
    path = tmp_path / "jobs.csv"
    path.write_text(
        head
        + f"1,{START_S},{START_S},{START_S + 3600},2,H100\n"
        + f"2,{1000 * START_S:.0f},{1000 * START_S:.0f},{1000 * START_S + 3.6e6:.0f},2,h100\n"
        + "3,2025-01-06T00:00:00Z,2025-01-06T00:00:00Z,2025-01-06T01:00:00+00:00,2,h100\n"
        + "4,2025-01-06T00:00:00Z,soon,later,2,h100\n"
        + "5,2025-01-06T00:00:00Z,Unknown,Unknown,2,h100\n"
    )
    found = make_report(of_file(path), PERIOD, load_predictor())
    assert found.hours.unknown == pytest.approx(6)  # no column tells a state
    assert [one.key for one in found.splits[Dimension.GPU_TYPE]] == ["h100-sxm5-80gb"]
    assert [one.reason for one in found.origin.set_aside] == ["a time of it cannot be read"]
    source = of_file(path)
    assert [one.job_id for one in queue_at(source, PERIOD.until_s).jobs] == ["5"]
    later_s = PERIOD.until_s + 14 * DAY_S
    estimate = partial(estimate_job, memory=SiteMemory())
    later = daily(source.frame, later_s, estimate)
    assert later["hours"].is_finite().all()
