"""Jobs that cannot be predicted: limits from what similar runs of the same user took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import JOB, cluster, policy_of, submit
from site_runs import run_of, told

from predictor.estimate.fitting import Fitted
from predictor.site.backtest.workload import ORDER_BOUND_S, ORDER_WEIGHT
from predictor.site.calibration.site_state import SiteState, write_state
from predictor.site.similar.memory import SiteMemory
from slurm_plugin.cluster import Settings
from slurm_plugin.config import Order, SlurmLimits, policy_at
from slurm_plugin.decide import SlurmDecider
from slurm_plugin.mark import parse_mark
from slurm_plugin.order import delay_s, warnings
from slurm_plugin.protocol import HookAnswer, HookRequest

TOOK_S = 7000.0


@pytest.fixture(scope="module")
def memory() -> SiteMemory:
    runs = [
        run_of(n, asked="", elapsed_s=TOOK_S, user="u1", name=f"sim-{n}", submit_line="")
        for n in range(60)
    ]
    return SiteState.learn(runs).memory


@pytest.fixture
def decide(fitted: Fitted, memory: SiteMemory) -> Any:
    def make(request: HookRequest, **limits: Any) -> HookAnswer:
        view, policy = cluster(), policy_of({"limits": limits})
        return SlurmDecider(fitted.predictor, policy, view, memory=memory).decide(request)

    return make


SIMULATION = submit(comment="", name="sim-99")


def test_a_job_nothing_is_known_of_gets_what_similar_runs_took(decide: Any) -> None:
    answer = decide(SIMULATION, history_mode="fill")
    assert answer.time_limit * 60 >= TOOK_S
    assert answer.time_limit % 5 == 0
    assert "similar to 60 of your runs: 1 h 57 min expected (95 %: 1 h 58 min)" in answer.message
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert (mark.limit, mark.p50_s) == (answer.time_limit, None)


def test_without_being_asked_it_sets_no_limit_and_tells_the_estimate(decide: Any) -> None:
    answer = decide(SIMULATION)
    mark = parse_mark(answer.admin_comment)
    assert answer.time_limit is None
    assert answer.message.startswith("similar to 60 of your runs")
    assert mark is not None
    assert [mark.expected_s, mark.mean_s, mark.upper_s] == pytest.approx([TOOK_S] * 3, rel=0.05)
    assert (mark.own, mark.cpus, mark.limit) == ("none", 1, None)


def test_a_limit_far_above_what_similar_runs_took_is_told_and_kept(decide: Any) -> None:
    answer = decide(submit(comment="", name="sim-99", time_limit=2880.0))
    assert answer.time_limit is None
    assert "your limit is long, " in answer.message
    assert "limit" not in decide(submit(comment="", name="sim-99", time_limit=200.0)).message


@pytest.mark.parametrize(
    ("priority", "scheduler", "age", "name"),
    [
        ("multifactor", "builtin", 2.0, "site_factor"),
        ("multifactor", "backfill", 0.0, "site_factor"),
        ("basic", "backfill", 0.0, "nice"),
        ("basic", "builtin", 0.0, None),
    ],
)
def test_the_order_is_written_where_this_scheduler_heeds_it(
    fitted: Fitted, memory: SiteMemory, priority: str, scheduler: str, age: float, name: str | None
) -> None:
    view = cluster()
    settings = replace(
        view.settings,
        priority=priority,
        scheduler=scheduler,
        age_points_per_s=age,
        age_max_s=86400.0,
    )
    view = replace(view, settings=settings)
    policy = policy_of({"order": {"mode": "apply", "weight": 2, "longest_delay": "5h"}})
    decider = SlurmDecider(fitted.predictor, policy, view, memory=memory)
    answer = decider.decide(SIMULATION)
    delay_s = 2 * TOOK_S
    assert answer.order == name
    if name is None:
        assert answer.delay is None
    else:
        assert answer.delay == pytest.approx((age or 1.0) * delay_s, rel=0.05)
        assert (answer.since is None) == (age > 0)
        assert answer.other_delay == (age or 1.0) * 18000
    advised = policy_of({"order": {"mode": "advise"}})
    told = SlurmDecider(fitted.predictor, advised, view, memory=memory).decide(SIMULATION)
    assert (told.order, told.delay) == (None, None)
    assert "delay_s=" in told.log


@pytest.mark.parametrize("limits", [{"history_mode": "advise"}, {"mode": "warn"}])
def test_advice_changes_nothing(decide: Any, limits: dict[str, str]) -> None:
    answer = decide(SIMULATION, **{"history_mode": "fill"} | limits)
    assert answer.time_limit is None
    assert "would do" in answer.message


def test_a_job_with_a_model_but_no_length_too(decide: Any, memory: SiteMemory) -> None:
    request = submit(comment="model=resnet50 precision=amp batch=64", name="sim-7")
    answer = decide(request, history_mode="fill")
    assert answer.time_limit * 60 >= TOOK_S
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert mark.step_s is not None


def test_a_prediction_and_a_limit_of_the_users_own_come_first(decide: Any) -> None:
    predicted = submit(name="sim-99")
    assert decide(predicted, history_mode="fill") == decide(predicted)
    assert decide(submit(comment="", name="sim-9", time_limit=5.0), history_mode="fill") == decide(
        submit(comment="", name="sim-9", time_limit=5.0)
    )


def test_a_limit_is_too_short_by_the_estimate_not_by_physics_alone(decide: Any) -> None:
    enough = decide(submit(name="sim-99", time_limit=130.0)).message
    assert "1 h 57 min expected" in enough
    assert "too short" not in enough
    assert (
        "your limit of 1:40:00 is probably too short"
        in decide(submit(name="sim-99", time_limit=100.0)).message
    )


def test_jobs_of_other_names_are_not_answered_alike(fitted: Fitted, memory: SiteMemory) -> None:
    view, policy = cluster(), policy_of({"limits": {"history_mode": "fill"}})
    decider = SlurmDecider(fitted.predictor, policy, view, memory=memory)
    assert decider.decide(SIMULATION).time_limit is not None
    assert decider.decide(submit(comment="", name="other")).time_limit is None


def test_auto_is_what_the_runs_of_the_site_reported(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "slurm.yaml"
    limits = {"startup_min": "auto", "checkpoint_share": "auto", "history_mode": False}
    path.write_text(yaml.safe_dump({"site": "alpha", "limits": limits}))
    assert policy_at(path).limits.startup_s == SlurmLimits().startup_s
    runs = [run_of(n, reported=told(0.1, startup_s=120.0, paused_s=10.0)) for n in range(40)]
    write_state(SiteState.learn(runs))
    found = policy_at(path).limits
    assert (found.startup_s, found.pause_share) == (120.0, pytest.approx(0.1))


@pytest.mark.parametrize("estimate_s", [0.0, 3600.0, 86_400.0, 9 * 86_400.0])
def test_the_order_is_the_one_that_the_backtest_plays(estimate_s: float) -> None:
    played = min(ORDER_WEIGHT * estimate_s, ORDER_BOUND_S)
    assert delay_s(Order(), estimate_s) == played


@pytest.mark.parametrize(
    ("settings", "policy", "said"),
    [
        ({"priority": "basic", "scheduler": "builtin"}, {}, "nothing is written"),
        ({"priority": "basic", "scheduler": "backfill"}, {}, "users can undo it"),
        ({"age_points_per_s": 1.0, "age_max_s": 3600.0}, {}, "raise PriorityMaxAge"),
        ({"age_points_per_s": 1e-5, "age_max_s": 1e9}, {}, "worth 6 points"),
        ({"age_points_per_s": 1.0, "age_max_s": 1e9}, {}, None),
        ({"age_points_per_s": 1.0, "age_max_s": 3600.0}, {"longest_delay": "1h"}, None),
        ({}, {}, None),  # time of submission counted in
    ],
)
def test_the_admin_is_warned_of_what_weakens_the_order(
    settings: dict[str, Any], policy: dict[str, str], said: str | None
) -> None:
    given = Settings(**{"priority": "multifactor", "scheduler": "backfill"} | settings)
    told = warnings(Order(**policy), given)
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


@pytest.mark.parametrize(("took", "set_"), [(1.4, True), (15.0, False)])
def test_no_limit_is_shorter_than_the_time_told_beside_it(
    fitted: Fitted, took: float, set_: bool
) -> None:
    """By physics alone it would be, where runs of the user took longer than physics says."""
    request = submit(name="sim-99", comment=JOB.replace("epochs=90", "epochs=9"))
    policy = policy_of({})
    alone = parse_mark(
        SlurmDecider(fitted.predictor, policy, cluster()).decide(request).admin_comment
    )
    assert alone is not None
    assert alone.hi_s is not None
    asked = {"asked": "", "user": "u1", "submit_line": ""}
    runs = [
        run_of(n, name=f"sim-{n}", elapsed_s=alone.hi_s * (took if n % 2 else 0.6), **asked)
        for n in range(60)
    ]
    memory = SiteState.learn(runs).memory
    answer = SlurmDecider(fitted.predictor, policy, cluster(), memory=memory).decide(request)
    mark = parse_mark(answer.admin_comment)
    assert mark is not None
    assert mark.upper_s is not None
    if set_:
        assert 60 * (answer.time_limit or 0) >= mark.upper_s > 1.2 * alone.hi_s
        assert answer.time_limit % policy.limits.rounding_min == 0  # type: ignore[operator]
    else:
        assert answer.time_limit is None
        assert "times the median, over 4: no limit is set" in (answer.message or "")


def test_the_time_that_is_told_is_of_the_quantile_of_the_policy(decide: Any) -> None:
    said = decide(SIMULATION, history_mode="fill", quantile=0.8).message
    assert "1 h 57 min expected (80 %: " in said
