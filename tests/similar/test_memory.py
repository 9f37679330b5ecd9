"""What is expected of a job by the runs that are similar to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.site.calibration.site_state import memory_as_dict
from predictor.site.calibration.site_state import memory_of as memory_from
from predictor.site.similar.estimate import Estimate, carried_limit_s, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd, batch_of
from predictor.site.similar.request import JobRequest, TrainingLength

DAY_S = 86_400.0
JOB = JobRequest(
    user="ann", partition="gpu", gpus=1, limit_s=36_000.0, script="f00d", directory="/a"
)


def past(n: int, run_s: float, job: JobRequest = JOB, **told: Any) -> PastRun:
    job, submit_s = job.without_names(), n * DAY_S
    given = {
        "request": job,
        "submit_s": submit_s,
        "end_s": submit_s + run_s,
        "run_s": run_s,
        "ended": RunEnd.COMPLETED,
        "batch": batch_of(job, submit_s),
        "length": job.length,
    }
    return PastRun(**(given | told))


def memory_of(*runs: PastRun) -> SiteMemory:
    memory = SiteMemory()
    memory.learn(runs)
    return memory


def expected(memory: SiteMemory, job: JobRequest = JOB) -> Estimate:
    return estimate_job(job, memory)


def lasting(unit: str, amount: float, **changes: Any) -> JobRequest:
    return replace(JOB, length=TrainingLength(unit, amount), **changes)


@pytest.mark.parametrize("job", [JOB, JobRequest(), JobRequest(gpus=8, limit_s=60.0)])
def test_every_job_gets_an_estimate_at_a_site_nobody_knows(job: JobRequest) -> None:
    found = expected(SiteMemory(), job)
    assert 0 < found.quantile_s(0.05) <= found.quantile_s(0.5) <= found.quantile_s(0.95)
    assert "nothing is known of this site" in found.assumptions[0]


def test_many_runs_of_a_script_speak_alone() -> None:
    found = expected(memory_of(*(past(n, 7200.0) for n in range(30))))
    assert found.quantile_s(0.5) == pytest.approx(7200.0)
    assert found.expected_s == found.quantile_s(0.5)
    assert found.mean_s == pytest.approx(7200.0, rel=0.15)
    assert found.runs == 30
    assert "30 runs of the same user and script: median 2 h 00 min" in found.evidence[0]


def test_the_mean_of_runs_that_fail_at_once_is_no_shorter_than_the_shortest_told() -> None:
    found = expected(memory_of(*(past(n, 0.02) for n in range(30))), replace(JOB, limit_s=None))
    assert found.quantile_s(0.05) == found.quantile_s(0.5) == pytest.approx(1.0)
    assert found.mean_s >= 1.0


def test_a_new_user_gets_what_the_site_knows() -> None:
    memory = memory_of(*(past(n, 3600.0) for n in range(20)))
    found = expected(memory, replace(JOB, user="bob"))
    assert found.quantile_s(0.5) == pytest.approx(3600.0)
    assert found.runs == 0
    assert "nothing is known of this user" in found.assumptions[0]


def test_runs_use_a_share_of_their_limit_where_limits_differ() -> None:
    memory = memory_of(*(past(n, 3600.0) for n in range(20)))
    twice = JobRequest(user="bob", partition="other", limit_s=2 * 36_000.0)
    assert expected(memory, twice).quantile_s(0.5) == pytest.approx(7200.0)


def test_no_estimate_goes_far_beyond_the_limit() -> None:
    memory = memory_of(*(past(n, 30_000.0) for n in range(20)))
    found = expected(memory, replace(JOB, limit_s=600.0))
    assert found.quantile_s(0.99) < 700.0


def test_a_run_cut_off_at_its_limit_is_a_lower_bound() -> None:
    """Half hit ten hours: with a limit of forty the others are not all there is."""
    ends = [past(2 * n, 3600.0) for n in range(10)]
    cut = [past(2 * n + 1, 36_000.0, ended=RunEnd.CUT_OFF) for n in range(10)]
    memory = memory_of(*ends, *cut)
    assert expected(memory, replace(JOB, limit_s=144_000.0)).quantile_s(0.95) > 40_000.0
    assert expected(memory).quantile_s(0.95) <= 36_000.0 * 1.01 + 60.0


def test_jobs_of_another_project_with_the_same_script_name_share_nothing() -> None:
    ours = JobRequest(user="ann", gpus=1, name="train.sh", command="aa", directory="/a")
    memory = memory_of(*(past(n, 100.0, ours) for n in range(20)))
    theirs = replace(ours, command="bb", directory="/b", gpus=2)
    assert all("command" not in line for line in expected(memory, theirs).evidence)
    assert carried_limit_s(theirs, memory, 0.95) is None


def test_another_length_scales_the_rate() -> None:
    one = lasting("epochs", 1, limit_s=None)
    memory = memory_of(*(past(n, 60.0 + 300.0, one, startup_s=60.0) for n in range(5)))
    found = expected(memory, lasting("epochs", 300, limit_s=None))
    assert found.quantile_s(0.5) == pytest.approx(60.0 + 300 * 300.0, rel=0.05)
    assert "300 s per epoch for 300 epochs" in found.evidence[0]


@pytest.mark.parametrize(
    ("unknown", "of"),
    [
        ({"directory": ""}, "script, directory unknown"),
        ({"directory": "", "script": "", "name": "big"}, "GPUs, script unknown"),
    ],
)
def test_runs_of_a_table_scale_too_and_no_limit_rests_on_them(
    unknown: dict[str, Any], of: str
) -> None:
    there = lasting("epochs", 3, limit_s=None, **unknown)
    memory = memory_of(*(past(n, 3 * 300.0, there, startup_s=0.0) for n in range(20)))
    here = lasting("epochs", 300, limit_s=None, name="big", partition="other")
    found = expected(memory, here)
    assert found.quantile_s(0.5) == pytest.approx(300 * 300.0, rel=0.05)
    assert of in found.evidence[0]
    assert found.runs == 0
    assert "are taken for this job's" in found.assumptions[0]
    assert carried_limit_s(here, memory, 0.95) is None
    elsewhere = memory_of(*(past(n, 900.0, lasting("epochs", 3, name="big")) for n in range(20)))
    assert "unknown" not in " ".join(expected(elsewhere, replace(here, directory="/b")).evidence)


def test_runs_of_which_accounting_tells_a_name_alone_are_taken_for_as_long() -> None:
    """As plain tables hold them: the job states its epochs, and they state nothing."""
    plain = replace(JOB, script="", command="", directory="", name="big")
    memory = memory_of(*(past(n, 70_000.0, plain) for n in range(20)))
    here = lasting("epochs", 300, name="big", limit_s=None)
    found = expected(memory, here)
    assert found.quantile_s(0.5) == pytest.approx(70_000.0, rel=0.1)
    assert found.quantile_s(0.75) > 1.3 * found.quantile_s(0.25)
    assert "script unknown" in found.evidence[0]
    assert "tell no length assumed as long" in found.evidence[0]
    assert carried_limit_s(here, memory, 0.95) is None


def test_start_up_follows_from_runs_of_two_lengths() -> None:
    runs = [
        past(n, 120.0 + 10.0 * amount, lasting("epochs", amount, limit_s=None))
        for n, amount in enumerate((1, 5, 10, 20, 5, 10))
    ]
    found = expected(memory_of(*runs), lasting("epochs", 100, limit_s=None))
    assert found.quantile_s(0.5) == pytest.approx(120.0 + 1000.0, rel=0.02)


def test_what_was_printed_tells_the_rate_of_a_run_that_failed() -> None:
    steps = lasting("steps", 10_000, limit_s=None)
    runs = [past(n, 500.0, steps, ended=RunEnd.STOPPED, rate_s=0.5) for n in range(6)]
    found = expected(memory_of(*runs), lasting("steps", 20_000, limit_s=None))
    assert found.quantile_s(0.5) == pytest.approx(10_000.0, rel=0.05)


def test_other_gpus_are_a_guess_with_a_wide_interval_until_the_site_measured_them() -> None:
    slow, fast = replace(JOB, gpu_type="v100"), replace(JOB, gpu_type="h100")
    memory = memory_of(*(past(n, 8000.0, slow) for n in range(10)))
    guess = expected(memory, fast)
    assert "GPU type v100 -> h100" in guess.evidence[0]
    assert "assumed" in guess.evidence[0]
    assert guess.quantile_s(0.75) > 1.5 * guess.quantile_s(0.25)
    others = {"script": "beef", "user": "bob"}
    pairs = [(8000.0, slow), (2000.0, fast)] * 5
    for n, (run_s, job) in enumerate(pairs):
        memory.add(past(100 + n, run_s, replace(job, **others)))
    measured = expected(memory, fast)
    assert "as measured at this site" in measured.evidence[0]
    assert measured.quantile_s(0.5) == pytest.approx(2000.0, rel=0.1)


def test_a_limit_needs_similar_runs_that_completed() -> None:
    few = memory_of(*(past(n, 1000.0) for n in range(4)))
    assert carried_limit_s(JOB, few, 0.95) is None
    failed = memory_of(*(past(n, 1000.0, ended=RunEnd.STOPPED) for n in range(20)))
    assert carried_limit_s(JOB, failed, 0.95) is None
    enough = memory_of(*(past(n, 1000.0) for n in range(20)))
    assert carried_limit_s(JOB, enough, 0.95) == pytest.approx(1500.0, rel=0.02)


@pytest.mark.parametrize("run_s", [1.0, 46.0, 3600.0, 14_400.0, 40_000.0])
def test_a_job_as_long_as_all_before_it_is_not_longer_than_the_quantile(run_s: float) -> None:
    memory = memory_of(*(past(n, run_s, replace(JOB, limit_s=None)) for n in range(60)))
    found = expected(memory, replace(JOB, limit_s=None)).quantile_s(0.5)
    assert run_s <= found < run_s + 0.001


def test_runs_alike_differ_by_a_hundredth_and_none_is_longer_than_its_limit() -> None:
    memory = memory_of(*(past(n, 1000.0) for n in range(60)))
    found = expected(memory).quantile_s
    assert found(0.5) < 1001.0 < found(0.95) < 1010.0
    full = memory_of(*(past(n, 36_000.0) for n in range(60)))
    assert expected(full).quantile_s(0.99) <= 36_000.0 * 1.01 + 60.0


def test_no_limit_rests_on_the_tasks_of_one_array() -> None:
    tasks = [past(0, 1000.0 + n) for n in range(30)]
    assert carried_limit_s(JOB, memory_of(*tasks), 0.95) is None
    twice = [past(1 + n % 2, 1000.0 + n) for n in range(10)]
    assert carried_limit_s(JOB, memory_of(*tasks, *twice), 0.95) is not None


def test_no_limit_rests_on_a_guess() -> None:
    """Of a start-up that nobody told, or of GPUs that nobody measured."""
    memory = memory_of(*(past(n, 360.0, lasting("epochs", 1)) for n in range(20)))
    assert carried_limit_s(lasting("epochs", 1), memory, 0.95) is not None
    assert carried_limit_s(lasting("epochs", 300), memory, 0.95) is None
    assert carried_limit_s(lasting("epochs", 1, gpus=8), memory, 0.95) is None


def test_nor_on_a_request_that_other_jobs_of_the_user_share() -> None:
    memory = memory_of(*(past(n, 360.0) for n in range(20)))
    assert carried_limit_s(replace(JOB, script="beef"), memory, 0.95) is None


def test_forgetting_a_user_forgets_what_their_runs_told() -> None:
    memory = memory_of(*(past(n, 7200.0) for n in range(30)))
    assert memory.forget("ann") == 30
    assert expected(memory).evidence == ()
    assert memory.runs() == []


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=60), st.floats(0.01, 0.98))
def test_quantiles_rise_with_their_level(seconds: list[float], level: float) -> None:
    found = expected(memory_of(*(past(n, run_s) for n, run_s in enumerate(seconds))))
    assert found.quantile_s(level) <= found.quantile_s(level + 0.01)
    assert 0 < found.order_s(0.5) <= 1.1 * max(found.limit_s or 0.0, *seconds)


def test_what_a_job_still_runs_is_that_of_jobs_that_run_longer() -> None:
    found = expected(memory_of(*(past(n, 100.0 if n % 2 else 5000.0) for n in range(40))))
    assert found.left_s(0.1, 0.0) < 200
    assert found.left_s(0.1, 1000.0) > 2000
    assert found.left_s(0.5, 1e9) == 0


def test_what_is_left_of_a_job_that_waits_is_its_run_time() -> None:
    """Read at the levels that proved right, as at a site where estimates were too short."""
    memory = SiteMemory()
    for at in range(300):
        memory.coverage.learn(0.9, str(at))
    found = estimate_job(JobRequest(user="ada", gpus=1, limit_s=36_000.0), memory)
    for level in (0.05, 0.3, 0.5, 0.95, 0.99):
        assert found.left_s(level, 0.0) == found.quantile_s(level)
    assert found.expected_s > found.times.quantile_s(0.5)
    lengths = [found.left_s(level, 600.0) for level in (0.0, 0.2, 0.5, 0.8, 1.0)]
    assert lengths == sorted(lengths)


def test_a_burst_of_short_runs_does_not_take_everybody_s_interval_to_the_shortest() -> None:
    """Of a thousand jobs submitted together all end sooner than was expected of any of them."""
    memory = memory_of(*(past(n, 7200.0 + n if n % 8 else 1.0) for n in range(64)))
    for _ in range(1000):
        memory.coverage.learn(0.0, "one burst")
    found = expected(memory)
    assert found.quantile_s(0.25) > 7000
    levels = memory.coverage.levels()
    assert list(levels) == sorted(levels)


def test_jobs_of_unknown_users_are_known_by_their_name() -> None:
    long, short = JobRequest(name="train-7", gpus=1), JobRequest(name="eval-7", gpus=1)
    runs = [past(n, 40_000.0 if n % 2 else 300.0, long if n % 2 else short) for n in range(40)]
    memory = memory_of(*runs)
    assert expected(memory, replace(long, name="train-8")).quantile_s(0.5) == pytest.approx(
        40_000.0
    )
    found = expected(memory, replace(short, name="eval-8"))
    assert found.quantile_s(0.5) == pytest.approx(300.0)
    assert "of unknown users with the same name" in found.evidence[0]
    assert found.runs == 0
    assert carried_limit_s(long, memory, 0.95) is None  # nobody's own runs


def test_a_known_user_gets_nothing_from_the_same_name_of_another() -> None:
    theirs = JobRequest(user="ann", name="train", gpus=1)
    memory = memory_of(*(past(n, 300.0, theirs) for n in range(20)))
    told = expected(memory, replace(theirs, user="bob")).evidence
    assert all("name" not in line for line in told)


def test_the_digits_of_a_name_tell_where_they_recur() -> None:
    """Names such as ``job000017``, where only the number tells one from another."""
    jobs = [JobRequest(user="ann", name=f"job{n:06}", gpus=1) for n in (17, 18)]
    memory = memory_of(*(past(n, (100.0, 9000.0)[n % 2], jobs[n % 2]) for n in range(40)))
    assert [expected(memory, job).quantile_s(0.5) for job in jobs] == pytest.approx([100.0, 9000.0])
    limits = {carried_limit_s(job, memory, 0.95) for job in jobs}
    assert all(limit is None or limit >= 1.5 * 9000.0 for limit in limits)


def test_what_is_likely_anywhere_gives_way_to_what_is_at_this_site() -> None:
    """No user, no limit, no request seen twice: not two weeks, but what jobs here take."""
    other = [JobRequest(gpus=1 + n % 8, cpus=n) for n in range(400)]
    memory = memory_of(*(past(n, 600.0 + n % 7, other[n]) for n in range(400)))
    found = expected(memory, JobRequest(gpus=3, cpus=999))
    assert found.quantile_s(0.95) < 700.0
    assert found.mean_s < 800.0
    memory.forget("")
    assert expected(memory, JobRequest(gpus=3, cpus=999)).quantile_s(0.99) > DAY_S


@pytest.mark.parametrize(("limits_h", "bound_h"), [(40.0, 24.0), (6.0, 12.0)])
def test_no_job_stands_back_for_longer_than_long_limits_of_the_site_warrant(
    limits_h: float, bound_h: float
) -> None:
    """A limit of a month counts as 0.6 of those of others, at least 12 h; a short one as it is."""
    asked = replace(JOB, user="", gpus=4, limit_s=limits_h * 3600.0)
    memory = memory_of(*(past(n, 3600.0, asked) for n in range(200)))
    long, short = (replace(asked, user="new", limit_s=s) for s in (30 * DAY_S, 3600.0))
    assert expected(memory, long).order_s(0.5) == pytest.approx(bound_h * 3600.0)
    assert expected(memory, short).order_s(0.5) < 3600.0 * 1.05
    again = memory_from(memory_as_dict(memory))
    assert again.long_limit_s == pytest.approx(memory.long_limit_s)
    memory.forget("nobody")
    assert memory.long_limit_s == pytest.approx(limits_h * 3600.0)


def test_where_no_job_has_a_limit_long_run_times_say_how_long_one_may_stand_back() -> None:
    """A user of ten-day jobs where others' take an hour: half a day, not ten."""
    quick, slow = (replace(JOB, user=user, limit_s=None) for user in ("quick", "slow"))
    runs = [past(n, 3600.0, quick) for n in range(300)]
    memory = memory_of(*runs, *(past(300 + n, 10 * DAY_S, slow) for n in range(8)))
    assert expected(memory, slow).mean_s > 5 * DAY_S
    assert expected(memory, slow).order_s(0.5) == pytest.approx(DAY_S / 2)


def test_a_site_that_ends_jobs_late_is_known_for_it() -> None:
    """Jobs that reach their limit of an hour run on for ten minutes here."""
    job = replace(JOB, limit_s=3600.0)
    runs = [replace(past(n, 4200.0 + n % 5, job), ended=RunEnd.CUT_OFF) for n in range(60)]
    assert expected(SiteMemory(), job).quantile_s(0.99) < 3700
    assert 4200 <= expected(memory_of(*runs), job).quantile_s(0.95) < 4300
