"""A job in phases: the sum of its phases, never more certain than they are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from initial_hyper import initial_sets
from two_phase_runs import errors, held_out, runs, table

from precision_time import predict_phases, predict_time
from predictor.errors import JobError
from predictor.estimate.core import steps_of
from predictor.estimate.fits import fits
from predictor.estimate.fitting import Fitted
from predictor.job.phases import Phase, parts_of
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.planning.cost import Terms, cost_of
from predictor.planning.plans import input_bound

BASE: dict[str, Any] = {
    "model": "bert-large",
    "gpu": "a100-sxm4-80gb",
    "gpus": 8,
    "precision": Precision.MIXED_FP16_FP32,
    "batch_size": 32,
}
# Published totals hold start-up, checkpoints and evaluation; the fit behind is of a sample.
MOST_SEEN, MOST_UNSEEN = 0.25, 0.35


def job(*phases: dict[str, Any], **changes: Any) -> TrainingJob:
    return TrainingJob(**{**BASE, **changes}, phases=phases)  # type: ignore[arg-type]


TWO = ({"steps": 700, "seq_len": 128}, {"steps": 150, "seq_len": 512, "batch_size": 8})


def test_the_total_is_the_sum_of_jobs_of_their_own(fitted: Fitted) -> None:
    found = fitted.predictor.predict(job(*TWO))
    alone = [fitted.predictor.predict(TrainingJob(**{**BASE, **phase})) for phase in TWO]
    assert found.total_s == pytest.approx(sum(p.total_s or 0 for p in alone))
    assert found.steps == 850
    assert found.gpu_hours == pytest.approx(sum(p.gpu_hours or 0 for p in alone))
    samples = sum(p.job.step_samples * (p.steps or 0) for p in alone)
    assert found.throughput == pytest.approx(samples / (found.total_s or 0))
    assert [p.total_s for p in found.phases] == pytest.approx([p.total_s for p in alone])


def test_a_name_of_several_cards_moves_each_phase_and_their_sum(fitted: Fitted) -> None:
    asked = job(*TWO)
    alone, found = map(fitted.predictor.predict, (asked.but(gpu=asked.gpu), asked.but(gpu="a100")))
    assert found.total_s == pytest.approx(sum(p.total_s or 0 for p in found.phases))
    assert 1 < min(p.unstated for p in found.phases) <= found.unstated
    assert found.correction == pytest.approx(alone.correction * found.unstated, rel=0.01)


@given(st.floats(0.01, 0.99))
def test_a_quantile_is_the_sum_of_that_quantile_of_each(fitted: Fitted, level: float) -> None:
    found = fitted.predictor.predict(job(*TWO))
    each = [p.total_quantile_s(level) or 0.0 for p in found.phases]
    assert found.total_quantile_s(level) == pytest.approx(sum(each))


@given(st.integers(2, 6), st.integers(100, 10**6))
def test_a_job_cut_into_equal_phases_is_the_job(fitted: Fitted, cuts: int, steps: int) -> None:
    whole = fitted.predictor.predict(TrainingJob(**BASE, steps=steps))
    cut = fitted.predictor.predict(job(*[{"share": 1 / cuts}] * cuts, steps=steps))
    assert cut.steps == whole.steps == steps_of(cut.job)
    assert cut.total_s == pytest.approx(whole.total_s)
    assert cut.total_quantile_s(0.95) == pytest.approx(whole.total_quantile_s(0.95))
    assert cut.physical.step_s == pytest.approx(whole.physical.step_s)
    assert cut.deviation == pytest.approx(whole.deviation)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(500, 10**7))
def test_shares_give_every_step_to_one_phase(parts: list[int], steps: int) -> None:
    shares = [{"share": part / sum(parts)} for part in parts]
    found = [part.steps or 0 for part in parts_of(job(*shares, steps=steps))]
    assert sum(found) == steps
    assert all(abs(n - steps * p / sum(parts)) <= 1 for n, p in zip(found, parts, strict=True))


def test_a_precision_schedule_lies_between_its_precisions(fitted: Fitted) -> None:
    half = {"precision": "amp"}, {"precision": "fp32"}
    length = {"epochs": 1.0, "dataset_size": 10**6}
    low, high = (fitted.predictor.predict(TrainingJob(**BASE | h, **length)) for h in half)
    mixed = [
        fitted.predictor.predict(
            job({"share": s, **half[0]}, {"share": 1 - s, **half[1]}, **length)
        ).total_s
        for s in (0.9, 0.5, 0.1)
    ]
    assert low.total_s < mixed[0] < mixed[1] < mixed[2] < high.total_s  # type: ignore[operator]


def test_shares_of_a_job_without_length_give_a_mean_step(fitted: Fitted) -> None:
    found = fitted.predictor.predict(
        job({"share": 0.75, "seq_len": 128}, {"share": 0.25, "seq_len": 512})
    )
    short, long = found.phases
    assert found.total_s is None
    assert found.step_s == pytest.approx(0.75 * short.step_s + 0.25 * long.step_s)


def test_it_fits_where_its_largest_phase_does() -> None:
    small, large = {"steps": 1, "seq_len": 128}, {"steps": 1, "seq_len": 512, "batch_size": 4096}
    assert fits(job(small)).ok
    assert not fits(job(small, large)).ok
    assert fits(job(small, large)).need_bytes == fits(job(large)).need_bytes


def test_a_loader_binds_the_phases_that_outrun_it(fitted: Fitted) -> None:
    found = fitted.predictor.predict(job(*TWO))
    first, second = found.phases
    bound = input_bound(found, 2 * second.throughput)
    assert bound.phases[0].throughput == pytest.approx(2 * second.throughput)
    assert bound.phases[1].throughput == pytest.approx(second.throughput)
    assert first.throughput > 2 * second.throughput


def test_cost_and_json_are_of_the_whole(fitted: Fitted) -> None:
    found = fitted.predictor.predict(job(*TWO))
    assert cost_of(found, Terms()).seconds == found.total_s
    said = json.loads(json.dumps(found.as_dict()))
    assert [phase["steps"] for phase in said["phases"]] == [700, 150]
    assert said["total_s"] == pytest.approx(sum(phase["total_s"] for phase in said["phases"]))
    assert "phases" not in said["phases"][0]


def test_from_python_the_first_phase_says_what_the_job_leaves_out(fitted: Fitted) -> None:
    first = {"share": 0.9, "precision": "amp", "batch_size": 64}
    rest = {"share": 0.1, "precision": "fp32"}
    found = predict_phases("resnet50", first, rest, gpus=8, epochs=90)
    again = predict_time("resnet50", "amp", 8, batch_size=64, epochs=90, phases=[first, rest])
    assert found.total_s == again.total_s
    assert [p.job.batch_size for p in found.phases] == [64, 64]
    with pytest.raises(JobError, match="precision"):
        predict_phases("resnet50", {"steps": 1, "batch_size": 1})


@pytest.mark.parametrize(
    ("phases", "changes", "said"),
    [
        ([{}], {}, "one of share, steps and epochs"),
        ([{"steps": 1, "share": 1}], {}, "one of share, steps and epochs"),
        ([{"share": 0.5}, {"share": 0.4}], {}, "add up to 1"),
        ([{"share": 1.5}], {}, "a share from 0 to 1"),
        ([{"share": float("nan")}], {}, "a share from 0 to 1"),
        ([{"share": "half"}], {}, "a share from 0 to 1"),
        ([{"share": 0.5}, {"steps": 5}], {}, "in all phases or in none"),
        ([{"steps": 5}], {"steps": 5}, "the phases state their length"),
        ([{"epochs": 5}], {"epochs": 5}, "the phases state their length"),
        ([{"share": 0.999}, {"share": 0.001}], {"steps": 10}, "phase 2: expected a whole number"),
        ([{"steps": 1}, {"steps": 1, "seq_len": -3}], {}, "phase 2: expected a whole number"),
        ([{"steps": 1, "precision": "fp1"}], {}, "fp1"),
        ([{"steps": 1, "precision": "mixed_fp8_bf16"}], {}, "phase 1: .* no FP8"),
        ([{"steps": 1, "global_batch_size": 9}], {}, "phase 1: must be a multiple"),
        ([{"steps": 1, "gpus": 4}], {}, "fields of a phase are"),
        ({"steps": 1}, {}, "a list of phases"),
        ("steps=1", {}, "a list of phases"),
        ([7], {}, "a mapping of fields"),
    ],
)
def test_what_cannot_be_is_named(phases: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        TrainingJob(**{**BASE, **changes}, phases=phases)


def test_a_phase_replaces_either_batch() -> None:
    (part,) = parts_of(job({"steps": 1, "global_batch_size": 512, "grad_accum": 2}))
    assert (part.batch_size, part.micro_batch_size, part.phases) == (None, 32, ())
    assert job(Phase(steps=1)).phases == (Phase(steps=1),)  # type: ignore[arg-type]


def test_published_totals_of_bert_in_two_phases(fitted: Fitted) -> None:
    asked = runs()
    other = held_out(fitted, initial_sets())
    seen, unseen = errors(fitted.predictor, asked), errors(other, asked)
    print(f"\n{table(asked, seen, unseen)}")
    assert len(asked) >= 20
    assert np.median(abs(seen)) <= MOST_SEEN
    assert np.median(abs(unseen)) <= MOST_UNSEEN
