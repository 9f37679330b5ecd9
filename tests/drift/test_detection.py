"""A regression is found within a few runs, with its date and size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from drifting import WEEK_S, site

from predictor.site.drift.watch import Drift, Observation, watch

BEFORE = 1500  # runs, on average 25 of each user and configuration
AFTER = 300
PER_WEEK = 100.0


def drift_of(runs: list[Observation]) -> Drift:
    return watch(runs, Counter(), false_alarms_per_year=1.0)


def delay(found: Drift, changed_s: float) -> int:
    """Runs from the change until the first alarm after it, of any stream."""
    after = [c.alarm_s for w in found.streams for c in w.changes if c.alarm_s >= changed_s]
    return round((min(after) - changed_s) / WEEK_S * PER_WEEK) + 1 if after else AFTER + 1


@pytest.mark.parametrize(("slower", "most"), [(1.08, 40), (1.2, 30), (1 / 1.2, 30)])
def test_a_driver_regression_is_found_soon(slower: float, most: int) -> None:
    delays = []
    for seed in range(5):
        runs = list(
            site(BEFORE + AFTER, per_week=PER_WEEK, seed=seed, slower=slower, from_run=BEFORE)
        )
        delays.append(delay(drift_of(runs), runs[BEFORE].end_s))
    assert np.median(delays) <= most


@pytest.mark.parametrize("slower", [1.08, 1.2, 1 / 1.2])
def test_date_and_size_are_told(slower: float) -> None:
    runs = list(site(BEFORE + AFTER, per_week=PER_WEEK, seed=1, slower=slower, from_run=BEFORE))
    found = drift_of(runs)
    whole = found.streams[0]
    assert whole.stream.model is None
    change = whole.standing
    assert change is not None
    assert change.shift == pytest.approx(slower - 1, abs=0.03)
    assert abs(change.since_s - runs[BEFORE].end_s) < 15 * WEEK_S / PER_WEEK
    assert change.configurations > 1


def test_a_change_of_one_gpu_type_is_told_of_no_other() -> None:
    good = list(site(BEFORE + AFTER, per_week=PER_WEEK, seed=5))
    bad = site(BEFORE + AFTER, per_week=PER_WEEK, seed=6, slower=1.2, from_run=BEFORE)
    other = [replace(o, job=o.job.but(gpu="v100-sxm2-16gb")) for o in bad]
    both = sorted([*good, *other], key=lambda o: o.end_s)
    found = watch(both, Counter(), false_alarms_per_year=0.05)
    late = {w.stream.gpu for w in found.alarms}
    assert late == {"v100-sxm2-16gb"}


def test_what_each_user_and_configuration_takes_may_differ_and_come_in_bursts() -> None:
    """A mix that moves to slow configurations is no change: chance alone may alarm once a year."""
    alarms = 0
    for seed in range(9, 13):  # twenty weeks each
        runs = list(site(2000, per_week=PER_WEEK, seed=seed))
        ordered = sorted(runs, key=lambda o: (o.user, o.job.model))
        moved = [replace(o, end_s=at.end_s) for o, at in zip(ordered, runs, strict=True)]
        alarms += len(list(drift_of(moved).alarms))
    assert alarms <= 1


def test_a_slowdown_is_found_where_every_slow_run_hits_its_limit() -> None:
    def limited(one: Observation) -> Observation:
        usual_s = usual[one.like] * 1.1
        return replace(one, step_s=min(one.step_s, usual_s), lower_bound=one.step_s > usual_s)

    runs = list(site(BEFORE + AFTER, per_week=PER_WEEK, seed=2, slower=1.3, from_run=BEFORE))
    usual: dict[object, float] = {}
    for one in runs[:BEFORE]:
        usual.setdefault(one.like, one.step_s)
    found = drift_of([limited(o) for o in runs if o.like in usual])
    assert any(w.standing and w.standing.since_s >= runs[BEFORE - 30].end_s for w in found.alarms)


def test_few_runs_raise_no_alarm() -> None:
    runs = list(site(20, per_week=PER_WEEK, seed=4, slower=3.0, from_run=10))
    assert not list(drift_of(runs).alarms)


def test_a_change_stands_until_a_predictor_made_after_it_predicts() -> None:
    runs = list(site(BEFORE + AFTER, per_week=PER_WEEK, seed=1, slower=1.2, from_run=BEFORE))
    old = "20200101-000000-000000-0123456789ab"
    new = "20990101-000000-000000-0123456789ab"
    told = [replace(o, version=old, error=0.1) for o in runs]
    assert list(drift_of(told).alarms)
    learned = [*told[:-1], replace(told[-1], version=new)]
    found = drift_of(learned)
    assert found.streams[0].standing is None
    assert found.streams[0].changes
