"""A simulated site whose step times have the noise of shipped measurements, and a date on which it
gets slower."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

import numpy as np
from drift_noise import replicate_noise

from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.site.drift.watch import Observation

WEEK_S = 7 * 86400.0
MODELS = ("resnet50", "resnet18", "bert-base")
USERS = 5


def site(
    runs: int, *, per_week: float, seed: int, slower: float = 1.0, from_run: int = 0
) -> Iterator[Observation]:
    """Runs of five users in twelve configurations; ``slower`` times as long from one run on.

    Each user and configuration has a level of its own, and comes in bursts.
    """
    rng = np.random.default_rng(seed)
    noise = replicate_noise()
    jobs = [
        TrainingJob(model=m, precision=Precision.FP32, gpu="a100-sxm4-80gb", batch_size=b)
        for m in MODELS
        for b in (16, 32, 64, 128)
    ]
    level = rng.normal(-1.0, 0.5, (USERS, len(jobs)))
    drawn = rng.choice(noise, runs)
    user, kind = 0, 0
    for n in range(runs):
        if rng.random() < 0.3:
            user, kind = int(rng.integers(USERS)), int(rng.integers(len(jobs)))
        step_s = exp(level[user, kind] + drawn[n]) * (slower if n >= from_run else 1.0)
        yield Observation(
            end_s=1.7e9 + n * WEEK_S / per_week, user=f"user{user}", job=jobs[kind], step_s=step_s
        )
