"""Promises of the simulator: laws on random traces, and examples worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import TraceError
from predictor.site.replay import Policy, Pool, Schedule, Trace, in_pools, replay

GPUS = 8
NODE = 4
FLAT = Pool(name="a100", gpus=GPUS)
PACKED = Pool(name="a100", gpus=GPUS, gpus_per_node=NODE)


@dataclass(frozen=True)
class Job:
    submit: int
    gpus: int
    limit: int
    run: int
    pools: frozenset[int] = frozenset({0})


def trace_of(jobs: list[Job], pools: int = 1, priority: list[int] | None = None) -> Trace:
    run_s = [[j.run if p in j.pools else np.nan for p in range(pools)] for j in jobs]
    return Trace(
        submit_s=np.array([j.submit for j in jobs], dtype=float),
        gpus=np.array([j.gpus for j in jobs], dtype=np.int64),
        limit_s=np.array([j.limit for j in jobs], dtype=float),
        run_s=np.array(run_s, dtype=float).reshape(len(jobs), pools),
        priority=None if priority is None else np.array(priority),
    )


def starts(jobs: list[Job], policy: Policy, pool: Pool = FLAT) -> list[float]:
    return replay(trace_of(jobs), [pool], policy=policy).start_s.tolist()


def jobs_of(gpus: st.SearchStrategy[int], pools: int = 1) -> st.SearchStrategy[list[Job]]:
    places = st.sets(st.integers(0, pools - 1), min_size=1).map(frozenset)
    job = st.builds(
        Job,
        submit=st.integers(0, 12),
        gpus=gpus,
        limit=st.integers(1, 12),
        run=st.integers(1, 15),
        pools=places,
    )
    return st.lists(job, min_size=1, max_size=14)


any_jobs = jobs_of(st.integers(1, GPUS))
pools_used = st.sampled_from([FLAT, PACKED])
policies = st.sampled_from(list(Policy))
plain_policies = st.sampled_from([Policy.FIFO, Policy.EASY])


def in_use(trace: Trace, out: Schedule, pool: int, at: float) -> int:
    running = (out.pool == pool) & (out.start_s <= at) & (at < out.end_s)
    return int(trace.gpus[running].sum())


# --- laws ---------------------------------------------------------------------------------------


@given(jobs_of(st.integers(1, GPUS), pools=2), policies, pools_used)
def test_no_pool_is_ever_overfull_and_no_job_starts_early(
    jobs: list[Job], policy: Policy, pool: Pool
) -> None:
    trace = trace_of(jobs, 2)
    out = replay(trace, [pool, FLAT], policy=policy)
    for at in out.start_s:
        assert all(in_use(trace, out, p, at) <= GPUS for p in (0, 1))
    assert (out.start_s >= trace.submit_s).all()
    assert all(out.pool[i] in job.pools for i, job in enumerate(jobs))


@given(any_jobs, policies, pools_used)
def test_work_is_conserved_and_a_job_ends_at_its_run_time_or_its_limit(
    jobs: list[Job], policy: Policy, pool: Pool
) -> None:
    out = replay(trace_of(jobs), [pool], policy=policy)
    assert (out.end_s - out.start_s).tolist() == [min(j.run, j.limit) for j in jobs]
    assert out.killed.tolist() == [j.run > j.limit for j in jobs]


@given(any_jobs, policies)
def test_exact_limits_never_kill(jobs: list[Job], policy: Policy) -> None:
    exact = [Job(j.submit, j.gpus, j.run, j.run) for j in jobs]
    assert not replay(trace_of(exact), [FLAT], policy=policy).killed.any()


@given(jobs_of(st.integers(1, GPUS), pools=2), pools_used)
def test_fifo_keeps_the_order_in_every_pool(jobs: list[Job], pool: Pool) -> None:
    trace = trace_of(jobs, 2)
    out = replay(trace, [pool, pool], policy=Policy.FIFO)
    order = np.lexsort((np.arange(len(jobs)), trace.submit_s))
    for place, first in enumerate(order):
        for later in order[place + 1 :]:
            if out.start_s[later] < out.start_s[first]:
                assert out.pool[later] not in jobs[first].pools


@given(any_jobs, pools_used)
def test_easy_keeps_the_promise_made_to_the_head_of_the_queue(jobs: list[Job], pool: Pool) -> None:
    out = replay(trace_of(jobs), [pool], policy=Policy.EASY)
    promised = ~np.isnan(out.promised_s)
    assert (out.start_s[promised] <= out.promised_s[promised]).all()


@given(jobs_of(st.integers(1, GPUS), pools=2), pools_used)
def test_easy_keeps_the_promise_with_several_pools(jobs: list[Job], pool: Pool) -> None:
    out = replay(trace_of(jobs, 2), [pool, FLAT], policy=Policy.EASY)
    promised = ~np.isnan(out.promised_s)
    assert (out.start_s[promised] <= out.promised_s[promised]).all()


@given(jobs_of(st.just(1)), policies, pools_used)
def test_without_contention_nobody_waits(jobs: list[Job], policy: Policy, pool: Pool) -> None:
    few = jobs[:GPUS]
    assert starts(few, policy, pool) == [j.submit for j in few]


@given(jobs_of(st.sampled_from([NODE, 2 * NODE])), plain_policies)
def test_whole_nodes_are_like_single_gpus(jobs: list[Job], policy: Policy) -> None:
    nodes = [Job(j.submit, j.gpus // NODE, j.limit, j.run) for j in jobs]
    assert starts(jobs, policy, PACKED) == starts(
        nodes, policy, Pool(name="nodes", gpus=GPUS // NODE)
    )


@given(any_jobs)
def test_without_depth_easy_is_fifo(jobs: list[Job]) -> None:
    shallow = replay(trace_of(jobs), [FLAT], policy=Policy.EASY, depth=0)
    assert shallow.start_s.tolist() == starts(jobs, Policy.FIFO)


@given(any_jobs, any_jobs, policies)
def test_pools_without_a_common_job_do_not_touch_each_other(
    here: list[Job], there: list[Job], policy: Policy
) -> None:
    there = [Job(j.submit, j.gpus, j.limit, j.run, frozenset({1})) for j in there]
    both = replay(trace_of(here + there, 2), [FLAT, FLAT], policy=policy).start_s.tolist()
    alone = [Job(j.submit, j.gpus, j.limit, j.run) for j in there]
    assert both == starts(here, policy) + starts(alone, policy)


@given(any_jobs, plain_policies)
def test_equals_a_simulator_that_looks_at_every_second(jobs: list[Job], policy: Policy) -> None:
    assert starts(jobs, policy) == second_by_second(jobs, easy=policy is Policy.EASY)


def second_by_second(jobs: list[Job], *, easy: bool) -> list[float]:
    """One pool of GPUS, from the definition of EASY, without any cleverness."""
    started: dict[int, int] = {}
    now = 0
    while len(started) < len(jobs):

        def used(at: int, *, by_limit: bool = False) -> int:
            length = {
                i: jobs[i].limit if by_limit else min(jobs[i].run, jobs[i].limit) for i in started
            }
            return sum(jobs[i].gpus for i, t in started.items() if t <= at < t + length[i])

        waiting = [i for i, j in enumerate(jobs) if i not in started and j.submit <= now]
        waiting.sort(key=lambda i: (jobs[i].submit, i))
        while waiting and used(now) + jobs[waiting[0]].gpus <= GPUS:
            started[waiting.pop(0)] = now
        if easy and waiting:
            head = jobs[waiting[0]]
            still = {i for i, t in started.items() if t + min(jobs[i].run, jobs[i].limit) > now}

            def promised(at: int, head: Job = head, still: set[int] = still) -> bool:
                held = sum(jobs[i].gpus for i in still if started[i] + jobs[i].limit > at)
                return held + head.gpus <= GPUS

            shadow = next(at for at in range(now, now + 1000) if promised(at))
            for i in waiting[1:]:
                if used(now) + jobs[i].gpus > GPUS:
                    continue
                started[i] = now
                still.add(i)
                if not promised(shadow):
                    still.remove(i)
                    del started[i]
        now += 1
    return [float(started[i]) for i in range(len(jobs))]


# --- examples worked out by hand ------------------------------------------------------------------

# Four GPUs. A holds three until 10; B needs all four, so B is promised second 10. One GPU is free:
# D's limit ends at 10 and may go before B, C's ends at 11 and may not.
A, B, C, D = Job(0, 3, 10, 10), Job(1, 4, 10, 10), Job(2, 1, 9, 5), Job(2, 1, 8, 8)
FOUR = Pool(name="four", gpus=4)


def test_fifo_by_hand() -> None:
    assert starts([A, B, C, D], Policy.FIFO, FOUR) == [0, 10, 20, 20]


def test_easy_by_hand() -> None:
    out = replay(trace_of([A, B, C, D]), [FOUR])
    assert out.start_s.tolist() == [0, 10, 20, 2]
    assert out.promised_s[1] == 10


def test_a_long_job_may_take_gpus_that_the_head_will_not_need() -> None:
    head, spare, other = Job(1, 3, 10, 10), Job(2, 1, 99, 99), Job(3, 1, 99, 99)
    first = Job(0, 2, 10, 10)
    # Free are two; the head needs three at 10, so one of the two is spare for as long as it likes.
    assert starts([first, head, spare, other], Policy.EASY, FOUR) == [0, 10, 2, 20]


def test_spare_gpus_are_given_away_once() -> None:
    first, head = Job(0, 2, 10, 10), Job(1, 3, 10, 10)
    both = [Job(2, 1, 99, 99), Job(2, 1, 99, 99)]
    assert starts([first, head, *both], Policy.EASY, FOUR) == [0, 10, 2, 20]


def test_all_that_end_at_one_time_leave_their_gpus_spare() -> None:
    ending = [Job(0, 1, 10, 10), Job(0, 2, 10, 10)]
    # The head takes two of the four at 10, so a long job may have the free one at once.
    assert starts([*ending, Job(1, 2, 5, 5), Job(2, 1, 99, 99)], Policy.EASY, FOUR)[2:] == [10, 2]


def test_gpus_spread_over_nodes_do_not_serve_a_job_of_one_node() -> None:
    half = [Job(0, 3, 10, 10), Job(0, 3, 20, 20), Job(1, 2, 5, 5)]
    assert starts(half, Policy.EASY, FLAT) == [0, 0, 1]
    assert starts(half, Policy.EASY, PACKED) == [0, 0, 10]


def test_a_job_beyond_one_node_takes_whole_nodes_and_the_rest_on_another() -> None:
    three = Pool(name="three nodes", gpus=12, gpus_per_node=4)
    jobs = [Job(0, 2, 10, 10), Job(1, 6, 5, 5), Job(2, 4, 5, 5)]
    assert starts(jobs, Policy.EASY, three) == [0, 1, 2]


def test_a_job_runs_as_long_as_the_pool_it_got_makes_it() -> None:
    trace = Trace(
        submit_s=np.array([0.0, 0.0]),
        gpus=np.array([8, 8]),
        limit_s=np.array([50.0, 50.0]),
        run_s=np.array([[10.0, 30.0], [10.0, 30.0]]),
    )
    out = replay(trace, [FLAT, Pool(name="v100", gpus=GPUS)])
    assert out.pool.tolist() == [0, 1]
    assert out.end_s.tolist() == [10, 30]


def test_a_higher_priority_goes_first() -> None:
    jobs = [Job(0, 8, 5, 5), Job(1, 8, 5, 5), Job(2, 8, 5, 5)]
    out = replay(trace_of(jobs, priority=[0, 0, 7]), [FLAT])
    assert out.start_s.tolist() == [0, 10, 5]


def test_an_empty_trace_gives_an_empty_schedule() -> None:
    assert len(replay(trace_of([]), [FLAT]).start_s) == 0


# --- what is refused ------------------------------------------------------------------------------


def test_a_job_that_no_pool_can_hold_is_named() -> None:
    with pytest.raises(TraceError, match="gpus=9 of job 1"):
        replay(trace_of([Job(0, 1, 1, 1), Job(0, 9, 1, 1)]), [FLAT])


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (Job(0, 0, 1, 1), "gpus=0 of job 0"),
        (Job(0, 1, 0, 1), "limit_s=0.0 of job 0"),
        (Job(0, 1, 1, -1), "run_s"),
    ],
)
def test_impossible_values_are_named(job: Job, named: str) -> None:
    with pytest.raises(TraceError, match=named):
        trace_of([job])


def test_pools_must_be_whole_nodes_and_one_for_each_column() -> None:
    with pytest.raises(TraceError, match="whole nodes"):
        Pool(name="odd", gpus=10, gpus_per_node=4)
    with pytest.raises(TraceError, match="1 columns for 2 pools"):
        replay(trace_of([A]), [FLAT, FLAT])


def test_one_pool_each_as_a_table() -> None:
    table = in_pools([5.0, 6.0], [1, 0], 2)
    assert np.array_equal(table, [[np.nan, 5.0], [6.0, np.nan]], equal_nan=True)
