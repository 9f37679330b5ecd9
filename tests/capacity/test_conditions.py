"""What jobs of a live queue wait for besides GPUs: replayed where it can be, told where not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from capacity_jobs import START_S, frame
from site_runs import to_their_limits

from predictor.estimate.fitting import Fitted
from predictor.site.capacity.jobs import JobSource, with_live
from predictor.site.capacity.live import AfterJob, Live, LiveJob, Waits, pools_of_nodes
from predictor.site.capacity.queue import Cleared, cleared, estimates_at, queue_at
from predictor.site.expected_starts import BEHIND_ONE, HELD, IN_RESERVATION, TOO_LARGE
from predictor.site.replay import Away
from predictor.site.similar.request import JobRequest

NOW_S = START_S
V100 = "v100-sxm2-16gb"
ASKED = JobRequest(user="ada", account="lab", name="train", partition="gpu", gpus=1, gpu_type=V100)
JOB = LiveJob(
    job_id="1",
    request=ASKED,
    submit_s=NOW_S - 60,
    start_s=None,
    limit_s=100.0,
)
NODES = pools_of_nodes(((V100, 4), (V100, 4)))


def waits(job_id: str, *after: str, **more: Any) -> LiveJob:
    """A job that waits for these to end."""
    others = tuple(AfterJob(job_id=other) for other in after)
    fields = {name: more.pop(name) for name in list(more) if name in LiveJob.__slots__}
    request = replace(ASKED, gpus=more.pop("gpus", 1))
    conditions = Waits(after=others, **more)
    return replace(JOB, job_id=job_id, request=request, waits=conditions, **fields)


def runs(job_id: str, gpus: int = 1, **more: Any) -> LiveJob:
    return replace(JOB, job_id=job_id, request=replace(ASKED, gpus=gpus), start_s=NOW_S, **more)


def drained(fitted: Fitted, *jobs: LiveJob, away: tuple[Away, ...] = ()) -> Cleared:
    live = Live(
        scheduler="slurm",
        cluster="c",
        at_s=NOW_S,
        jobs=jobs,
        pools=NODES,
        away=away,
        notes=("a note",),
    )
    source = with_live(
        JobSource(frame=frame([]), kind="slurm", name="slurm"), live, to_their_limits("ada")
    )
    estimate = estimates_at(source, NOW_S, source.pools, fitted.predictor)
    return cleared(queue_at(source, NOW_S), source.pools, estimate)


def starts(found: Cleared) -> dict[str, float]:
    return {job.job_id: job.starts_s.median for job in found.queue}


def left_out(found: Cleared) -> dict[str, tuple[int, str]]:
    return {aside.reason: (aside.jobs, aside.example) for aside in found.set_aside}


def test_jobs_start_after_those_they_depend_on(fitted: Fitted) -> None:
    chain = (runs("1"), waits("2", "1"), waits("3", "2", "1"), waits("4", "99"))
    assert starts(drained(fitted, *chain)) == {"2": 100, "3": 200, "4": 0}


def test_one_of_several_can_be_enough(fitted: Fitted) -> None:
    late = runs("2", limit_s=500.0)
    found = drained(
        fitted,
        runs("1"),
        late,
        waits("3", "1", "2", any_of=True),
        waits("4", "9", "2", any_of=True),
    )
    assert starts(found) == {"3": 100, "4": 0}


def test_a_job_may_wait_for_a_start(fitted: Fitted) -> None:
    after = (AfterJob(job_id="2", started=True, delay_s=30.0),)
    third = replace(JOB, job_id="3", waits=Waits(after=after))
    assert starts(drained(fitted, runs("1"), waits("2", "1"), third))["3"] == 130


def test_a_time_to_begin_is_kept_and_the_priority_with_it(fitted: Fitted) -> None:
    late = waits("1", not_before_s=NOW_S + 150, gpus=8, priority=9)
    others = [waits(str(number), gpus=8) for number in (2, 3, 4)]
    assert starts(drained(fitted, late, *others)) == {"2": 0, "3": 100, "1": 200, "4": 300}


def test_tasks_of_an_array_take_turns(fitted: Fitted) -> None:
    running = runs("7_0", array="7", limit_s=50.0)
    tasks = [waits(f"7_{task}", array="7", at_most=2) for task in (1, 2, 3)]
    found = drained(fitted, running, *tasks, waits("8"))
    assert starts(found) == {"7_1": 0, "8": 0, "7_2": 50, "7_3": 100}


def test_what_keeps_a_job_out_keeps_those_behind_it_out(fitted: Fitted) -> None:
    found = drained(
        fitted,
        waits("1", held=True),
        waits("2", "1"),
        waits("3", "2"),
        waits("4", gpus=16),
        waits("5", never="it never does"),
        waits("6", reservation="maint"),
        waits("7", "8"),
        waits("8", "7"),
        waits("9"),
        waits("10", "9", "2", any_of=True),
    )
    assert starts(found) == {"9": 0, "10": 100}
    assert left_out(found) == {
        HELD: (1, "1"),
        BEHIND_ONE: (4, "2"),
        TOO_LARGE: (1, "4"),
        "it never does": (1, "5"),
        IN_RESERVATION: (1, "6"),
    }


def test_a_reservation_keeps_its_gpus_for_its_time(fitted: Fitted) -> None:
    away = Away(pool=V100, gpus=8, from_s=NOW_S + 150, until_s=NOW_S + 1000)
    found = drained(fitted, waits("1", gpus=8), waits("2", gpus=8), away=(away,))
    assert starts(found) == {"1": 0, "2": 1000}
    assert found.notes == ("a note",)


def test_what_runs_in_a_reservation_holds_no_other_gpus(fitted: Fitted) -> None:
    away = Away(pool=V100, gpus=4, from_s=NOW_S - 10, until_s=NOW_S + 1000)
    inside = runs("1", gpus=4, reserved=True)
    found = drained(fitted, inside, waits("2", gpus=4), waits("3", "1"), away=(away,))
    assert starts(found) == {"2": 0, "3": 100}


@pytest.mark.parametrize("text", ["", "end of 1"])
def test_each_job_says_what_it_waits_for(fitted: Fitted, text: str) -> None:
    [job] = drained(fitted, waits("2", text=text)).queue
    assert job.waits_for == text
