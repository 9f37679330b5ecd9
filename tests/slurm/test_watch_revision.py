"""What `watch` may do to a limit, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from predictor.site.step_rate import StepReport
from slurm_plugin.cluster import SlurmJob
from slurm_plugin.config import SlurmLimits, SlurmPolicy, Watch
from slurm_plugin.limit import Bounds
from slurm_plugin.mark import JobMark, parse_mark
from slurm_plugin.watch.revision import TRIM_MIN, TRIM_SHARE, Revision, objection, revise

START_S = 1_700_000_000.0
HOUR_S = 3600.0
FREE = Bounds(floor_min=1, cap_min=None)
MARK = JobMark(limit=240, p50_s=9000.0, hi_s=12000.0, q=0.95, gpu="a100-sxm4-80gb", job="model=x")
JOB = SlurmJob(
    job_id=123,
    label="123",
    user="ann",
    name="train",
    state="RUNNING",
    partitions=("gpu",),
    start_s=START_S,
    limit_min=240,
    admin_comment=MARK.text(),
)
BOTH = SlurmPolicy(watch=Watch(mode="apply", trim=True))


def report(
    done: int, total: int, step_s: float, *, at_s: float = 2 * HOUR_S, **said: Any
) -> StepReport:
    return StepReport(
        step=done,
        total_steps=total,
        step_s=step_s,
        written_s=START_S + at_s,
        **{"job_id": "123", **said},
    )


def revised(
    said: StepReport,
    *,
    job: SlurmJob = JOB,
    mark: JobMark = MARK,
    policy: SlurmPolicy = BOTH,
    within: Bounds = FREE,
    at_s: float = 2 * HOUR_S,
) -> Revision | None:
    return revise(job, mark, said, policy, START_S + at_s, within)


def test_a_job_that_will_not_make_it_gets_a_longer_limit() -> None:
    found = revised(report(5000, 11000, 1.44))  # 2 h 24 min of steps to come
    assert found is not None
    # 120 + 144 x (1 + 0.1 + 0.02) + 10 minutes, rounded up to 5
    assert (found.kind, found.limit_min) == ("extend", 295)
    assert found.needed_min == pytest.approx(120 + 144 * 1.12 + 10)


def test_a_job_that_is_on_time_keeps_its_limit() -> None:
    assert revised(report(5000, 9000, 1.44)) is None


def test_what_was_set_at_submit_stays_known_after_an_extension() -> None:
    first = revised(report(5000, 11000, 1.44))
    assert first is not None
    assert parse_mark(first.mark.text()) == replace(MARK, limit=295, first=240)
    job = replace(JOB, limit_min=295, admin_comment=first.mark.text())
    second = revised(report(5000, 10**6, 1.44), job=job, mark=first.mark)
    assert second is not None
    assert second.limit_min == 360  # 1.5 x 240, not 1.5 x 295
    assert second.mark.first == 240


def test_a_limit_the_user_chose_or_an_admin_changed_is_never_touched() -> None:
    late = report(5000, 11000, 1.44)
    assert revised(late, job=replace(JOB, limit_min=239)) is None
    assert revised(late, job=replace(JOB, limit_min=None)) is None
    assert revised(late, mark=replace(MARK, limit=None)) is None


@pytest.mark.parametrize("state", ["PENDING", "SUSPENDED", "COMPLETING"])
def test_only_running_jobs_are_revised(state: str) -> None:
    assert revised(report(5000, 11000, 1.44), job=replace(JOB, state=state)) is None


def test_partition_and_account_hold_an_extension_back() -> None:
    late = report(5000, 11000, 1.44)
    held = revised(late, within=Bounds(floor_min=1, cap_min=260))
    assert held is not None
    assert held.limit_min == 260
    assert held.needed_min > held.limit_min
    assert revised(late, within=Bounds(floor_min=1, cap_min=240)) is None


def test_a_change_smaller_than_the_rounding_is_not_made() -> None:
    late = report(5000, 11000, 1.44)
    assert revised(late, within=Bounds(floor_min=1, cap_min=244)) is None
    assert revised(late, within=Bounds(floor_min=1, cap_min=245)) is not None


def test_extending_and_trimming_are_each_switched_by_the_policy() -> None:
    late, early = report(5000, 11000, 1.44), report(5000, 5500, 1.44)
    neither = SlurmPolicy(watch=Watch(mode="apply", extend=False, trim=False))
    assert revised(late, policy=neither) is None
    assert revised(early, policy=neither) is None
    assert revised(early, policy=SlurmPolicy(watch=Watch(mode="apply"))) is None


def test_a_trim_frees_what_is_worth_it_and_leaves_the_margin() -> None:
    found = revised(report(5000, 5500, 1.44))
    assert found is not None
    # 120 + 12 x 1.12 + 10 minutes, rounded up to 5
    assert (found.kind, found.limit_min) == ("trim", 145)
    assert revised(report(5000, 7500, 1.44)) is None  # would free 40 of 240 minutes


def test_a_quarter_of_an_hour_is_not_worth_a_trim() -> None:
    mark, job = replace(MARK, limit=60), replace(JOB, limit_min=60)
    said = report(1500, 1700, 1.2, at_s=HOUR_S / 2)  # 30 + 4 x 1.12 + 10 minutes: 45
    assert revised(said, job=job, mark=mark, at_s=HOUR_S / 2) is None
    mark, job = replace(MARK, limit=66), replace(JOB, limit_min=66)
    assert revised(said, job=job, mark=mark, at_s=HOUR_S / 2) is not None


def test_a_trim_leaves_the_job_some_minutes_even_without_margins() -> None:
    bare = SlurmPolicy(
        limits=SlurmLimits(startup_min=0, checkpoint_share=0),
        watch=Watch(mode="apply", trim=True, margin_share=0),
    )
    at_s = 118 * 60.0
    found = revised(report(5000, 5001, 1.44, at_s=at_s), policy=bare, at_s=at_s)
    assert found is not None
    assert found.limit_min == 125


def test_nothing_is_trimmed_after_the_last_step() -> None:
    """What follows it, a test set or an export, no step rate tells."""
    assert revised(report(5500, 5500, 1.44)) is None


def test_a_trim_stays_above_the_floor() -> None:
    found = revised(report(5000, 5010, 1.44), within=Bounds(floor_min=180, cap_min=None))
    assert found is not None
    assert found.limit_min == 180


def test_evaluations_between_steps_count_as_they_did_so_far() -> None:
    said = report(4000, 8000, 0.9, started_s=START_S + 300)  # 0.9 s a step, 1.725 s with them
    found = revised(said)
    assert found is not None
    mean_s = (2 * HOUR_S - 300 - 600) / 4000
    assert found.needed_min == pytest.approx(120 + 4000 * mean_s * 1.12 / 60 + 10)


def test_time_that_will_not_come_again_does_not_count() -> None:
    said = report(4000, 8000, 0.9, started_s=START_S + 300, paused_s=3500.0)
    assert revised(said) is None


def test_a_run_from_a_checkpoint_is_judged_by_its_own_steps() -> None:
    said = report(104000, 108000, 0.9, first_step=100000, started_s=START_S + 300)
    found = revised(said)
    assert found is not None
    assert found == revised(report(4000, 8000, 0.9, started_s=START_S + 300))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (report(5000, 11000, 1.44, job_id="124"), "of job 124"),
        (report(5000, 11000, 1.44, job_id=""), "not stated"),
        (report(5000, 11000, 1.44, at_s=-60), "older than this run"),
        (report(5000, 11000, 1.44, at_s=HOUR_S), "60 min old"),
        (report(5000, 11000, 1.44, at_s=3 * HOUR_S), "in the future"),
        (report(5000, 11000, 8000.0), "longer than the job has run"),
        (report(19, 11000, 1.44), "19 of 20 steps"),
        (report(1019, 11000, 1.44, first_step=1000), "19 of 20 steps"),
    ],
)
def test_a_report_that_says_nothing_of_this_run_changes_nothing(said: StepReport, why: str) -> None:
    assert why in str(objection(JOB, said, BOTH, START_S + 2 * HOUR_S))
    assert revised(said) is None


def test_slow_steps_may_be_reported_seldom() -> None:
    said = report(50, 200, 120.0, at_s=2 * HOUR_S - 50 * 60)
    assert objection(JOB, said, BOTH, START_S + 2 * HOUR_S) is None


def test_an_array_task_may_name_itself_either_way() -> None:
    task = replace(JOB, job_id=130, label="123_7")
    for name in ("130", "123_7"):
        assert revised(report(5000, 11000, 1.44, job_id=name), job=task) is not None
    assert revised(report(5000, 11000, 1.44, job_id="123"), job=task) is None


@st.composite
def situations(draw: st.DrawFn) -> tuple[SlurmJob, JobMark, StepReport, SlurmPolicy, float, Bounds]:
    limit = draw(st.integers(30, 20_000))
    mark = JobMark(limit=limit, first=draw(st.none() | st.integers(1, 20_000)))
    at_s = draw(st.floats(0.1, 1)) * limit * 60
    first, done = draw(st.integers(0, 10**6)), draw(st.integers(20, 10**6))
    step_s = draw(st.floats(1e-3, 100))
    to_go = int(draw(st.floats(0, 3)) * limit * 60 / step_s)
    said = StepReport(
        step=first + done,
        total_steps=first + done + to_go,
        first_step=first,
        job_id="123",
        step_s=step_s,
        written_s=START_S + at_s,
        started_s=draw(st.none() | st.floats(START_S - 100, START_S + 1e6)),
        paused_s=draw(st.floats(0, 1e5)),
    )
    policy = SlurmPolicy(
        limits=SlurmLimits(
            rounding_min=draw(st.integers(1, 60)),
            startup_min=draw(st.sampled_from([0, 10])),
            checkpoint_share=draw(st.sampled_from([0, 0.02])),
        ),
        watch=Watch(
            mode="apply",
            trim=draw(st.booleans()),
            extend=draw(st.booleans()),
            max_extension=draw(st.floats(1, 10)),
            margin_share=draw(st.floats(0, 1)),
        ),
    )
    within = Bounds(draw(st.integers(1, 100)), draw(st.none() | st.integers(1, 20_000)))
    job = replace(JOB, limit_min=draw(st.sampled_from([limit, limit, limit, None, limit + 1])))
    return job, mark, said, policy, START_S + at_s, within


@given(situations())
def test_whatever_is_reported_every_bound_holds(
    situation: tuple[SlurmJob, JobMark, StepReport, SlurmPolicy, float, Bounds],
) -> None:
    job, mark, said, policy, now_s, within = situation
    found = revise(job, mark, said, policy, now_s, within)
    if job.limit_min != mark.limit or mark.limit is None:
        assert found is None
    if found is None:
        return
    assert found.old_min == job.limit_min
    change = found.limit_min - found.old_min
    assert abs(change) >= policy.limits.rounding_min
    if change > 0:
        assert policy.watch.extend
        assert found.limit_min <= (mark.first or found.old_min) * policy.watch.max_extension
        assert within.cap_min is None or found.limit_min <= within.cap_min
        assert found.needed_min > found.old_min
    else:
        assert policy.watch.trim
        assert found.limit_min >= found.needed_min
        assert found.limit_min >= within.floor_min
        assert found.limit_min > (now_s - START_S) / 60
        assert -change > max(TRIM_MIN, TRIM_SHARE * found.old_min)


@given(situations(), st.integers(1, 1000))
def test_more_steps_to_go_never_give_a_shorter_limit(
    situation: tuple[SlurmJob, JobMark, StepReport, SlurmPolicy, float, Bounds], more: int
) -> None:
    job, mark, said, policy, now_s, within = situation
    assume(said.remaining_steps)
    longer = replace(said, total_steps=said.total_steps + more)
    one, two = (revise(job, mark, r, policy, now_s, within) for r in (said, longer))
    least = one.limit_min if one else mark.limit
    most = two.limit_min if two else mark.limit
    assert least is not None
    assert most is not None
    assert most >= least


@given(situations())
def test_a_second_look_at_the_same_report_changes_nothing_more(
    situation: tuple[SlurmJob, JobMark, StepReport, SlurmPolicy, float, Bounds],
) -> None:
    job, mark, said, policy, now_s, within = situation
    found = revise(job, mark, said, policy, now_s, within)
    if found is None:
        return
    after = replace(job, limit_min=found.limit_min)
    again = revise(after, found.mark, said, policy, now_s, within)
    assert again is None
