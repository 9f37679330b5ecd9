"""Facts: every split and the slots of time add up to the same hours, all inside the period."""

from __future__ import annotations

from typing import Any

import pytest
from capacity_jobs import DAY_S, START_S, frame, job, many_jobs
from hypothesis import given
from hypothesis import strategies as st

from predictor.estimate.store import load_predictor
from predictor.site.capacity import facts
from predictor.site.capacity.facts import idle_while_waiting, use
from predictor.site.capacity.jobs import JobSource, PeriodJobs, jobs_of, peak_gpus
from predictor.site.capacity.report import make_report
from predictor.site.capacity.report_data import Dimension
from predictor.site.history.ingest import Period

HOUR_S = 3600.0
WEEK = Period(since_s=START_S, until_s=START_S + 4 * DAY_S)


def in_week(*jobs: dict[str, Any], period: Period = WEEK) -> PeriodJobs:
    return jobs_of(frame(jobs), period)


@given(many_jobs(), st.floats(0, 3 * DAY_S), st.floats(HOUR_S, 5 * DAY_S))
def test_parts_add_up_to_the_whole_by_every_split(
    jobs: list[dict[str, Any]], after_s: float, length_s: float
) -> None:
    period = Period(since_s=START_S + after_s, until_s=START_S + after_s + length_s)
    found = in_week(*jobs, period=period)
    whole = facts.hours_of(found.table).allocated
    for shares in facts.splits(found, {}).values():
        assert sum(share.hours.allocated for share in shares) == pytest.approx(whole)
        assert sum(share.jobs for share in shares) == found.table.height
    slots = use(found, gpus=None)
    assert sum(slot.hours.allocated for slot in slots) == pytest.approx(whole, abs=1e-6)


@given(many_jobs(), st.floats(HOUR_S, 5 * DAY_S))
def test_no_job_counts_outside_the_period(jobs: list[dict[str, Any]], length_s: float) -> None:
    period = Period(since_s=START_S, until_s=START_S + length_s)
    table = in_week(*jobs, period=period).table
    assert (table["begin_s"] >= period.since_s).all()
    assert (table["finish_s"] >= table["begin_s"]).all()
    assert (table["finish_s"] <= period.until_s).all()
    assert (table["hours"] <= table["gpus"] * period.hours + 1e-9).all()


@given(many_jobs(), st.floats(0, 4 * DAY_S))
def test_two_halves_of_a_period_hold_the_hours_of_the_whole(
    jobs: list[dict[str, Any]], cut_s: float
) -> None:
    ended = [one for one in jobs if one["state"] != "running"]
    middle = START_S + cut_s
    halves = (
        Period(since_s=WEEK.since_s, until_s=middle),
        Period(since_s=middle, until_s=WEEK.until_s),
    )
    parts = [facts.hours_of(in_week(*ended, period=half).table).allocated for half in halves]
    whole = facts.hours_of(in_week(*ended).table).allocated
    assert sum(parts) == pytest.approx(whole)


@given(many_jobs())
def test_every_job_is_counted_or_set_aside(jobs: list[dict[str, Any]]) -> None:
    found = in_week(*jobs)
    touching = [j for j in jobs if j["end_s"] > WEEK.since_s and j["submit_s"] < WEEK.until_s]
    later = [j for j in touching if j["gpus"] >= 1 and j["start_s"] >= WEEK.until_s]
    counted = found.table.height + sum(aside.jobs for aside in found.set_aside)
    assert counted == len(touching) - len(later)


@given(many_jobs())
def test_no_more_gpus_are_needed_at_once_than_were_in_use(jobs: list[dict[str, Any]]) -> None:
    table = in_week(*jobs).table
    for name, most in peak_gpus(table).items():
        hours = float(table.filter(table["gpu_type"] == name)["hours"].sum())
        assert hours <= most * WEEK.hours + 1e-6


def test_an_empty_history_has_no_hours_and_no_waits() -> None:
    found = in_week()
    assert facts.hours_of(found.table).allocated == 0
    assert facts.waits(found) == facts.limits(found) == facts.predictions(found) == ()


def test_a_job_across_the_edge_counts_with_what_lies_inside() -> None:
    begins = START_S - 2 * HOUR_S
    found = in_week(job(submit_s=begins, start_s=begins, end_s=START_S + HOUR_S, gpus=4))
    assert facts.hours_of(found.table).completed == pytest.approx(4)


def test_a_job_that_outlives_the_period_counts_as_running() -> None:
    found = in_week(job(end_s=WEEK.until_s + 5, state="failed"))
    assert facts.hours_of(found.table).running == pytest.approx(WEEK.hours)


