"""The forecast: whole weeks of demand, an interval that holds what comes, or why there is none."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from capacity_jobs import DAY_S, START_S, frame, job
from demand_days import ahead_of, seasonal

from predictor.site.capacity.forecast import (
    LEAST_WEEKS,
    WEEKS_AHEAD,
    by_gpu_type,
    by_partition,
    daily,
    forecasts,
)
from predictor.site.capacity.jobs import run_of
from predictor.site.capacity.queue import Estimates
from predictor.site.similar.estimate import estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun

WEEK_S = 7 * DAY_S
V100 = "v100-sxm2-16gb"
NOBODY = partial(estimate_job, memory=SiteMemory())


def of_jobs(*jobs: dict[str, Any]) -> Estimates:
    """Estimates by what ended."""
    runs = [PastRun.of(run_of(row)) for row in frame(jobs).collect().iter_rows(named=True)]
    memory = SiteMemory()
    memory.learn([run for run in runs if run is not None])
    return partial(estimate_job, memory=memory)


@pytest.mark.parametrize("weeks", [1, 2, LEAST_WEEKS - 1])
def test_too_little_history_is_refused_with_the_reason(weeks: int) -> None:
    found, notes = forecasts(frame([job()]), START_S + weeks * WEEK_S, {}, NOBODY)
    assert found == ()
    assert notes == (
        f"No forecast of {V100}: {LEAST_WEEKS} whole weeks of history are needed, it has {weeks}.",
    )


def test_an_empty_history_is_refused() -> None:
    assert forecasts(frame([]), START_S, {}, NOBODY) == (
        (),
        ("No forecast: there is no whole week of history.",),
    )


def test_a_type_that_is_new_is_refused_and_the_others_are_not() -> None:
    old = [
        job(
            job_id=str(n),
            submit_s=START_S + n * DAY_S,
            start_s=START_S + n * DAY_S,
            end_s=START_S + n * DAY_S + 3600 * (1 + n % 5),
        )
        for n in range(42)
    ]
    new = job(
        submit_s=START_S + 5 * WEEK_S,
        start_s=START_S + 5 * WEEK_S,
        end_s=START_S + 5 * WEEK_S + 60,
        gpu_type="b200",
    )
    found, notes = forecasts(frame([*old, new]), START_S + 6 * WEEK_S, {}, NOBODY)
    assert [one.key for one in found if one.key == V100] == [V100]
    assert "No forecast of b200" in notes[0]


def test_demand_counts_in_the_day_of_submission_with_all_its_hours() -> None:
    long = job(gpus=2, end_s=START_S + 3 * DAY_S)
    assert daily(frame([long]), START_S + WEEK_S, NOBODY)["hours"].to_list() == [
        pytest.approx(2 * 72)
    ]


def test_what_came_after_the_moment_is_not_known() -> None:
    until_s = START_S + WEEK_S
    past = [job(job_id=str(n), submit_s=START_S + n * DAY_S / 8) for n in range(40)]
    began = {"submit_s": until_s - 60, "start_s": until_s - 60, "end_s": until_s + 50 * DAY_S}
    estimate = of_jobs(*past)
    before, after = (
        daily(frame([*past, *more]), until_s, estimate)["hours"].sum()
        for more in ((), [job(job_id="new", gpus=2, **began)])
    )
    assert after - before == pytest.approx(2, rel=0.2)  # an hour on two GPUs, as others took


@pytest.mark.parametrize(
    ("values", "hours"),
    [
        ({"start_s": None, "end_s": None, "state": "pending"}, 2.0),
        ({"end_s": None, "state": "running", "start_s": START_S + WEEK_S - 3600}, 2.0),
        ({"end_s": None, "state": "running"}, 168.0),  # it has run
        ({"start_s": None, "state": "cancelled"}, 0.0),
        ({"end_s": START_S - 5}, 0.0),
    ],
)
def test_a_job_that_has_not_ended_asks_for_what_is_expected(
    values: dict[str, object], hours: float
) -> None:
    past = [job(job_id=str(n), end_s=START_S + 7200, limit_s=None) for n in range(40)]
    one = job(job_id="new", limit_s=None) | values
    found = daily(frame([*past, one]), START_S + WEEK_S, of_jobs(*past))["hours"].sum()
    assert found == pytest.approx(80 + hours, abs=0.1 * hours)


def test_a_partition_of_one_type_is_that_type_and_others_are_told() -> None:
    until_s = START_S + WEEK_S
    alone = [job(partition="v", gpu_type=V100), job(partition="a", gpu_type="a100")]
    table = daily(frame(alone), until_s, NOBODY)
    assert by_partition(table, until_s, {}) == []
    mixed = [*alone, job(partition="both", gpu_type="h100"), job(partition="both", gpu_type="h200")]
    table = daily(frame(mixed), until_s, NOBODY)
    [found] = by_partition(table, until_s, {"h100": 3, "h200": 4})
    assert (found.key, found.gpus) == ("both", 7)
    shared = daily(frame([*mixed, job(partition="v", gpu_type="h100")]), until_s, NOBODY)
    counts = {one.key: one.gpus for one in by_partition(shared, until_s, {"h100": 3, "h200": 4})}
    assert counts == {"both": None, "v": None}


def test_demand_without_a_gpu_type_has_no_forecast_of_its_own() -> None:
    table = daily(frame([job(gpu_type=None), job(gpu_type="")]), START_S + WEEK_S, NOBODY)
    assert by_gpu_type(table, START_S + WEEK_S, {}) == []


def test_steady_demand_goes_on_within_its_interval() -> None:
    ahead = [week for week in ahead_of(seasonal(10, 5.0)).weeks if week.expected is not None]
    assert len(ahead) == WEEKS_AHEAD
    for week in ahead:
        wide, likely = week.expected, week.likely
        assert wide is not None
        assert likely is not None
        assert wide.low < likely.low < wide.median < likely.high < wide.high
        assert wide.median == pytest.approx(560, rel=0.1)


def test_louder_demand_has_a_wider_interval() -> None:
    widths = []
    for noise in (2.0, 20.0):
        ahead = ahead_of(seasonal(10, noise)).weeks[-1].expected
        assert ahead is not None
        widths.append(ahead.high - ahead.low)
    assert widths[0] < widths[1]


def test_saturation_is_the_first_week_beyond_capacity() -> None:
    days = seasonal(10, 5.0)
    assert ahead_of(days, gpus=100).saturates_s is None
    assert ahead_of(days, gpus=1).saturates_s == START_S + 10 * WEEK_S


def test_demand_that_never_varies_is_expected_to_go_on() -> None:
    last = ahead_of(np.full(42, 24.0), gpus=2).weeks[-1].expected
    assert last is not None
    assert (last.low, last.median, last.high) == (168.0, 168.0, 168.0)
