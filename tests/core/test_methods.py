"""The yardsticks: the paper's sum, plain physics, and a predictor that is blind to precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from predictor.errors import JobError
from predictor.estimate.fitting import Fitted, price, targets
from predictor.estimate.measurement import Measurement, measurement
from predictor.estimate.residual.features import without_precision
from predictor.evaluation.evaluate import Method, MethodAnswer, method_of, paper_step_s
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.step import StepModel

ROW = {
    "id": "r",
    "source_repo": "example/new-site",
    "framework": "pytorch",
    "model": "resnet50",
    "gpu": "a100",
    "gpus": "1",
    "precision": "fp32",
    "batch_per_gpu": "64",
    "iteration_s": "0.2",
}


def run(**changes: str) -> Measurement:
    return measurement(ROW | {"id": "-".join(changes.values())} | changes)


def job(**changes: Any) -> TrainingJob:
    fields: dict[str, Any] = {
        "model": "bert-large",
        "precision": "amp",
        "gpu": "a100",
        "batch_size": 8,
        "seq_len": 128,
    }
    return TrainingJob(**fields | changes)


def seconds(
    method: Method, *asked: Measurement, known: tuple[Measurement, ...] = ()
) -> list[float]:
    answers = method(known, asked)
    assert all(isinstance(a, MethodAnswer) for a in answers)
    return [a.step_s for a in answers if isinstance(a, MethodAnswer) and a.step_s is not None]


class TestPaper:
    def test_on_one_gpu_it_is_the_sum_of_the_operators(self, steps: StepModel) -> None:
        for precision in ("fp32", "tf32", "amp"):
            one = job(precision=precision)
            assert paper_step_s(steps, one) == pytest.approx(steps.price(one).compute_s)

    def test_messages_are_volume_over_bandwidth(self, steps: StepModel) -> None:
        alone = paper_step_s(steps, job())
        extra = {n: paper_step_s(steps, job(gpus=n)) - alone for n in (2, 4, 8)}
        assert extra[4] / extra[2] == pytest.approx((3 / 4) / (1 / 2))
        assert extra[8] / extra[2] == pytest.approx((7 / 8) / (1 / 2))

    def test_half_the_gradient_is_half_the_message(self, steps: StepModel) -> None:
        single, half = (
            paper_step_s(steps, job(precision=p, gpus=8)) - paper_step_s(steps, job(precision=p))
            for p in ("fp32", "fp16")
        )
        assert half == pytest.approx(single / 2)

    def test_the_bubble_is_stages_less_one_over_micro_steps(self, steps: StepModel) -> None:
        """One replica on four stages: no gradient message, only the bubble."""
        times = {
            n: paper_step_s(steps, job(gpus=4, pipeline_parallel=4, grad_accum=n)) / (n + 3)
            for n in (1, 3, 12)
        }
        assert times[3] == pytest.approx(times[1])
        assert times[12] == pytest.approx(times[1])

    def test_answers_are_not_scaled(self, fitted: Fitted) -> None:
        asked = [run(), run(precision="mixed_fp16_fp32"), run(gpus="8")]
        expected = [paper_step_s(fitted.predictor.steps, m.job) for m in asked]
        assert seconds(method_of("paper", fitted), *asked) == pytest.approx(expected)


class TestPhysical:
    def test_is_physics_times_one_number(self, fitted: Fitted) -> None:
        asked = [run(), run(precision="mixed_fp16_fp32"), run(model="bert-large", gpu="v100")]
        prices = [fitted.predictor.steps.price(m.job).step_s for m in asked]
        ratios = np.array(seconds(method_of("physical", fitted), *asked)) / prices
        np.testing.assert_allclose(ratios, np.exp(np.median(targets(fitted.priced))))

    @pytest.mark.parametrize("name", ["physical", "paper"])
    def test_one_run_of_a_stack_scales_that_stack_only(self, name: str, fitted: Fitted) -> None:
        method, known = method_of(name, fitted), run(batch_per_gpu="32", iteration_s="7")
        asked = (run(), run(gpu="v100"))
        (base, here_before, there_before), (here, there) = (
            seconds(method, known, *asked),
            seconds(method, *asked, known=(known,)),
        )
        assert here == pytest.approx(here_before * 7 / base)
        assert there == there_before


@pytest.fixture(scope="module")
def blind(fitted: Fitted) -> Method:
    return method_of("blind", fitted)


class TestBlind:
    def test_all_precisions_are_one(self, blind: Method) -> None:
        words = ("fp32", "tf32", "fp16", "bf16", "mixed_fp16_fp32", "mixed_bf16_fp32")
        first, *others = seconds(blind, *(run(precision=w) for w in words))
        assert others == pytest.approx([first] * len(others))

    def test_the_full_method_tells_them_apart(self, fitted: Fitted) -> None:
        full = method_of("full", fitted)
        single, mixed = seconds(full, run(), run(precision="mixed_fp16_fp32"))
        assert mixed < single

    def test_it_still_sees_the_rest(self, blind: Method) -> None:
        assert len(set(seconds(blind, run(), run(gpu="v100"), run(model="vgg16")))) == 3

    def test_options_that_give_precision_away_are_hidden(self) -> None:
        told = job(options="amp_level=O2;loss_scale=128;xla;fp8_recipe=delayed")
        assert without_precision(told).options == (("tf32", "off"), ("xla", "on"))
        assert without_precision(told).precision is Precision.FP32
        assert without_precision(told) == without_precision(job(precision="tf32", options="xla"))


def test_answers_come_in_the_order_asked(fitted: Fitted) -> None:
    asked = [run(batch_per_gpu=str(b)) for b in (128, 8, 64, 16)]
    priced, _ = price(fitted.predictor.steps, asked)
    order = np.argsort([p.step.step_s for p in priced])
    for name in ("full", "physical", "paper"):
        assert (np.argsort(seconds(method_of(name, fitted), *asked)) == order).all()


def test_unknown_method_is_told_the_known_ones(fitted: Fitted) -> None:
    with pytest.raises(JobError, match=r"method='magic'.*full, physical, paper, blind"):
        method_of("magic", fitted)
