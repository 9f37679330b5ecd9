"""Which runs would narrow the predictions of a site's jobs most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import GraphError, JobError
from ...estimate.core import Predictor
from ...estimate.fits import fits
from ...estimate.residual.features import Features, features
from ...estimate.residual.kernel import Floats
from ...estimate.residual.process import after_run, gains
from ...job.training_job import TrainingJob
from ..history.run import Run
from .run_reader import RunReader, without_length

# The configurations with most GPU hours that count; a site runs few often and many once.
MOST_JOBS = 150


@dataclass(frozen=True, slots=True)
class SuggestedRun:
    """A run worth making. ``like`` is a run of the site with the same script.

    ``deviation`` is that of the site's predictions, in ln units and weighted by GPU hours, once
    this run and those suggested before it are made.
    """

    job: TrainingJob
    like: Run
    deviation: float


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Runs, the one that narrows most first; ``deviation`` is that of today."""

    runs: tuple[SuggestedRun, ...]
    deviation: float
    jobs: int


def suggest(predictor: Predictor, runs: Iterable[Run], count: int) -> Suggestions:
    """The ``count`` runs to make, each given those before it (greedy posterior variance).

    Candidates are the site's configurations and the same on one GPU, where that fits. Krause et
    al. 2008, Near-optimal sensor placements in Gaussian processes.
    """
    hours, like = _configurations(runs)
    jobs = sorted(hours, key=lambda job: -hours[job])[:MOST_JOBS]
    asked = dict(_seen(predictor, jobs))
    alone = [one for job in asked if (one := _on_one_gpu(job)) != job and fits(one).ok]
    candidates = dict(_seen(predictor, dict.fromkeys([*asked, *alone])))
    if not candidates:
        return Suggestions((), 0.0, 0)
    both = [*asked.values(), *candidates.values()]
    shared, noise = predictor.residual.joint_covariance(both)
    weights = np.array([hours[job] for job in asked])
    origin = {_on_one_gpu(job): job for job in reversed(asked)} | {job: job for job in asked}
    found = []
    options, first = list(candidates), len(asked)
    today = _deviation(shared, weights)
    for _ in range(min(count, len(options))):
        chosen = first + int(np.argmax(gains(shared, weights, noise)[first:]))
        shared = after_run(shared, chosen, noise)
        job = options[chosen - first]
        found.append(SuggestedRun(job, like[origin[job]], _deviation(shared, weights)))
    return Suggestions(tuple(found), today, len(asked))


def _configurations(
    runs: Iterable[Run],
) -> tuple[Mapping[TrainingJob, float], Mapping[TrainingJob, Run]]:
    """GPU hours of each configuration that names its network, and the latest run of it."""
    reader = RunReader()
    hours: dict[TrainingJob, float] = {}
    like: dict[TrainingJob, Run] = {}
    for run in runs:
        ended = run.ended
        if ended.start_s is None or run.model is None:
            continue
        job = reader.job(run)
        if isinstance(job, str):
            continue
        key = without_length(job)
        hours[key] = hours.get(key, 0.0) + (ended.end_s - ended.start_s) * ended.gpus / 3600
        like[key] = run
    return hours, like


def _seen(
    predictor: Predictor, jobs: Iterable[TrainingJob]
) -> Iterator[tuple[TrainingJob, Features]]:
    """What the residual sees of each job that can be priced."""
    for job in jobs:
        try:
            yield job, features(job, predictor.steps.price(job))
        except (GraphError, JobError):
            continue


def _on_one_gpu(job: TrainingJob) -> TrainingJob:
    """The same micro-batch on one GPU, where the network is not split over several."""
    if job.gpus == 1 or job.split > 1:
        return job
    return job.but(
        gpus=1,
        gpus_per_node=1,
        batch_size=job.micro_batch_size,
        global_batch_size=None,
        fabric=None,
    )


def _deviation(shared: Floats, weights: Floats) -> float:
    variance = np.maximum(np.diag(shared)[: len(weights)], 0.0)
    return float(np.sqrt(np.average(variance, weights=weights)))
