"""A search is the sum of its trials, and a budget keeps the most of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.planning.cost import Terms
from predictor.planning.sweeps.search import Space, search_of, within

JOB = {"model": "resnet50", "gpu": "a100-sxm4-80gb", "batch_size": 64, "steps": 1000}
SPACE = {"job": JOB, "vary": {"precision": ["fp32", "amp"], "gpus": [1, 4]}, "trials": 3}


def test_the_total_is_the_sum_of_predictions(fitted: Fitted) -> None:
    space = Space.model_validate(SPACE)
    search = search_of(fitted.predictor, space, Terms())
    hours = [fitted.predictor.predict(job).gpu_hours for job in space.jobs()]
    total, (low, high) = search.total(), search.interval()
    assert total.gpu_hours == pytest.approx(3 * sum(h for h in hours if h is not None))
    assert low.gpu_hours < total.gpu_hours < high.gpu_hours


def test_parallel_trials_end_sooner_and_cost_the_same(fitted: Fitted) -> None:
    one = search_of(fitted.predictor, Space.model_validate(SPACE), Terms()).total()
    two = search_of(fitted.predictor, Space.model_validate({**SPACE, "parallel": 2}), Terms())
    assert two.total().gpu_hours == one.gpu_hours
    assert two.total().elapsed_s == pytest.approx(one.elapsed_s / 2)


def test_early_stopping_takes_its_share(fitted: Fitted) -> None:
    stopped = Space.model_validate({**SPACE, "stopping": {"min_share": 0.1}})
    full = search_of(fitted.predictor, Space.model_validate(SPACE), Terms()).total()
    total = search_of(fitted.predictor, stopped, Terms()).total()
    assert total.gpu_hours == pytest.approx(stopped.share * full.gpu_hours)
    assert stopped.share < 1


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99, 1.01])
def test_a_budget_keeps_the_most_trials_that_fit(fitted: Fitted, share: float) -> None:
    search = search_of(fitted.predictor, Space.model_validate(SPACE), Terms())
    hours = share * search.total().gpu_hours
    kept = within(search, gpu_hours=hours, budget=None)
    costs = sorted(c.plan.cost.gpu_hours for c in search.configurations for _ in range(c.trials))
    most = max(n for n in range(len(costs) + 1) if sum(costs[:n]) <= hours)
    assert kept.total().gpu_hours <= hours
    assert kept.trials == most


LARGE = {
    "job": {
        "model": "bert-large",
        "gpu": "a100-sxm4-80gb",
        "seq_len": 512,
        "epochs": 1,
        "dataset_size": 100_000,
    },
    "vary": {"precision": ["fp32", "amp"], "batch_size": [8, 4096], "gpus": [1, 4]},
    "trials": 5,
}


def test_what_does_not_fit_gets_no_trials_and_is_not_chosen(fitted: Fitted) -> None:
    search = search_of(fitted.predictor, Space.model_validate(LARGE), Terms())
    large = [c for c in search.configurations if c.plan.found.job.batch_size == 4096]
    assert search.too_large == tuple(large)
    assert len(large) == 4
    assert {c.trials for c in large} == {0}
    assert search.trials == 20
    fitting = [c for c in search.configurations if c.trials]
    assert search.total().gpu_hours == pytest.approx(
        5 * sum(c.plan.cost.gpu_hours for c in fitting)
    )
    assert not {id(c.plan) for c in large} & {id(plan) for plan in search.efficient()}
    assert within(search, gpu_hours=1e9, budget=None).trials == 20


def test_the_pareto_set_is_of_each_training(fitted: Fitted) -> None:
    vary = {"model": ["resnet18", "resnet152"], "precision": ["fp32", "amp"], "gpus": [1, 2, 4]}
    job = {"gpu": "a100-sxm4-80gb", "batch_size": 64, "epochs": 1, "dataset_size": 10**6}
    search = search_of(fitted.predictor, Space.model_validate({"job": job, "vary": vary}), Terms())
    chosen = search.efficient()
    assert {plan.found.job.model for plan in chosen} == {"resnet18", "resnet152"}
    for plan in chosen:
        rivals = [
            c.plan
            for c in search.configurations
            if c.plan.found.job.model == plan.found.job.model and c.plan is not plan
        ]
        assert not any(r.seconds <= plan.seconds and r.price <= plan.price for r in rivals)


def test_the_command_marks_what_does_not_fit(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(json.dumps(LARGE))
    text = CliRunner().invoke(main, ["sweep", str(path)])
    assert text.exit_code == 0, text.output
    assert text.stdout.count("does not fit, no trials") == 4
    assert "would fit: a batch of" in text.stdout
    said = json.loads(CliRunner().invoke(main, ["sweep", str(path), "--format", "json"]).stdout)
    assert [one["fits"] for one in said["configurations"]].count(False) == 4
    assert not any(one["efficient"] for one in said["configurations"] if not one["fits"])


def test_phases_are_part_of_a_search(fitted: Fitted) -> None:
    phases = [{"share": 0.9, "seq_len": 128}, {"share": 0.1, "seq_len": 512}]
    job = {
        "model": "bert-base",
        "gpu": "a100-sxm4-80gb",
        "precision": "amp",
        "batch_size": 8,
        "steps": 1000,
        "phases": phases,
    }
    search = search_of(fitted.predictor, Space.model_validate({"job": job}), Terms())
    (one,) = search.configurations
    assert one.plan.cost.seconds == pytest.approx(
        sum(p.total_s or 0 for p in one.plan.found.phases)
    )


def test_the_command(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(json.dumps(SPACE))
    text = CliRunner().invoke(main, ["sweep", str(path)])
    assert text.exit_code == 0, text.output
    assert "12 trials" in text.stdout
    assert "GPU-hours" in text.stdout
    assert "  channels_last: off is assumed" in text.stdout
    bound = CliRunner().invoke(
        main, ["sweep", str(path), "--gpu-hours", "0.01", "--format", "json"]
    )
    said = json.loads(bound.stdout)
    assert bound.exit_code == (1 if said["kept_trials"] < 12 else 0)
    assert said["kept_total"]["gpu_hours"] <= 0.01
    assert any(one["efficient"] for one in said["configurations"])


def test_a_wrong_bound_is_refused(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(json.dumps(SPACE))
    for option in (["--gpu-hours", "-1"], ["--budget", "5"], ["--loader-rate", "5"]):
        refused = CliRunner().invoke(main, ["sweep", str(path), *option])
        assert refused.exit_code == 2
        assert option[0][2:] in refused.stderr.replace("_", "-")