def test_a_job_still_running_without_an_end_counts_to_the_end_of_the_period() -> None:
    found = in_week(job(end_s=None, state="running"))
    assert facts.hours_of(found.table).running == pytest.approx(WEEK.hours)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"start_s": START_S + 9, "end_s": START_S + 5}, "it ends before it starts"),
        ({"start_s": START_S - 5}, "it starts before it was submitted"),
        ({"start_s": None}, "it never started"),
        ({"gpus": 0}, "it asked for no GPU"),
    ],
)
def test_a_job_that_makes_no_sense_is_set_aside_with_its_reason(
    values: dict[str, Any], reason: str
) -> None:
    found = in_week(job(job_id="odd", **values), job(job_id="good"))
    assert found.table["job_id"].to_list() == ["good"]
    assert [aside.example for aside in found.set_aside] == ["odd"]
    assert found.set_aside[0].reason.startswith(reason)


def test_the_accuracy_of_limits_is_wall_time_over_requested_time() -> None:
    unlimited = job(job_id="3", limit_s=None)
    found = facts.limits(in_week(job(job_id="1"), job(job_id="2", limit_s=10_800.0), unlimited))
    assert found[0].jobs == 3
    assert found[0].accuracy == pytest.approx(7200 / 18_000)
    assert found[0].unused_gpu_hours == pytest.approx(1 + 2)


def test_killed_jobs_are_counted_with_what_they_used() -> None:
    [limits] = facts.limits(in_week(job(state="timeout", gpus=2)))
    assert (limits.killed, limits.killed_gpu_hours) == (1, pytest.approx(2))


def test_full_precision_on_tensor_cores_is_settings_of_type() -> None:
    found = facts.tensor_cores(
        in_week(job(precision="fp32"), job(job_id="2", precision="mixed_fp16_fp32", gpus=3))
    )
    assert [(one.gpu_type, one.fp32_hours, one.low_precision_hours) for one in found] == [
        ("v100-sxm2-16gb", pytest.approx(1), pytest.approx(3))
    ]


def test_a_wait_counts_where_the_job_started() -> None:
    late = job(submit_s=START_S - DAY_S, start_s=START_S + 60, end_s=START_S + 90, gpus=8)
    [wait] = facts.waits(in_week(late))
    assert (wait.size, wait.jobs, wait.median_s) == ("5-8", 1, DAY_S + 60)


def test_what_was_reserved_and_not_used_is_settings_of_every_split() -> None:
    found = in_week(
        job(job_id="1", gpus=4, limit_s=3 * HOUR_S),
        job(job_id="2", user="bob", state="failed"),
        job(job_id="3", limit_s=None),
    )
    for shares in facts.splits(found, {}).values():
        assert sum(share.unused_gpu_hours for share in shares) == pytest.approx(4 * 2)
    users = {s.key: s.unused_gpu_hours for s in facts.splits(found, {})[Dimension.USER]}
    assert users["bob"] == 0


def test_idle_hours_are_settings_of_type_and_only_where_its_number_is_known() -> None:
    found = facts.splits(in_week(job(gpus=2)), {"v100-sxm2-16gb": 3, "h100": 1})
    v100, h100 = found[Dimension.GPU_TYPE]
    assert v100.idle_gpu_hours == pytest.approx(3 * WEEK.hours - 2)
    assert (h100.key, h100.jobs, h100.idle_gpu_hours) == ("h100", 0, pytest.approx(WEEK.hours))
    [unknown] = facts.splits(in_week(job(gpus=2)), {})[Dimension.GPU_TYPE]
    assert unknown.idle_gpu_hours is None
    assert all(share.idle_gpu_hours is None for share in found[Dimension.USER])


def test_idle_while_waited_for_is_of_the_same_type_and_no_more_than_was_wanted() -> None:
    late = job(job_id="1", gpus=3, start_s=START_S + 2 * HOUR_S, end_s=START_S + 3 * HOUR_S)
    other = job(job_id="2", gpus=1, gpu_type="a100-sxm4-80gb", end_s=START_S + 9 * HOUR_S)
    found = idle_while_waiting(in_week(late, other), {"v100-sxm2-16gb": 8, "a100-sxm4-80gb": 8})
    assert found == {"v100-sxm2-16gb": pytest.approx(6), "a100-sxm4-80gb": 0}


def test_the_accuracy_of_all_limits_is_not_the_mean_of_its_parts() -> None:
    source = JobSource(
        frame=frame([job(job_id="1"), job(job_id="2", limit_by="default", limit_s=36_000.0)]),
        kind="file",
        name="x",
    )
    report = make_report(source, WEEK, load_predictor())
    assert report.wall_time_accuracy == pytest.approx(2 / 12)
