"""Promises of the limit policies and of the figures that follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from predictor.errors import TraceError
from predictor.site.backtest.figures import (
    curve,
    figures_of,
    is_killed,
    limit_figures,
    queue_length,
)
from predictor.site.backtest.policies import LimitPolicy, Limits, limits_of, policies_of
from predictor.site.backtest.workload import LimitBounds, Workload
from predictor.site.replay import Pool, Trace, in_pools, replay

if TYPE_CHECKING:
    from sample_cluster.generate import Sample

HOUR = 3600.0


def limits(work: Workload, policy: str) -> Limits:
    return limits_of(work, LimitPolicy.parse(policy))


def by_hand() -> Workload:
    """Two jobs of one GPU; the second was killed at its limit of an hour."""
    return Workload(
        pools=(Pool(name="one", gpus=1),),
        submit_s=np.array([0.0, 600.0]),
        gpus=np.array([1, 1]),
        pool=np.array([0, 0]),
        run_s=np.array([HOUR, HOUR + 10]),
        asked_s=np.array([np.nan, HOUR]),
        censored=np.array([False, True]),
        predictions=(None, None),
        bounds=LimitBounds(default_s=2 * HOUR, cap_s=8 * HOUR),
        skipped={},
    )


# --- limits -------------------------------------------------------------------------------------


def test_users_have_what_they_asked_and_else_the_default() -> None:
    assert limits(by_hand(), "users").limit_s.tolist() == [2 * HOUR, HOUR]
    assert limits(by_hand(), "default").limit_s.tolist() == [2 * HOUR, 2 * HOUR]


def test_no_limit_is_longer_than_the_longest_there_is() -> None:
    work = replace(by_hand(), bounds=LimitBounds(default_s=1800, cap_s=1800))
    assert limits(work, "users").limit_s.tolist() == [1800, 1800]


def test_the_oracle_never_kills_and_reserves_nothing_in_vain(work: Workload) -> None:
    for each in (work, by_hand()):
        figures = limit_figures(each, limits(each, "oracle"))
        assert figures.kill_rate == 0
        assert figures.unused_gpu_hours <= len(each) / HOUR


def test_ours_is_predicted_where_jobs_say_what_they_are(work: Workload, drawn: Sample) -> None:
    ours, users = limits(work, "ours@0.9"), limits(work, "users")
    assert 0.2 < ours.predicted.mean() < 1
    silent = np.array([chosen is None for chosen in drawn.chosen])
    assert not ours.predicted[silent].any()
    assert (ours.limit_s[~ours.predicted] == users.limit_s[~ours.predicted]).all()
    assert (ours.limit_s <= work.bounds.cap_s).all()


def test_fill_leaves_every_limit_a_user_stated(work: Workload) -> None:
    fill, users = limits(work, "fill@0.9"), limits(work, "users")
    stated = ~np.isnan(work.asked_s)
    assert (fill.limit_s[stated] == users.limit_s[stated]).all()
    assert fill.predicted.any()
    assert (fill.predicted == (limits(work, "ours@0.9").predicted & ~stated)).all()


def test_a_higher_quantile_never_gives_a_shorter_limit(work: Workload) -> None:
    low, high = limits(work, "ours@0.6"), limits(work, "ours@0.9")
    both = low.predicted & high.predicted
    assert both.any()
    assert (low.limit_s[both] <= high.limit_s[both]).all()


def test_predictions_are_out_of_sample(work: Workload, drawn: Sample) -> None:
    """A predictor that saw the row would be within a few percent of it nearly always."""
    pairs = [
        (found.step_s, chosen.measurement.step_s)
        for found, chosen in zip(work.predictions, drawn.chosen, strict=True)
        if found is not None and chosen is not None
    ]
    error = np.abs(np.log([p / m for p, m in pairs]))
    assert np.mean(error > 0.05) > 0.3


@pytest.mark.parametrize("text", ["mine", "ours", "ours@1.5", "ours@0", "users@0.9", ""])
def test_a_policy_that_is_none_is_named(text: str) -> None:
    with pytest.raises(TraceError, match="accepted are users, default, oracle"):
        policies_of([text])


def test_policies_keep_their_order_and_are_there_once() -> None:
    found = policies_of(["oracle", "users", "ours@0.95", "users"])
    assert [p.name for p in found] == ["oracle", "users", "ours@0.95"]


def test_a_default_above_the_longest_limit_is_refused() -> None:
    with pytest.raises(TraceError, match="default limit of 7200"):
        LimitBounds(default_s=7200, cap_s=3600)


# --- figures ------------------------------------------------------------------------------------


def test_a_job_killed_in_the_past_is_killed_by_every_limit_up_to_what_it_ran() -> None:
    work = by_hand()
    assert is_killed(work, limits(work, "users")).tolist() == [False, True]
    assert is_killed(work, limits(work, "default")).tolist() == [False, False]
    exact = Limits(work.run_s, np.zeros(2, dtype=bool))
    assert is_killed(work, exact).tolist() == [False, True]


def test_figures_of_two_jobs_by_hand() -> None:
    work = by_hand()
    policy = LimitPolicy.parse("users")
    given = limits_of(work, policy)
    trace = Trace(
        submit_s=work.submit_s,
        gpus=work.gpus,
        limit_s=given.limit_s,
        run_s=in_pools(work.run_s, work.pool, 1),
    )
    out = replay(trace, work.pools)
    found = figures_of(work, policy, given, out)
    # The first runs for an hour of its two; the second waits 50 minutes and is killed at its hour.
    assert found.limits.kill_rate == 0.5
    assert found.limits.killed_gpu_hours == pytest.approx(1)
    assert found.limits.killed_share_of_used == pytest.approx(0.5)
    assert found.limits.unfinished_gpu_hours == pytest.approx(10 / HOUR)
    assert found.limits.unused_gpu_hours == pytest.approx(1)
    assert found.limits.unused_share_of_reserved == pytest.approx(1 / 3)
    assert found.wait_mean_s == 1500
    assert found.wait_p95_s == pytest.approx(0.95 * 3000)
    assert found.bounded_slowdown == pytest.approx((1 + (3000 + HOUR) / HOUR) / 2)
    assert found.utilisation == 1
    assert found.makespan_s == 2 * HOUR
    assert queue_length(work, out, np.array([0.0, 600, 3599, 3600])).tolist() == [0, 1, 1, 0]


def test_the_curve_trades_kills_for_unused_hours(work: Workload) -> None:
    points = curve(work, (0.5, 0.7, 0.9))
    assert points[0].limits.kill_rate >= points[-1].limits.kill_rate
    same = {p.limits.predicted_share for p in points}
    if len(same) == 1:
        unused = [p.limits.unused_gpu_hours for p in points]
        assert unused == sorted(unused)
