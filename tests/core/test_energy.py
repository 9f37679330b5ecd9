"""Energy: between what idle GPUs and boards at their limit draw, and never less for more time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.estimate.fitting import Fitted
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.planning.cost import (
    Overhead,
    Power,
    Terms,
    busy_share,
    cost_of,
    drawn_share,
    energy_of,
    power_of,
)
from predictor.planning.plans import input_bound
from profiles.gpus import find_gpu, gpus

JOB = TrainingJob(
    model="resnet50",
    precision=Precision.MIXED_FP16_FP32,
    gpu="a100-sxm4-80gb",
    gpus=8,
    batch_size=256,
    steps=1000,
)
SECONDS = st.floats(1, 1e8)


@pytest.fixture(scope="module")
def found(fitted: Fitted) -> Prediction:
    return fitted.predictor.predict(JOB)


@given(SECONDS, st.floats(1, 10))
def test_more_time_never_takes_less_energy(found: Prediction, seconds: float, times: float) -> None:
    short, long = energy_of(found, seconds), energy_of(found, seconds * times)
    assert long.energy_j >= short.energy_j
    assert long.high_j >= short.high_j


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_busier_gpu_never_draws_less(one: float, other: float) -> None:
    power = power_of(find_gpu("h100-sxm5-80gb"))
    low, high = sorted((one, other))
    assert power.idle_w is not None
    assert power.idle_w <= power.at(low) <= power.at(high) <= power.board_w


def test_the_estimate_lies_between_its_bounds(found: Prediction) -> None:
    energy = cost_of(found, Terms()).energy
    assert found.total_s is not None
    assert energy.low_j is not None
    assert energy.low_j < energy.energy_j < energy.high_j
    assert energy.high_j == pytest.approx(400 * 8 * found.total_s)


def test_a_correction_leaves_the_busy_share_as_the_parts_have_it(found: Prediction) -> None:
    parts = found.physical
    slow = replace(found, step_s=1.5 * parts.step_s, correction=1.5)
    assert parts.compute_s + parts.optimizer_s < parts.step_s
    share = (parts.compute_s + parts.optimizer_s) / parts.step_s
    assert busy_share(slow) == pytest.approx(share)


def test_waiting_for_input_is_not_busy(found: Prediction) -> None:
    slow = input_bound(found, found.throughput / 2)
    assert slow.step_s == pytest.approx(2 * found.step_s)
    assert busy_share(slow) == pytest.approx(busy_share(found) / 2)
    one, two = (cost_of(each, Terms()).energy for each in (found, slow))
    assert one.energy_j < two.energy_j < 2 * one.energy_j


def test_without_a_published_idle_power_the_board_counts_all_the_time(fitted: Fitted) -> None:
    found = fitted.predictor.predict(JOB.but(gpu="t4", gpus=1, batch_size=32))
    energy = energy_of(found, 3600.0)
    assert energy.power == Power(find_gpu("t4").tdp_w, None, "")
    assert energy.low_j is None
    assert energy.energy_j == energy.high_j == pytest.approx(70 * 3600)


def test_every_idle_power_has_a_source_and_lies_below_the_board() -> None:
    known = [p for p in map(power_of, gpus().values()) if p.idle_w is not None]
    assert known
    for power in known:
        assert power.idle_w is not None
        assert 0 < power.idle_w < power.board_w / 2
        assert power.source


@given(st.floats(1, 3), st.floats(0, 1000))
def test_a_site_adds_hosts_and_pue(found: Prediction, pue: float, host_w: float) -> None:
    plain, site = energy_of(found, 3600.0), energy_of(found, 3600.0, Overhead(pue, host_w))
    gpu_s = 3600.0 * JOB.gpus
    assert site.energy_j == pytest.approx((plain.energy_j + host_w * gpu_s) * pue)
    assert site.high_j == pytest.approx((plain.high_j + host_w * gpu_s) * pue)


def test_a_pue_below_one_and_a_job_without_length_are_errors(fitted: Fitted) -> None:
    with pytest.raises(JobError, match=r"pue=0\.9"):
        Overhead(pue=0.9)
    with pytest.raises(JobError, match="host_w_per_gpu=-1"):
        Overhead(host_w_per_gpu=-1)
    with pytest.raises(JobError, match="length"):
        cost_of(fitted.predictor.predict(JOB.but(steps=None)), Terms())


# Mean board power of one epoch at the highest limit in ml-energy/zeus (NSDI 2023 trace), in watts:
# the middle of the rows of a model.
@pytest.mark.parametrize(
    ("model", "gpu", "batch", "share"),
    [
        ("resnet50", "a40", 128, 0.77),
        ("bert-base", "a40", 32, 0.84),
        ("resnet50", "p100", 64, 0.64),
    ],
)
def test_busy_boards_draw_what_was_measured(
    fitted: Fitted, model: str, gpu: str, batch: int, share: float
) -> None:
    job = TrainingJob(model=model, precision="fp32", gpu=gpu, batch_size=batch)
    job = job.but(seq_len=384) if model != "resnet50" else job
    assert drawn_share(fitted.predictor.predict(job)) == pytest.approx(share, rel=0.25)


def test_mixed_precision_draws_more_and_takes_less_energy(fitted: Fitted) -> None:
    job = TrainingJob(
        model="bert-large", precision="fp32", gpu="a100", batch_size=32, seq_len=512, steps=100
    )
    full, mixed = (fitted.predictor.predict(job.but(precision=p)) for p in ("fp32", "amp"))
    assert drawn_share(mixed) > drawn_share(full)
    less, more = (cost_of(each, Terms()).energy.energy_j for each in (mixed, full))
    assert less < more
