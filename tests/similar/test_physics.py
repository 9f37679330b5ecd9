"""Physics beside similar runs, for jobs that name their network."""

from __future__ import annotations

from math import log

import pytest

from predictor.cli.options import predictor
from predictor.site.similar.estimate import Estimate, PhysicsView, estimate_job
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.past_runs import PastRun, RunEnd, batch_of
from predictor.site.similar.request import JobRequest, stated_fields

ASKED = (
    "model={model} precision=mixed_fp16_fp32 batch_size=128 epochs=10 dataset_size=1281167 "
    "options=workers=16"
)
MODELS = ("resnet50", "alexnet", "vgg16", "efficientnet_b7")  # from minutes to hours
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def physics() -> PhysicsView:
    return PhysicsView(predictor())


def request(model: str, number: int = 0) -> JobRequest:
    """A job that names its network; its script is like no other's."""
    return JobRequest(
        user=f"user{number % 3}",
        gpus=8,
        gpu_type="a100-sxm4-80gb",
        limit_s=4 * DAY_S,
        script=f"{number:016x}",
        **stated_fields(ASKED.format(model=model)),
    )


def total_s(physics: PhysicsView, model: str) -> float:
    found = physics.prediction(request(model))
    assert found is not None
    assert found.total_s is not None
    return found.total_s


def site(physics: PhysicsView, took_s: list[tuple[str, float]]) -> SiteMemory:
    """A site that ran networks one after the other, each predicted before it ran."""
    memory = SiteMemory()
    for number, (model, run_s) in enumerate(took_s):
        asked = request(model, number).without_names()
        run = PastRun(
            request=asked,
            submit_s=number * DAY_S,
            end_s=(number + 1) * DAY_S,
            run_s=run_s,
            ended=RunEnd.COMPLETED,
            batch=batch_of(asked, number * DAY_S),
            predicted_s=total_s(physics, model),
        )
        memory.add(run, estimate_job(asked, memory).times)
    return memory


def median_s(physics: PhysicsView, memory: SiteMemory, model: str) -> tuple[Estimate, float]:
    found = estimate_job(request(model, 1000), memory, physics)
    return found, found.quantile_s(0.5)


def test_before_any_run_a_named_network_gets_what_physics_says(physics: PhysicsView) -> None:
    found, half_s = median_s(physics, SiteMemory(), "resnet50")
    assert abs(log(half_s / total_s(physics, "resnet50"))) < log(1.5)
    assert found.limit_s is not None
    assert found.mean_s < total_s(physics, "resnet50") + 0.01 * found.limit_s
    assert found.evidence[0].startswith("physics: resnet50 takes")


def test_where_physics_holds_it_speaks_with_the_site_s_own_shift(physics: PhysicsView) -> None:
    """Every network takes a quarter longer here, and run times have nothing else in common."""
    took = [(model, 1.25 * total_s(physics, model)) for model in MODELS for _ in range(8)]
    memory = site(physics, took)
    assert memory.errors.physics_share > 0.8
    for model in MODELS:
        _, half_s = median_s(physics, memory, model)
        assert abs(log(half_s / (1.25 * total_s(physics, model)))) < log(1.1)


def test_where_physics_is_wrong_similar_runs_speak(physics: PhysicsView) -> None:
    """What jobs say of their length is not what they do: all of them run for about ten hours."""
    took = [(model, 36_000.0 + 10 * number) for number, model in enumerate(MODELS * 8)]
    memory = site(physics, took)
    assert memory.errors.physics_share < 0.5
    found, half_s = median_s(physics, memory, "vgg16")
    assert abs(log(half_s / 36_000.0)) < log(1.5)
    assert any("of this site" in line or "of the same user" in line for line in found.evidence)


def test_why_a_job_has_no_price_is_told_of_that_job(physics: PhysicsView) -> None:
    """Also where another was asked about in between, and where the answer was known before."""
    stated = stated_fields("model=resnet50 precision=fp16 batch_size=0")
    odd = JobRequest(gpus=8, gpu_type="a100-sxm4-80gb", **stated)
    nameless = JobRequest(gpus=8, **stated_fields("precision=fp16 batch_size=64"))
    for _ in range(2):
        assert "invalid batch_size='0'; expected" in physics.refusal(odd)
        assert physics.refusal(nameless) == "no model; state it"
        assert physics.refusal(request("resnet50")) == ""
