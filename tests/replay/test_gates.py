"""A replay keeps what jobs wait for besides room: other jobs, turns of an array, GPUs away."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.site.replay import (
    NO_GATES,
    After,
    Away,
    Gates,
    Pool,
    Schedule,
    Throttle,
    Trace,
    replay,
)

POOL = Pool(name="p", gpus=8, gpus_per_node=4)


def replayed(
    *run_s: float,
    gpus: int = 1,
    gates: Gates = NO_GATES,
    away: tuple[Away, ...] = (),
    pools: int = 1,
    runs: tuple[int, ...] = (),
    limit_s: float = 1000.0,
) -> Schedule:
    """Jobs that come at once; with more pools the n-th job runs in pool n alone."""
    n = len(run_s)
    table = np.full((n, pools), np.nan)
    table[np.arange(n), np.arange(n) % pools] = run_s
    trace = Trace(
        submit_s=np.zeros(n),
        gpus=np.full(n, gpus),
        limit_s=np.full(n, limit_s),
        run_s=table,
        runs=np.isin(np.arange(n), runs),
    )
    named = [Pool(name=f"p{i}", gpus=8, gpus_per_node=4) for i in range(pools)]
    return replay(trace, [POOL] if pools == 1 else named, gates=gates, away=away)


def test_a_job_starts_when_the_one_it_waits_for_has_ended() -> None:
    gates = Gates(after=(After(job=0, other=1),))
    assert replayed(5, 7, gates=gates).start_s.tolist() == [7, 0]


def test_it_waits_for_one_in_another_pool_too() -> None:
    gates = Gates(after=(After(job=0, other=1),))
    assert replayed(5, 7, gates=gates, pools=2).start_s.tolist() == [7, 0]


def test_it_waits_for_a_start_and_a_delay() -> None:
    gates = Gates(after=(After(job=2, other=1, started=True, delay_s=3), After(job=1, other=0)))
    assert replayed(5, 7, 1, gates=gates).start_s.tolist() == [0, 5, 8]


def test_all_conditions_have_to_hold_or_any() -> None:
    after = (After(job=2, other=0), After(job=2, other=1))
    assert replayed(5, 7, 1, gates=Gates(after=after)).start_s[2] == 7
    assert replayed(5, 7, 1, gates=Gates(after=after, any_of=frozenset({2}))).start_s[2] == 5


def test_jobs_that_wait_for_each_other_never_start() -> None:
    gates = Gates(after=(After(job=0, other=1), After(job=1, other=0)))
    assert np.isnan(replayed(5, 7, 1, gates=gates).start_s).tolist() == [True, True, False]


def test_of_an_array_so_many_run_at_once() -> None:
    gates = Gates(throttles=(Throttle(jobs=(0, 1, 2, 3), at_most=2),))
    assert replayed(5, 7, 5, 5, 1, gates=gates).start_s.tolist() == [0, 0, 5, 7, 0]


def test_who_waits_for_something_else_keeps_nobody_back() -> None:
    gates = Gates(after=(After(job=0, other=2),))
    assert replayed(5, 7, 5, gpus=8, gates=gates).start_s.tolist() == [12, 0, 7]


def test_no_job_starts_that_might_run_when_its_gpus_go_away() -> None:
    away = (Away(pool="p", gpus=8, from_s=100, until_s=200),)
    assert replayed(50, 50, gpus=8, away=away, limit_s=100).start_s.tolist() == [0, 200]
    assert replayed(50, 50, gpus=8, away=away, limit_s=50).start_s.tolist() == [0, 50]


def test_gpus_of_other_nodes_can_be_used_meanwhile() -> None:
    away = (Away(pool="p", gpus=4, from_s=0, until_s=200),)
    assert replayed(50, 50, gpus=4, away=away).start_s.tolist() == [0, 50]
    twice = (*away, Away(pool="p", gpus=4, from_s=20, until_s=300))
    assert replayed(50, gpus=4, away=twice).start_s.tolist() == [200]


def test_a_job_that_runs_goes_on() -> None:
    away = (Away(pool="p", gpus=8, from_s=10, until_s=200),)
    assert replayed(50, 50, gpus=8, away=away, runs=(0,)).start_s.tolist() == [0, 200]


@settings(deadline=None)
@given(st.data())
def test_no_gpu_is_used_that_is_away(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    whole = st.integers(1, 20)
    limit = np.array([data.draw(whole) for _ in range(n)], dtype=float)
    run = np.array([data.draw(st.integers(1, int(most))) for most in limit], dtype=float)
    gpus = np.array([data.draw(st.integers(1, 8)) for _ in range(n)])
    away = tuple(
        Away(pool="p", gpus=4 * data.draw(st.integers(1, 2)), from_s=at, until_s=at + length)
        for at, length in data.draw(st.lists(st.tuples(whole, whole), max_size=3))
    )
    nodes = data.draw(st.sampled_from([4, None]))
    pool = Pool(name="p", gpus=8, gpus_per_node=nodes)
    submit = np.array([data.draw(st.integers(0, 30)) for _ in range(n)], dtype=float)
    trace = Trace(submit_s=submit, gpus=gpus, limit_s=limit, run_s=run[:, None])
    found = replay(trace, [pool], away=away)
    assert (found.start_s >= submit).all()
    for at in np.unique([*found.start_s, *(one.from_s for one in away)]):
        held = gpus[(found.start_s <= at) & (at < found.start_s + run)].sum()
        gone = sum(one.gpus for one in away if one.from_s <= at < one.until_s)
        assert held <= max(0, 8 - gone)


@settings(deadline=None)
@given(st.data())
def test_conditions_hold_in_every_replay(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 10))
    run = [float(data.draw(st.integers(1, 9))) for _ in range(n)]
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.booleans()))
    )
    after = tuple(After(job=a, other=b, started=s) for a, b, s in pairs if b < a)
    most = data.draw(st.integers(1, 3))
    tasks = tuple(data.draw(st.sets(st.integers(0, n - 1))))
    gates = Gates(after=after, throttles=(Throttle(jobs=tasks, at_most=most),))
    found = replayed(*run, gpus=3, gates=gates)
    assert not np.isnan(found.start_s).any()
    for one in after:
        other = found.start_s if one.started else found.end_s
        assert found.start_s[one.job] >= other[one.other]
    for at in found.start_s:
        runs = (found.start_s <= at) & (at < found.end_s)
        assert runs[list(tasks)].sum() <= most
