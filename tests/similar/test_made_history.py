"""A made history: users edit lengths, share script names and change GPUs. No cluster ran it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from predictor.site.similar.estimate import Estimate, carried_limit_s, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd, batch_of
from predictor.site.similar.request import JobRequest, TrainingLength, script_signature

JOBS, HOUR_S, STARTUP_S = 1000, 3600.0, 45.0
SCRIPT = "#!/bin/bash\n#SBATCH -G 1\npython train.py --data {data} --epochs {epochs}\n"
SPEED = {"v100": 1.0, "a100": 2.5}


@dataclass(frozen=True)
class Project:
    """One training: a user's copy of a script that all of them call train.sh."""

    user: str
    number: int
    epoch_s: float

    def job(self, epochs: int, gpu_type: str) -> JobRequest:
        text = SCRIPT.format(data=f"set{'abcdefghij'[self.number % 10]}", epochs=epochs)
        return JobRequest(
            user=self.user,
            name="train.sh",
            gpus=1,
            gpu_type=gpu_type,
            script=script_signature(text),
            directory=f"/home/{self.user}/project-{self.number}",
            length=TrainingLength("epochs", epochs),
        )

    def run_s(self, job: JobRequest) -> float:
        assert job.length is not None
        return STARTUP_S + job.length.amount * self.epoch_s / SPEED[job.gpu_type]


def projects() -> list[Project]:
    rng = np.random.default_rng(7)
    return [Project(f"u{n % 12}", n, float(np.exp(rng.normal(4.5, 1.0)))) for n in range(30)]


@dataclass(frozen=True)
class Told:
    """One job: what was expected at its submission, the limit it would have got, the truth."""

    job: JobRequest
    expected: Estimate
    limit_s: float | None
    run_s: float
    run_before: bool


def told() -> Iterator[Told]:
    rng, memory, all_of_them = np.random.default_rng(8), SiteMemory(), projects()
    met: set[int] = set()
    for n in range(JOBS):
        project = all_of_them[int(rng.integers(len(all_of_them)))]
        gpu = "v100" if rng.random() < 0.7 else "a100"
        job = project.job(int(rng.choice([1, 2, 5, 10, 90, 300])), gpu)
        run_s = project.run_s(job) * float(np.exp(rng.normal(0, 0.03)))
        found = estimate_job(job, memory)
        yield Told(job, found, carried_limit_s(job, memory, 0.95), run_s, project.number in met)
        met.add(project.number)
        stored = job.without_names()
        at_s = n * 400 * HOUR_S
        run = PastRun(
            request=stored,
            submit_s=at_s,
            end_s=at_s + run_s,
            run_s=run_s,
            ended=RunEnd.COMPLETED,
            batch=batch_of(stored, at_s),
            length=stored.length,
        )
        memory.add(run, found.times)


@pytest.fixture(scope="module")
def history() -> list[Told]:
    return list(told())


def errors(history: list[Told]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([abs(np.log(one.expected.quantile_s(0.5) / one.run_s)) for one in history])


def test_rates_scale_with_length_and_gpu(history: list[Told]) -> None:
    """Jobs of 1 to 300 epochs on two types: a median half right would be off by 0.7."""
    late = [one for one in history[300:] if one.run_before]
    assert np.median(errors(late)) < 0.1
    assert np.quantile(errors(late), 0.9) < 0.3


def test_the_first_long_run_after_short_ones_scales_too(history: list[Told]) -> None:
    late = [one for one in history[100:] if one.run_before]
    long = [one for one in late if one.job.length and one.job.length.amount == 300]
    assert np.median(errors(long)) < 0.15


def test_not_one_limit_kills(history: list[Told]) -> None:
    given = [one for one in history if one.limit_s is not None]
    assert len(given) > JOBS / 5
    assert sum(one.run_s > one.limit_s for one in given if one.limit_s is not None) == 0


def test_another_project_with_the_same_script_name_shares_nothing(history: list[Told]) -> None:
    first = [one for one in history if not one.run_before]
    assert len(first) == len(projects())
    assert all("script" not in line for one in first for line in one.expected.evidence)
    assert all(one.limit_s is None for one in first)


def test_an_interval_holds_as_often_as_it_says(history: list[Told]) -> None:
    late = history[200:]
    inside = np.mean([one.run_s <= one.expected.quantile_s(0.95) for one in late])
    assert 0.92 <= inside <= 0.995


def test_the_same_directory_with_another_script_is_another_project() -> None:
    project = projects()[0]
    memory = SiteMemory()
    job = project.job(10, "v100").without_names()
    for n in range(20):
        run = PastRun(
            request=job,
            submit_s=float(n),
            end_s=n + 500.0,
            run_s=500.0,
            ended=RunEnd.COMPLETED,
            batch=str(n),
            length=job.length,
        )
        memory.add(run)
    edited = replace(
        project.job(10, "v100"), script=script_signature("python other.py --epochs 10")
    )
    assert carried_limit_s(project.job(10, "v100"), memory, 0.95) is not None
    assert all("script" not in line for line in estimate_job(edited, memory).evidence)
