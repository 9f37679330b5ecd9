"""Cost by the admin's price file: linear in price, nothing built in, errors that name the field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError, PriceError
from predictor.estimate.fitting import Fitted
from predictor.estimate.prediction import Prediction
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.planning.cost import Interruptions, Tariff, Terms, cost_of, read_tariff, tariff_of

JOB = TrainingJob(
    model="resnet50",
    precision=Precision.MIXED_FP16_FP32,
    gpu="a100-sxm4-80gb",
    gpus=8,
    batch_size=256,
    steps=1000,
)
FILE: dict[str, Any] = {
    "currency": "EUR",
    "prices_per_gpu_hour": {"a100-80gb": 3, "h100": 5.5},
    "grid_g_per_kwh": 400,
    "pue": 1.2,
    "partitions": {
        "spot": {"prices_per_gpu_hour": {"h100": 2}, "grid_g_per_kwh": 0},
        "north": {"host_w_per_gpu": 100, "pue": 1.1},
    },
}


@pytest.fixture(scope="module")
def found(fitted: Fitted) -> Prediction:
    return fitted.predictor.predict(JOB)


def amount(found: Prediction, price: float) -> float:
    terms = Terms(Tariff("EUR", {JOB.gpu: price}))
    value = cost_of(found, terms).amount
    assert value is not None
    return value


@given(st.floats(0, 1e4), st.floats(0, 100))
def test_cost_is_linear_in_price(found: Prediction, price: float, times: float) -> None:
    assert amount(found, price * times) == pytest.approx(times * amount(found, price))
    assert found.gpu_hours is not None
    assert amount(found, price) == pytest.approx(price * found.gpu_hours)


def test_co2e_is_energy_times_grid(found: Prediction) -> None:
    cost = cost_of(found, Terms(tariff_of(FILE)))
    assert cost.co2e_g == pytest.approx(cost.energy.energy_j / 3.6e6 * 400)
    assert cost.co2e_high_g == pytest.approx(cost.energy.high_j / 3.6e6 * 400)


def test_without_a_file_there_is_energy_and_neither_cost_nor_co2e(found: Prediction) -> None:
    cost = cost_of(found, Terms())
    assert (cost.amount, cost.co2e_g, cost.co2e_high_g) == (None, None, None)
    assert cost.energy.energy_j > 0


def test_a_careful_cost_is_higher(found: Prediction) -> None:
    tariff = tariff_of(FILE)
    careful, usual = Terms(tariff, quantile=0.95), Terms(tariff)
    assert cost_of(found, careful).gpu_hours > cost_of(found, usual).gpu_hours
    with pytest.raises(JobError, match=r"quantile=1\.5"):
        Terms(tariff, quantile=1.5)


def test_interruptions_are_paid_for(found: Prediction) -> None:
    stops = Interruptions(per_day=24, restart_s=600, every_s=600)
    cost = cost_of(found, Terms(tariff_of(FILE), stops))
    assert found.total_s is not None
    assert cost.seconds == pytest.approx(stops.expected_s(found.total_s, 1))
    assert cost.seconds > found.total_s
    assert cost.amount == pytest.approx(3 * 8 * cost.seconds / 3600)


def test_a_partition_states_what_differs() -> None:
    whole, spot, north = (tariff_of(FILE, name) for name in (None, "spot", "north"))
    assert whole.per_gpu_hour == {"a100-sxm4-80gb": 3.0, "h100-sxm5-80gb": 5.5}
    assert spot.per_gpu_hour == {"a100-sxm4-80gb": 3.0, "h100-sxm5-80gb": 2.0}
    assert (spot.grid_g_per_kwh, whole.grid_g_per_kwh) == (0.0, 400.0)
    assert (spot.overhead.pue, north.overhead.pue) == (1.2, 1.1)
    assert north.overhead.host_w_per_gpu == 100
    assert north.per_gpu_hour == whole.per_gpu_hour


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prices_per_gpu_hour": {"a100-80gb": -1}}, r"prices_per_gpu_hour\.a100-80gb=-1: .* 0"),
        ({"prices_per_gpu_hour": {"a100-80gb": "3 EUR"}}, "'3 EUR': expected a number"),
        ({"prices_per_gpu_hour": {"a100-80gb": True}}, "True: expected a number"),
        (
            {"prices_per_gpu_hour": {"a100-80gb": float("nan")}},
            "nan: expected a number of at least 0",
        ),
        ({"prices_per_gpu_hour": {"a1000": 3}}, "a1000"),
        ({"prices_per_gpu_hour": {"a100-80gb": 3, "A100-SXM4-80GB": 4}}, "has a price already"),
        ({"prices_per_gpu_hour": [3]}, r"prices_per_gpu_hour=\[3\]"),
        ({"currency": None}, "currency is missing"),
        ({"currency": 3}, "currency=3"),
        ({"pue": 0.5}, r"pue=0\.5: expected a number of at least 1"),
        ({"grid_g_per_kwh": -1}, "grid_g_per_kwh=-1"),
        ({"price": 3}, "no field 'price'; fields are currency"),
        ({"partitions": {"spot": {"pue": 0}}}, r"partitions\.spot\.pue=0"),
        ({"partitions": {"spot": {"prices_per_gpu_hour": {"tpu-v9": 1}}}}, "tpu-v9"),
        ({"partitions": {"spot": {"cost": 1}}}, r"'cost' in partitions\.spot"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PriceError, match=message):
        tariff_of(FILE | change)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match="No such file"):
        read_tariff(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("currency: [")
    with pytest.raises(PriceError, match="cannot be read"):
        read_tariff(broken)
    with pytest.raises(PriceError, match="no partition 'night'; it names spot, north"):
        tariff_of(FILE, "night")


def test_the_example_states_nothing() -> None:
    """It is there to be filled in: every field is known, and no figure is made up."""
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "cost.md").read_text(encoding="utf-8")
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    import yaml

    raw = yaml.safe_load(block[1])
    assert set(raw) == {
        "currency",
        "prices_per_gpu_hour",
        "grid_g_per_kwh",
        "pue",
        "host_w_per_gpu",
        "partitions",
    }
    assert tariff_of(raw) == tariff_of(raw, "spot") == Tariff()
