"""`precision-time plan`, and cost on `predict`: what is promised is what a search of all finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from predictor.cli.costs import kilowatt_hours, mass, seconds_of
from predictor.errors import JobError

pytestmark = pytest.mark.usefixtures("fitted")

Run = Callable[..., Result]
RunJson = Callable[..., Any]

PRICES = """
currency: EUR
prices_per_gpu_hour: {a100-sxm4-80gb: 3, h100: 5, v100-32gb: 1}
grid_g_per_kwh: 300
partitions: {spot: {prices_per_gpu_hour: {h100: 2}}}
"""
JOB = ("resnet50", "--batch-size", "128", "--epochs", "10")
PREDICT = ("predict", *JOB, "--gpu", "a100-80gb", "--gpus", "8", "--precision", "amp")


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES)
    return str(path)


def amounts(plans: list[Any]) -> list[float]:
    return [one["cost"]["amount"] for one in plans]


def time_of(one: Any) -> float:
    return float(one["cost"]["elapsed_s"])


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 1.0])
def test_the_plan_is_the_fastest_within_the_budget(
    run_json: RunJson, prices: str, share: float
) -> None:
    words = ("plan", *JOB, "--prices", prices, "--gpus", "1,2,8", "--budget")
    every = run_json(*words, "1e9")["plans"]
    low, high = min(amounts(every)), max(amounts(every))
    budget = low + share * (high - low)
    plans = run_json(*words, str(budget))["plans"]
    (chosen,) = [one for one in plans if one["chosen"]]
    within = [one for one in every if one["cost"]["amount"] <= budget]
    assert time_of(chosen) == min(map(time_of, within))
    assert len({(one["gpu"], one["precision"], one["gpus"]) for one in every}) == len(every) == 30


def test_within_a_deadline_the_plan_is_the_cheapest(run_json: RunJson, prices: str) -> None:
    words = ("plan", *JOB, "--prices", prices, "--gpus", "1,2,8", "--within")
    every = run_json(*words, "1000d")["plans"]
    limit_s = sorted(map(time_of, every))[10] + 5e-4  # a text of it may be a little less
    plans = run_json(*words, f"{limit_s:.6f}s")["plans"]
    (chosen,) = [one for one in plans if one["chosen"]]
    within = [one for one in every if time_of(one) <= limit_s]
    assert chosen["cost"]["amount"] == min(amounts(within))


def test_efficient_plans_are_those_that_none_beats(run_json: RunJson, prices: str) -> None:
    words = ("plan", *JOB, "--prices", prices, "--gpus", "1,4", "--budget", "100")
    plans = run_json(*words)["plans"]
    for one in plans:
        beaten = any(
            time_of(o) <= time_of(one) and o["cost"]["amount"] <= one["cost"]["amount"]
            for o in plans
            if o is not one
        )
        assert one["efficient"] == (not beaten)


def test_a_plan_costs_what_predict_says(run_json: RunJson, prices: str) -> None:
    words = (
        "--prices",
        prices,
        "--partition",
        "spot",
        "--interruptions-per-day",
        "2",
        "--restart-min",
        "10",
        "--checkpoint-every-min",
        "30",
    )
    plans = run_json(
        "plan",
        *JOB,
        *words,
        "--gpus",
        "16",
        "--gpu",
        "h100",
        "--precision",
        "amp",
        "--budget",
        "1000",
    )["plans"]
    alone = run_json("predict", *JOB, *words, "--gpus", "16", "--gpu", "h100", "--precision", "amp")
    assert plans[0]["cost"] == {k: alone["cost"][k] for k in plans[0]["cost"]}
    assert plans[0]["cost"]["price_per_gpu_hour"] == 2


def test_with_no_plan_the_cheapest_is_named(run: Run, prices: str) -> None:
    words = ("plan", *JOB, "--prices", prices, "--gpus", "1,8", "--budget")
    lines = run(*words, "0.5", code=1).stdout.splitlines()
    assert "no plan within 0.50 EUR" in lines
    cheapest = next(line for line in lines if line.startswith("cheapest: "))
    price = cheapest.split(", ")[-1].removesuffix(" EUR")
    assert run(*words, f"{float(price) + 0.01}").stdout.count("-> within") == 1


def test_the_chosen_plan_is_marked_once(run: Run, prices: str) -> None:
    out = run("plan", *JOB, "--prices", prices, "--gpus", "1,8", "--budget", "50", "--all").stdout
    assert sum(line.startswith("->  ") for line in out.splitlines()) == 1
    assert "no units for the format" in out


def test_plans_that_do_not_fit_are_left_out(run_json: RunJson) -> None:
    found = run_json(
        "plan",
        "resnet50",
        "--batch-size",
        "256",
        "--epochs",
        "1",
        "--gpus",
        "1",
        "--precision",
        "fp32",
        "--gpu",
        "v100-16gb",
        "--gpu",
        "a100-80gb",
        "--within",
        "100d",
    )
    assert [one["gpu"] for one in found["plans"]] == ["a100-sxm4-80gb"]
    assert any("v100-sxm2-16gb" in line and "GiB" in line for line in found["left_out"])


def test_a_global_batch_is_split_into_micro_steps_that_fit(run_json: RunJson) -> None:
    found = run_json(
        "plan",
        "resnet50",
        "--global-batch-size",
        "8192",
        "--steps",
        "100",
        "--gpus",
        "1,3,8",
        "--precision",
        "amp",
        "--gpu",
        "v100-16gb",
        "--within",
        "100d",
    )
    assert {one["gpus"] for one in found["plans"]} == {1, 8}
    for one in found["plans"]:
        assert one["memory"]["fits"]
        assert one["batch_size"] * one["grad_accum"] * one["gpus"] == 8192
    assert any("3 GPUs" in line for line in found["left_out"])


def test_micro_steps_that_memory_makes_necessary_are_told_wherever_a_batch_is(
    run: Run, run_json: RunJson
) -> None:
    job = ("bert-large", "--global-batch-size", "16384", "--seq-len", "128", "--steps", "7038")
    where = ("--precision", "amp", "--gpu", "h100", "--gpus")
    [plan] = run_json("plan", *job, *where, "8", "--within", "9d")["plans"]
    found = run_json("predict", *job, *where, "8")
    assert (found["batch_size"], found["grad_accum"]) == (plan["batch_size"], plan["grad_accum"])
    assert plan["grad_accum"] > 1
    assert "grad_accum" not in {one["field"] for one in plan["assumptions"]}  # the plan states it
    batch = "{batch_size} x {grad_accum} per GPU".format_map(found)
    assert f"batch {batch}, 16,384 samples" in run("predict", *job, *where, "8").stdout
    # Where it may be too large, as it is priced is told, and a plan does not risk it.
    told = run("predict", *job, *where, "32").stdout
    assert "grad_accum: 1 is assumed (not stated; the memory may be too small for it)" in told
    [plan] = run_json("plan", *job, *where, "32", "--within", "9d")["plans"]
    assert plan["grad_accum"] == 2


def test_a_global_batch_is_split_also_where_only_a_sharded_state_fits(run_json: RunJson) -> None:
    where = ("--gpu=v100-sxm2-16gb", "--gpus=32", "--precision=fp32", "--within=100d")
    words = ("stable-diffusion-v1", "--global-batch-size=256", "--steps=100")
    (one,) = run_json("plan", *words, *where)["plans"]
    assert one["grad_accum"] == 2


def test_a_careful_plan_takes_longer(run_json: RunJson) -> None:
    words = ("plan", *JOB, "--gpus", "8", "--gpu", "v100", "--precision", "amp", "--within", "90d")
    usual, careful = (run_json(*words, *more)["plans"][0] for more in ((), ("--quantile", "0.95")))
    assert time_of(careful) > time_of(usual)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "1,2"), "give --budget, --within or both"),
        (("--gpus", "1,x", "--within", "1h"), "gpus='1,x'"),
        (("--within", "soon"), "within='soon'"),
        (("--budget", "5"), "--prices"),
        (("--within", "1h", "--partition", "spot"), "partition='spot'"),
        (("--within", "1h", "--restart-min", "5"), "restart_min=5.0"),
        (("--within", "1h", "--gpu", "gtx-0"), "gtx-0"),
    ],
)
def test_what_cannot_be_planned_is_said(run: Run, words: tuple[str, ...], message: str) -> None:
    assert message in run("plan", *JOB, *words, code=2).stderr


def test_plans_must_do_the_same_work(run: Run) -> None:
    words = ("plan", "resnet50", "--batch-size", "32", "--steps", "10", "--within", "1h")
    assert "more work on more GPUs" in run(*words, code=2).stderr
    run(*words, "--gpus", "8")


def test_predict_shows_cost_energy_and_co2e(run: Run, run_json: RunJson, prices: str) -> None:
    out = run(*PREDICT, "--prices", prices).stdout
    cost = run_json(*PREDICT, "--prices", prices)["cost"]
    assert f"{cost['amount']:,.2f} EUR" in out
    assert kilowatt_hours(cost["energy_high_j"]) in out
    assert mass(cost["co2e_g"]) in out
    assert cost["amount_low"] < cost["amount"] < cost["amount_high"]


def test_without_prices_predict_says_nothing_of_cost(run: Run, run_json: RunJson) -> None:
    assert "energy" not in run(*PREDICT).stdout
    assert "cost" not in run_json(*PREDICT)


def test_a_cost_needs_a_length(run: Run, prices: str) -> None:
    words = ("resnet50", "--gpu", "t4", "--precision", "amp", "--batch-size", "8")
    result = run("predict", *words, "--prices", prices, code=2)
    assert result.stdout == ""
    assert "need a length" in result.stderr


def test_predict_warns_of_a_slow_loader(run: Run) -> None:
    result = run(*PREDICT, "--loader-rate", "500")
    assert "input-bound" in result.stderr
    assert "throughput                500 samples/s" in result.stdout


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86400), ("1d12h", 129600), ("90 min", 5400), ("45m", 2700), ("1.5h", 5400)],
)
def test_times(text: str, seconds: float) -> None:
    assert seconds_of("within", text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "1h soon", "-1h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(JobError, match="within="):
        seconds_of("within", text)
