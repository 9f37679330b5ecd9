"""Promises of the limit policies and of the figures that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from site_runs import run_of

from predictor.errors import TraceError
from predictor.site.backtest.policies import (
    LimitPolicy,
    Limits,
    learned_times,
    limits_of,
    policies_of,
)
from predictor.site.backtest.run import (
    Backtest,
    backtest,
    figures_of,
    is_killed,
    limit_figures,
    replay_limits,
)
from predictor.site.backtest.workload import (
    ORDER_BOUND_S,
    LimitBounds,
    ReplayJobs,
    workload_of_runs,
)
from predictor.site.history.run import Run
from predictor.site.replay import Policy, Pool

HOUR = 3600.0


def limits(work: ReplayJobs, policy: str) -> Limits:
    return limits_of(work, LimitPolicy.parse(policy))


def by_hand() -> ReplayJobs:
    """Two jobs of one GPU; the second was killed at its limit of an hour."""
    return ReplayJobs(
        pools=(Pool(name="one", gpus=1),),
        submit_s=np.array([0.0, 600.0]),
        gpus=np.array([1, 1]),
        pool=np.array([0, 0]),
        run_s=np.array([HOUR, HOUR + 10]),
        asked_s=np.array([np.nan, HOUR]),
        censored=np.array([False, True]),
        bounds=LimitBounds(default_s=2 * HOUR, cap_s=8 * HOUR),
        skipped={},
    )


# --- limits -------------------------------------------------------------------------------------


def test_users_have_what_they_asked_and_else_the_default() -> None:
    assert limits(by_hand(), "users").limit_s.tolist() == [2 * HOUR, HOUR]
    assert limits(by_hand(), "default").limit_s.tolist() == [2 * HOUR, 2 * HOUR]


def test_no_stated_limit_is_longer_than_the_longest_there_is() -> None:
    """The first job stated none: it is planned by the default, but never killed by it."""
    work = replace(by_hand(), bounds=LimitBounds(default_s=1800, cap_s=1800))
    assert limits(work, "users").limit_s.tolist() == [HOUR, 1800]


def test_the_oracle_never_kills_and_reserves_nothing_in_vain(work: ReplayJobs) -> None:
    for each in (work, by_hand()):
        figures = limit_figures(each, limits(each, "oracle"))
        assert figures["kill_rate"] == 0
        assert figures["unused_gpu_hours"] <= len(each) / HOUR


@pytest.mark.parametrize("text", ["mine", "order", "order@1.5", "order@0", "users@0.9", ""])
def test_a_policy_that_is_none_is_named(text: str) -> None:
    with pytest.raises(TraceError, match="expected users, default, oracle"):
        policies_of([text])


def test_policies_keep_their_order_and_are_there_once() -> None:
    found = policies_of(["oracle", "users", "order@0.95", "users"])
    assert [p.name for p in found] == ["oracle", "users", "order@0.95"]


def test_a_default_above_the_longest_limit_is_refused() -> None:
    with pytest.raises(TraceError, match="default limit of 7200"):
        LimitBounds(default_s=7200, cap_s=3600)


# --- figures ------------------------------------------------------------------------------------


def test_a_job_killed_in_the_past_is_killed_by_every_limit_up_to_what_it_ran() -> None:
    work = by_hand()
    assert is_killed(work, limits(work, "users")).tolist() == [False, True]
    assert is_killed(work, limits(work, "default")).tolist() == [False, False]
    nobody = np.zeros(2, dtype=bool)
    exact = Limits(limit_s=work.run_s, predicted=nobody, again_s=np.full(2, np.nan))
    assert is_killed(work, exact).tolist() == [False, True]


def test_figures_of_two_jobs_by_hand() -> None:
    work = by_hand()
    policy = LimitPolicy.parse("users")
    given = limits_of(work, policy)
    out = replay_limits(work, given, queue=Policy.EASY, depth=10)
    found = figures_of(work, policy, given, out)
    # The first runs for an hour of its two; the second waits 50 minutes and is killed at its hour.
    assert found.kill_rate == 0.5
    assert found.killed_gpu_hours == pytest.approx(1)
    assert found.killed_share_of_used == pytest.approx(0.5)
    assert found.unfinished_gpu_hours == pytest.approx(10 / HOUR)
    assert found.unused_gpu_hours == pytest.approx(1)
    assert found.unused_share_of_reserved == pytest.approx(1 / 3)
    assert found.wait_mean_s == 1500
    assert found.wait_p95_s == pytest.approx(0.95 * 3000)
    assert found.bounded_slowdown == pytest.approx((1 + (3000 + HOUR) / HOUR) / 2)
    assert found.utilisation == 1
    assert found.makespan_s == 2 * HOUR
    assert (found.wait_max_s, found.extra_kills, found.users_waiting_longer_share) == (
        3000,
        0,
        None,
    )


def test_a_higher_quantile_makes_longer_limits_that_kill_less(work: ReplayJobs) -> None:
    learned = learned_times(work, [0.5, 0.9])
    low, high = (limits_of(work, LimitPolicy("history", level), learned) for level in (0.5, 0.9))
    assert (low.limit_s <= high.limit_s).all()
    assert limit_figures(work, low)["kill_rate"] > limit_figures(work, high)["kill_rate"]


# --- what is learned ----------------------------------------------------------------------------


def logged(n: int, run_s: float, user: str, **ended: Any) -> Run:
    """Jobs of one GPU submitted an hour apart, each with a limit of ten hours."""
    asked = {"submit_line": "", "name": "", "gpus": 1, "limit_s": 10 * HOUR, "user": user}
    at = {"submit_s": n * HOUR, "start_s": n * HOUR, "end_s": n * HOUR + run_s}
    return run_of(n, asked="", **{**asked, **at, **ended})


def history(runs: Iterable[Run]) -> ReplayJobs:
    return workload_of_runs(runs, pools=[Pool(name="one", gpus=1)], bounds=LimitBounds())


def mixed() -> ReplayJobs:
    """Ann's jobs take minutes, Bob's hours, under the same limit."""
    return history(
        logged(n, *((300.0, "ann") if n % 2 else (5 * HOUR, "bob")), gpu_type=None)
        for n in range(120)
    )


def test_learning_goes_in_time_order_and_speaks_of_every_job() -> None:
    """Longer run times of later jobs change nothing of what earlier ones were told."""
    runs = [logged(n, 600.0 + n, "ann", gpu_type=None) for n in range(40)]
    later = [logged(n, 9 * HOUR, "ann", gpu_type=None) for n in range(20, 40)]
    found = learned_times(history(runs), [0.5])
    other = learned_times(history([*runs[:20], *later]), [0.5])
    assert np.isfinite(found.quantile_s[0.5]).all()
    assert (found.quantile_s[0.5][:20] == other.quantile_s[0.5][:20]).all()
    assert (found.quantile_s[0.5][36:] < other.quantile_s[0.5][36:]).all()


def test_order_leaves_limits_alone_and_lets_short_jobs_go_first() -> None:
    work = mixed()
    out = backtest(work, policies_of(["users", "order@0.5"]), jobs=1)
    users, ordered = out.replayed
    assert (ordered.limits.limit_s == users.limits.limit_s).all()
    assert ordered.figures.extra_kills == 0
    assert ordered.figures.wait_mean_s < users.figures.wait_mean_s


def test_nobody_is_overtaken_by_jobs_that_come_more_than_a_week_later() -> None:
    work = mixed()
    key_s = limits_of(work, LimitPolicy.parse("order-users")).key_s
    assert key_s is not None
    assert (key_s - work.submit_s <= ORDER_BOUND_S).all()


def test_the_order_is_played_with_the_weight_and_the_bound_of_a_site() -> None:
    bounds = LimitBounds(order_weight=2.0, order_bound_s=3 * HOUR)
    work = replace(mixed(), bounds=bounds)
    order = LimitPolicy.parse("order-users")
    asked_s, key_s = limits_of(work, order).limit_s, limits_of(work, order).key_s
    assert key_s is not None
    assert key_s == pytest.approx(work.submit_s + np.minimum(2.0 * asked_s, 3 * HOUR))


def test_a_job_that_a_learned_limit_kills_runs_again_from_nothing_and_counts() -> None:
    """After many short jobs one takes hours: its first attempt is killed, its second is not."""
    runs = [logged(n, 600.0, "ann", gpu_type=None) for n in range(60)]
    work = history([*runs, logged(60, 3 * HOUR, "ann", gpu_type=None)])
    out = backtest(work, policies_of(["users", "history@0.9"]), jobs=1)
    users, ours = out.replayed
    assert ours.figures.extra_kills >= 1
    assert ours.figures.kill_rate > 0
    assert ours.figures.unfinished_gpu_hours == 0
    assert ours.figures.used_gpu_hours > users.figures.used_gpu_hours
    lost_s = float(ours.limits.limit_s[60])
    assert ours.schedule.start_s[60] >= users.schedule.start_s[60] + lost_s
    assert ours.schedule.end_s[60] - ours.schedule.start_s[60] == 3 * HOUR


def test_a_limit_that_is_not_known_kills_nobody() -> None:
    work = history([logged(0, 50 * HOUR, "ann", gpu_type=None, limit_s=None)])
    assert np.isnan(work.asked_s).all()
    assert not is_killed(work, limits(work, "users")).any()


def test_a_policy_that_wins_by_killing_is_said_to() -> None:
    users, ours = (
        backtest(mixed(), policies_of([name]), jobs=1).replayed[0]
        for name in ("users", "history@0.95")
    )
    faster = replace(ours.figures, wait_mean_s=users.figures.wait_mean_s / 2, extra_kills=3)
    both = Backtest(work=mixed(), replayed=(users, replace(ours, figures=faster)))
    assert "history@0.95 wins by killing: 3 jobs" in both.warnings[0]
    slower = replace(faster, wait_mean_s=2 * users.figures.wait_mean_s)
    assert not replace(both, replayed=(users, replace(ours, figures=slower))).warnings
