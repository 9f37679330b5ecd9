"""The queue: who waits at a moment, and when they start and end on the GPUs there are."""

from __future__ import annotations

from typing import Any

import pytest
from capacity_jobs import START_S, frame, job

from predictor.estimate.fitting import Fitted
from predictor.site.capacity.jobs import JobSource
from predictor.site.capacity.queue import Cleared, cleared, estimates_at, queue_at
from predictor.site.replay import Pool

NOW_S = START_S + 3600
V100 = Pool(name="v100-sxm2-16gb", gpus=4)
ASKED = "model=resnet50 precision=fp32 batch_size=64 steps=20000"


def waiting(job_id: str, **values: Any) -> dict[str, Any]:
    return job(job_id=job_id, state="pending", start_s=None, end_s=None) | values


def drained(fitted: Fitted, *jobs: dict[str, Any], pool: Pool = V100) -> Cleared:
    source = JobSource(frame=frame(jobs), kind="file", name="jobs.csv")
    estimate = estimates_at(source, NOW_S, [pool], fitted.predictor)
    return cleared(queue_at(source, NOW_S), [pool], estimate)


def test_an_empty_queue_needs_nothing(fitted: Fitted) -> None:
    assert drained(fitted, job()) == Cleared()


def test_a_job_with_room_starts_at_once(fitted: Fitted) -> None:
    found = drained(fitted, waiting("7", gpus=4, asked=ASKED))
    [one] = found.queue
    assert one.starts_s.high == 0
    assert 0 < one.ends_s.low < one.ends_s.median < one.ends_s.high


def test_a_job_waits_for_the_one_that_runs(fitted: Fitted) -> None:
    runs = job(job_id="1", end_s=None, state="running", gpus=4, asked=ASKED, start_s=NOW_S - 60)
    found = drained(fitted, runs, waiting("2", gpus=1))
    [one] = found.queue
    assert one.job_id == "2"
    assert one.starts_s.low > 0


def test_what_became_of_a_job_later_is_not_known_at_the_moment(fitted: Fitted) -> None:
    later = job(job_id="5", start_s=NOW_S + 50, end_s=NOW_S + 60)
    assert [one.job_id for one in drained(fitted, later).queue] == ["5"]


def test_every_job_has_an_estimate_that_says_what_it_rests_on(fitted: Fitted) -> None:
    """Jobs that name no network, of users whom nobody knows, at a site without a past."""
    jobs = [waiting(str(at), user=f"u{at}", gpus=1) for at in range(4)]
    found = drained(fitted, *jobs)
    assert [one.jobs for one in found.backlog] == [4]
    assert 0 < found.backlog[0].gpu_hours.median < 4 * 2, "part of their limits"
    assert {one.assumptions for one in found.queue} == {
        "nothing is known of this site: any share of the limit is taken as likely"
    }


def test_the_jobs_of_a_file_that_ended_teach_what_its_queue_needs(fitted: Fitted) -> None:
    past = [
        job(job_id=f"p{at}", submit_s=s, start_s=s, end_s=s + 600)
        for at, s in enumerate(START_S - 3600 * n for n in range(1, 20))
    ]
    [one] = drained(fitted, *past, waiting("1")).queue
    assert one.ends_s.median == pytest.approx(600, rel=0.02)
    assert one.evidence.startswith("19 runs of the same user, name and number of GPUs")


def test_a_job_larger_than_its_pool_is_set_aside(fitted: Fitted) -> None:
    found = drained(fitted, waiting("1", gpus=8), waiting("2"))
    assert [one.job_id for one in found.queue] == ["2"]
    assert [(aside.jobs, aside.example) for aside in found.set_aside] == [(1, "1")]


def test_a_job_never_outlasts_its_limit(fitted: Fitted) -> None:
    [one] = drained(fitted, waiting("1", asked=ASKED, limit_s=600.0)).queue
    assert one.ends_s.high <= 600
