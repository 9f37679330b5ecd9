"""Runs of a simulated site: some factor slower than physics says, with some noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from predictor.estimate.core import steps_of
from predictor.identify.grammar import parse_text
from predictor.physics.step import StepModel
from predictor.site.history.run import EndedJob, JobState, Reported, Run
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd
from predictor.site.similar.request import JobRequest

DAY_S = 86400.0
START_S = 1_760_000_000.0
ASKED = "model=resnet50 precision=mixed_fp16_fp32 batch_size=128 steps=20000"
GPU = "a100-sxm4-40gb"


def run_of(
    number: int = 0,
    *,
    asked: str = ASKED,
    elapsed_s: float = 4000.0,
    reported: Reported | None = None,
    **ended: Any,
) -> Run:
    """A run of its own: it ends ``number`` hours after the first, by one of four users."""
    end_s = START_S + number * 3600.0
    job = EndedJob(
        scheduler="slurm",
        cluster="alpha",
        job_id=str(number),
        name=f"train-{number}",
        user=f"user{number % 4}",
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState.COMPLETED,
        submit_s=end_s - elapsed_s - 60,
        start_s=end_s - elapsed_s,
        end_s=end_s,
        limit_s=86400.0,
        gpus=4,
        gpu_type=GPU,
        nodes=1,
        node_names=("n1",),
        submit_line=f"sbatch --exclusive -t 60 /home/u/train.sh --seed {number}",
    )
    return Run(ended=replace(job, **ended), asked=asked, origin="comment", reported=reported)


def to_their_limits(user: str) -> SiteMemory:
    """Where all jobs of a user are known to run until their limits end them."""
    memory, request = SiteMemory(), JobRequest(user=user, gpus=1).without_names()
    for at in range(32):
        run = PastRun(
            request=request,
            submit_s=0.0,
            end_s=1e6,
            run_s=1e6,
            ended=RunEnd.COMPLETED,
            batch=str(at),
        )
        memory.add(run)
    return memory


def told(step_s: float, steps: int = 1000, **said: Any) -> Reported:
    return Reported(step_s=step_s, steps=steps, **said)


def slow_site(steps: StepModel, *, runs: int, factor: float, noise: float = 0.03) -> list[Run]:
    """Runs of three networks on ``alpha``, ``factor`` times what physics says, oldest first."""
    rng = np.random.default_rng(7)
    texts = [
        f"model={model} precision={precision} batch_size={batch} steps=20000"
        for model in ("resnet50", "resnet18", "bert-base")
        for precision in ("fp32", "mixed_fp16_fp32")
        for batch in (16, 32)
    ]
    found = []
    for number in range(runs):
        asked = texts[number % len(texts)]
        job = parse_text(asked, "test").job(gpu=GPU, gpus=4, gpus_per_node=4)
        step_s = steps.price(job).step_s * factor * float(np.exp(noise * rng.standard_normal()))
        count = steps_of(job)
        assert count is not None
        told_s = told(step_s, steps=count, startup_s=30.0) if number % 2 else None
        elapsed_s = 30.0 + step_s * count
        found.append(run_of(number, asked=asked, elapsed_s=elapsed_s, reported=told_s))
    return found
