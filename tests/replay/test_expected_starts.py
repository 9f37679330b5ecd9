"""When the jobs of a queue start by estimates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from predictor.site.capacity.live import AfterJob, Live, LiveJob, Waits
from predictor.site.expected_starts import DRAWS, ExpectedTime, draw_levels, replayed
from predictor.site.replay import Away, Floats, Pool
from predictor.site.similar.request import JobRequest

NOW_S = 1.7e9
LIMIT_S = 10_000.0
POOL = Pool(name="a100", gpus=8, gpus_per_node=4)


def job(job_id: str, gpus: int, *, ran_s: float | None = None, priority: int = 0) -> LiveJob:
    return LiveJob(
        job_id=job_id,
        request=JobRequest(user="ada", name="train", partition="gpu", gpus=gpus, gpu_type="a100"),
        submit_s=NOW_S - 5000,
        start_s=None if ran_s is None else NOW_S - ran_s,
        limit_s=LIMIT_S,
        priority=priority,
    )


def live(*jobs: LiveJob, away: tuple[Away, ...] = ()) -> Live:
    return Live(scheduler="slurm", cluster="", at_s=NOW_S, jobs=jobs, pools=(POOL,), away=away)


def starts(queue: Live, *run_s: float) -> Floats:
    run = np.tile(np.array(run_s)[:, None], (1, DRAWS))
    return replayed(queue, run, queue.pools).start_s


def test_a_job_starts_when_the_estimate_of_the_one_before_it_ends_and_not_its_limit() -> None:
    found = starts(live(job("1", 8, ran_s=600), job("2", 8)), 300.0, 900.0)
    assert (found[0] == 0).all()
    assert (found[1] == 300).all()


def test_a_higher_priority_starts_first() -> None:
    waiting = (job("2", 8, priority=1), job("3", 8, priority=2))
    found = starts(live(job("1", 8, ran_s=600), *waiting), 300.0, 900.0, 50.0)
    assert (found[:, 0] == (0, 350, 300)).all()


def test_nothing_runs_longer_than_its_limit_allows() -> None:
    found = starts(live(job("1", 8, ran_s=LIMIT_S - 100), job("2", 8)), 9000.0, 60.0)
    assert (found[1] == 100).all()


def test_the_range_is_that_of_the_run_times() -> None:
    queue = live(job("1", 8, ran_s=600), job("2", 8))
    run_s = np.vstack([1000 * draw_levels(2)[0], np.full(DRAWS, 60.0)])
    found = ExpectedTime.of(replayed(queue, run_s, queue.pools).start_s[1])
    assert found is not None
    assert found.expected_s == pytest.approx(500)
    assert found.low_s < 120
    assert found.high_s > 880


@pytest.mark.parametrize(
    "stands",
    [
        {"held": True},
        {"waits": Waits(never="its dependency failed")},
        {"waits": Waits(reservation="course")},
        {"request": JobRequest(gpus=8, gpu_type="h100")},
        {"request": JobRequest(gpus=9, gpu_type="a100")},
    ],
)
def test_a_job_that_will_not_start_has_no_time_and_delays_nobody(stands: dict[str, object]) -> None:
    first = replace(job("1", 8, priority=9), **stands)  # type: ignore[arg-type]
    found = starts(live(first, job("2", 8)), 100.0, 100.0)
    assert np.isnan(found[0]).all()
    assert ExpectedTime.of(found[0]) is None
    assert (found[1] == 0).all()


def test_what_jobs_wait_for_besides_room_counts() -> None:
    after = replace(job("2", 1), waits=Waits(after=(AfterJob(job_id="1"),)))
    later = replace(job("3", 1), waits=Waits(not_before_s=NOW_S + 700))
    found = starts(live(job("1", 1, ran_s=60), after, later), 250.0, 10.0, 10.0)
    assert (found[:, 0] == (0, 250, 700)).all()


def test_gpus_that_go_away_start_nothing_that_would_still_run() -> None:
    away = Away(pool="a100", gpus=8, from_s=NOW_S + 500, until_s=NOW_S + 900)
    found = starts(live(job("1", 8), away=(away,)), 60.0)
    assert (found[0] == 900).all()
