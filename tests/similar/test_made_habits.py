"""A made history of habits: arrays, requeues, chains, resumes, limits that are too short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from predictor.site.similar.estimate import carried_limit_s, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd, batch_of
from predictor.site.similar.request import JobRequest, script_signature

HOUR_S, DAY_S = 3600.0, 86_400.0
Attempt = tuple[float, float, float | None, str]  # submitted, would run, user's limit, what it runs


def spread(rng: np.random.Generator, middle_s: float, sigma: float) -> float:
    return middle_s * float(np.exp(rng.normal(0.0, sigma)))


def arrays(rng: np.random.Generator) -> Iterator[Attempt]:
    """Fifty tasks at once, of one sweep; the next sweep trains another size of the network."""
    for sweep in range(8):
        size_s = float(rng.uniform(0.7, 1.4)) * 2 * HOUR_S
        for _ in range(50):
            yield sweep * DAY_S, spread(rng, size_s, 0.3), None, "sweep.py --lr 0.1"


def chains(rng: np.random.Generator) -> Iterator[Attempt]:
    """Preparation, training, evaluation: each waits for the one before."""
    for n in range(100):
        for part, middle_s in (("prepare", 300.0), ("train", 5 * HOUR_S), ("evaluate", 900.0)):
            yield n * DAY_S, spread(rng, middle_s, 0.1), None, f"{part}.py --run {n}"


def resumes(rng: np.random.Generator) -> Iterator[Attempt]:
    """Four hours at a time from the last checkpoint, and at the end what is left."""
    at_s = 0.0
    for _ in range(60):
        left_s = spread(rng, 14 * HOUR_S, 0.3)
        while left_s > 0:
            run_s = min(4 * HOUR_S, left_s)
            yield at_s, run_s, None, "train.py --resume last.pt"
            left_s, at_s = left_s - run_s, at_s + run_s + HOUR_S


def too_short(rng: np.random.Generator) -> Iterator[Attempt]:
    """A limit that is hit; the same again under twice the limit until it is through."""
    for n in range(60):
        needed_s, limit_s = spread(rng, 5 * HOUR_S, 0.5), HOUR_S
        for again in range(6):
            yield n * DAY_S + again * HOUR_S, needed_s, limit_s, "simulate.py --case 7"
            if needed_s <= limit_s:
                break
            limit_s *= 2
        yield n * DAY_S + 0.5 * DAY_S, needed_s, None, "simulate.py --case 7"


def growing(rng: np.random.Generator) -> Iterator[Attempt]:
    """Every night on all data there is: a little longer each time."""
    for n in range(120):
        yield n * DAY_S, spread(rng, 600.0 * 1.02**n, 0.05), None, "nightly.py"


HABITS = {habit.__name__: habit for habit in (arrays, chains, resumes, too_short, growing)}
REQUEUED_SHARE = 0.1


@pytest.fixture(scope="module")
def outcome() -> dict[str, Counter[str]]:
    """Of each habit how many attempts there were, with a limit of ours, killed, under 95 %."""
    rng, memory = np.random.default_rng(11), SiteMemory()
    attempts = [(name, *one) for name, habit in HABITS.items() for one in habit(rng)]
    waiting = sorted(attempts, key=lambda one: one[1])
    running: list[tuple[float, PastRun, object]] = []
    counts: dict[str, Counter[str]] = {name: Counter() for name in HABITS}
    for user, at_s, needed_s, limit_s, line in waiting:
        for end_s, run, times in sorted(running, key=lambda one: one[0]):
            if end_s <= at_s:
                memory.add(run, times)  # type: ignore[arg-type]
        running = [one for one in running if one[0] > at_s]
        script = script_signature(f"python {line}")
        job = JobRequest(user=user, gpus=1, limit_s=limit_s, script=script, directory=f"/{user}")
        found, ours_s = estimate_job(job, memory), None
        if limit_s is None:
            ours_s = carried_limit_s(job, memory, 0.95)
        run_s, ended = needed_s, RunEnd.COMPLETED
        if rng.random() < REQUEUED_SHARE:
            run_s, ended = needed_s * float(rng.random()) + 1.0, RunEnd.CUT_OFF
        elif limit_s is not None and needed_s > limit_s:
            run_s, ended = limit_s, RunEnd.CUT_OFF
        told = counts[user]
        told["attempts"] += 1
        told["ours"] += ours_s is not None
        told["killed"] += ours_s is not None and needed_s > ours_s
        told["longer"] += run_s > found.quantile_s(0.95)
        stored = job.without_names()
        run = PastRun(
            request=stored,
            submit_s=at_s,
            end_s=at_s + run_s,
            run_s=run_s,
            ended=ended,
            batch=batch_of(stored, at_s),
        )
        running.append((run.end_s, run, found.times))
    return counts


def test_no_limit_of_ours_ends_a_job_whatever_the_habit(outcome: dict[str, Counter[str]]) -> None:
    assert sum(told["attempts"] for told in outcome.values()) > 1000
    assert sum(told["ours"] for told in outcome.values()) > 400
    assert {name: told["killed"] for name, told in outcome.items()} == dict.fromkeys(HABITS, 0)


def test_the_95_percent_quantile_holds_over_all_habits(outcome: dict[str, Counter[str]]) -> None:
    attempts, longer = (sum(t[what] for t in outcome.values()) for what in ("attempts", "longer"))
    assert 0.01 < longer / attempts < 0.08
