"""Random jobs, as nobody would choose them: the answers break no law of the hardware."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from predictor.errors import GraphError, JobError
from predictor.estimate.fitting import Fitted
from predictor.estimate.prediction import Prediction
from predictor.job.training_job import TrainingJob
from profiles.gpus import find_gpu

MODELS = (
    ("resnet50", {}),
    ("efficientnet-b0", {}),
    ("vit-base-16", {}),
    ("bert-large", {"seq_len": 512}),
    ("gpt2-xl", {"seq_len": 1024}),
    ("llama2-7b", {"seq_len": 2048, "sharding": "fsdp"}),
    ("t5-large", {"seq_len": 512}),
    ("mask-rcnn-r50-fpn", {}),
    ("dlrm", {}),
)
GPUS = ("v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "t4-16gb")
PRECISIONS = ("fp32", "mixed_fp16_fp32", "mixed_bf16_fp32")
# A fold of the shipped runs is off by so much at its 90th percentile: less is noise.
NOISE = 1.25
# Products gain the ratio of the peaks; traffic halves.
SLACK = 1.3
QUICK, SLOW = 300, 5000


def drawn(count: int) -> list[TrainingJob]:
    chance = random.Random(20261122)
    jobs = []
    while len(jobs) < count:
        model, more = chance.choice(MODELS)
        fields: dict[str, Any] = {
            "precision": chance.choice(PRECISIONS),
            "gpu": chance.choice(GPUS),
            "gpus": chance.choice((1, 2, 4, 8, 16, 64, 256)),
            "batch_size": chance.choice((1, 4, 16, 64)),
            "framework": chance.choice(("pytorch", "pytorch 1.13", "tensorflow 2.4")),
            **more,
        }
        jobs.append(TrainingJob(model=model, **fields))
    return jobs


def predicted(fitted: Fitted, jobs: Sequence[TrainingJob]) -> list[Prediction]:
    found = []
    for job in jobs:
        try:
            found.append(fitted.predictor.predict(job))
        except (GraphError, JobError):
            continue
    return found


def scan(fitted: Fitted, count: int) -> None:
    found = predicted(fitted, drawn(count))
    assert len(found) > 0.9 * count
    for one in found:
        assert one.hfu <= 1 + 1e-9, one.job
        _doubled(fitted, one)
        _in_full_precision(fitted, one)


def _doubled(fitted: Fitted, one: Prediction) -> None:
    twice = fitted.predictor.predict(one.job.but(gpus=2 * one.job.gpus, gpus_per_node=8))
    assert twice.step_s > one.step_s / NOISE, one.job


def _in_full_precision(fitted: Fitted, one: Prediction) -> None:
    job = one.job
    if not job.precision.mixed:
        return
    full = fitted.predictor.predict(job.but(precision="fp32"))
    peaks = find_gpu(job.gpu).peak_flops
    tensor = peaks.get(f"{job.precision.matmul_dtype.value}_tensor", peaks["fp32"])
    most = max(2.0, tensor / peaks["fp32"])
    assert full.step_s / one.step_s <= SLACK * most, job


def test_random_jobs_break_no_law(fitted: Fitted) -> None:
    scan(fitted, QUICK)


@pytest.mark.slow
def test_many_random_jobs_break_no_law(fitted: Fitted) -> None:
    scan(fitted, SLOW)


def test_a_hundred_million_gpus_are_not_as_sure_as_eight(fitted: Fitted) -> None:
    few = TrainingJob(
        model="gpt2", precision="amp", gpu="a100", gpus=8, batch_size=8, seq_len=1024, steps=10
    )
    sure, unsure = (fitted.predictor.predict(few.but(gpus=n)) for n in (8, 10**8))
    one, other = sure.interval(), unsure.interval()
    assert other.high_s / unsure.step_s > 2 * one.high_s / sure.step_s
    assert unsure.assumptions[0].field == "gpus"
    assert unsure.assumptions[0].decisive
