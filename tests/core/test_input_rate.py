"""Input: no step is faster than its samples can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import shipped
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.step import input_s
from predictor.planning.plans import input_bound, input_bound_s

JOB = TrainingJob(
    model="resnet50",
    precision=Precision.MIXED_FP16_FP32,
    gpu="v100-sxm2-32gb",
    gpus=16,
    batch_size=128,
    steps=1000,
)


@pytest.fixture(scope="module")
def found(fitted: Fitted) -> Prediction:
    return fitted.predictor.predict(JOB)


@given(st.floats(1, 1e6), st.sampled_from([0.025, 0.5, 0.975]))
def test_no_quantile_falls_below_the_bound(
    found: Prediction, loader_rate: float, level: float
) -> None:
    bound_s, bounded = input_bound_s(JOB, loader_rate), input_bound(found, loader_rate)
    assert bounded.step_s == max(found.step_s, bound_s)
    assert bounded.quantile_s(level) == pytest.approx(max(found.quantile_s(level), bound_s))
    assert bounded.throughput <= 2 * loader_rate * (1 + 1e-9)
    assert any("input-bound" in w for w in bounded.warnings) == (bound_s > found.step_s)


def test_nodes_read_at_the_same_time(found: Prediction) -> None:
    assert input_bound_s(JOB, 1000) == pytest.approx(2048 / 1000 / 2)
    assert input_bound_s(JOB.but(gpus=8), 1000) == pytest.approx(1024 / 1000)


def test_gpus_of_one_replica_read_the_same_samples() -> None:
    split = JOB.but(model="gpt3-1.3b", pipeline_parallel=16, batch_size=4)
    assert input_bound_s(split, 1) == 4


def test_a_fast_loader_changes_nothing(found: Prediction) -> None:
    bounded = input_bound(found, 1e9)
    assert (bounded.step_s, bounded.warnings) == (found.step_s, found.warnings)
    assert bounded.interval() == found.interval()


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(JobError, match="loader_rate"):
        input_bound_s(JOB, rate)


WORKERS = {"a100": 16, "v100": 8}  # of each GPU: configs.yml of DeepLearningExamples' ConvNets


def test_small_networks_stop_where_the_workers_of_the_loader_do() -> None:
    """EfficientNet-B0 and its wide form on whole nodes; ResNet-50 gave the rate."""
    rows = [
        m
        for m in shipped()
        if m.job.model in ("efficientnet-b0", "efficientnet-widese-b0")
        and dict(m.job.options).get("data_backend") == "pytorch"
        and (m.job.gpus, m.job.precision) == (8, Precision.MIXED_FP16_FP32)
        and m.row["throughput"]
    ]
    assert len(rows) >= 5
    for m in rows:
        workers = WORKERS[m.job.gpu[:4]]
        stated = m.job.but(options=(*m.job.options, ("workers", str(workers))))
        waiting = stated.step_samples / input_s(stated)
        assert float(m.row["throughput"]) == pytest.approx(waiting, rel=0.08), m.row["id"]


def test_a_gpu_waits_for_its_workers_and_is_told(fitted: Fitted) -> None:
    job = JOB.but(options="workers=4")
    waits = fitted.predictor.predict(job)
    assert waits.step_s == pytest.approx(128 / (4 * 130))
    assert any("waits for images" in one for one in waits.warnings)
    enough = fitted.predictor.predict(job.but(options="workers=64"))
    assert enough.step_s < waits.step_s
    assert not any("waits for images" in one for one in enough.warnings)


@pytest.mark.parametrize(
    "other",
    [
        {"options": "workers=4;dali=on"},
        {"options": "workers=4;data_backend=synthetic"},
        {"options": "workers=4", "framework": "mxnet"},
        {"options": "workers=4", "image_size": 32},
        {"options": "workers=4", "model": "bert-large"},
        {"options": "data_backend=pytorch"},
    ],
)
def test_workers_that_decode_no_images_are_told(fitted: Fitted, other: dict[str, object]) -> None:
    job = JOB.but(**other)
    assert input_s(job) == 0
    told = fitted.predictor.predict(job).warnings
    assert any("no price knows" in one for one in told)
