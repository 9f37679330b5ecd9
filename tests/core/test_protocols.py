"""Cross-validation protocols: each figure counts the rows it says, held out as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from initial_hyper import initial_sets

from predictor.estimate.fitting import Fitted, fit_priced, price
from predictor.estimate.measurement import shipped
from predictor.estimate.residual.novelty import GROUPS, Tier, groups
from predictor.evaluation.protocols import halves, validate
from predictor.evaluation.report import tables
from predictor.evaluation.validator import Validation, Validator, summary
from predictor.physics.step import StepModel

SOURCES = ("deeplearningexamples", "dlperf")
MODELS = ("resnet50", "se-resnext101-32x4d", "ssd300", "gnmt-v2", "ncf", "jasper-10x5dr", "vgg16")


@pytest.fixture(scope="module")
def whole(steps: StepModel) -> Fitted:
    """A few models with all their runs, so that precisions and GPU counts have their twins."""
    runs = [m for m in shipped() if m.source in SOURCES and m.job.model in MODELS]
    runs += [m for m in shipped() if m.source in SOURCES and m.job.model == "bert-large"][::4]
    return fit_priced(steps, price(steps, runs)[0], hyper=initial_sets())


@pytest.fixture(scope="module")
def validator(whole: Fitted) -> Validator:
    return Validator(whole)


@pytest.fixture(scope="module")
def validation(whole: Fitted) -> Validation:
    return validate(whole, blind=False)


def test_summary_is_plain_arithmetic() -> None:
    found = summary("p", "m", np.array([0.0, 0.1, 0.2, 0.3, 0.9]))
    assert (found.mean, found.median, found.p90) == pytest.approx((0.3, 0.2, 0.66))
    assert found.n == 5
    assert summary("p", "m", np.array([])).n == 0


def test_errors_are_ratios_of_the_measured_time(validator: Validator) -> None:
    everything = np.ones(len(validator.y), dtype=bool)
    found = validator.figure("p", validator.y + np.log(1.25), everything)
    assert found.mean == found.median == pytest.approx(0.25)
    assert found.n == len(validator.y)


def test_rows_without_a_prediction_do_not_count(validator: Validator) -> None:
    half = np.where(np.arange(len(validator.y)) % 2 == 0, validator.y, np.nan)
    everything = np.ones(len(validator.y), dtype=bool)
    assert validator.figure("p", half, everything).n == math.ceil(len(validator.y) / 2)


class TestWhatIsHeldOut:
    def test_random_folds_hold_out_every_row_once(self, validator: Validator) -> None:
        held = validator.random_folds()
        assert np.isfinite(held).all()
        assert not np.isclose(held, validator.y).all()

    def test_folds_repeat_by_their_seed(self, validator: Validator) -> None:
        first, again, other = (
            Validator(validator.fitted, seed).random_folds() for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_a_row_is_not_predicted_from_its_own_configuration(self, validator: Validator) -> None:
        """Grouped folds know less than random ones."""
        everything = np.ones(len(validator.y), dtype=bool)
        grouped = validator.figure("p", validator.grouped_folds(), everything)
        random = validator.figure("p", validator.random_folds(), everything)
        assert random.n == grouped.n
        assert random.median < grouped.median

    def test_elsewhere_are_models_of_other_sources(self, validator: Validator) -> None:
        jobs = [p.measurement.job for p in validator.fitted.priced]
        assert np.isfinite(validator.held_out(Tier.SITE)).all()
        for job, elsewhere in zip(jobs, validator.elsewhere(), strict=True):
            others = {j.source for j in jobs if j.model == job.model} - {job.source}
            assert elsewhere == bool(others)

    def test_given_runs_are_not_scored(self, validator: Validator) -> None:
        within = validator.table.code(("source", "model"))
        sizes = np.unique(within, return_counts=True)[1]
        for runs in (1, 3):
            for chosen in (False, True):
                held = validator.with_runs(("model",), within, runs, chosen=chosen)
                assert np.isnan(held).sum() == np.minimum(sizes, runs).sum()

    def test_scaling_predicts_rows_of_several_gpus(self, validator: Validator) -> None:
        """Of what the source measured on one GPU too."""
        jobs = [p.measurement.job for p in validator.fitted.priced]
        one = {(j.source, j.model) for j in jobs if j.gpus == 1}
        expected = [j.gpus > 1 and (j.source, j.model) in one for j in jobs]
        np.testing.assert_array_equal(np.isfinite(validator.held_out(Tier.COUNT)), expected)

    def test_baselines_of_scaling_start_from_one_gpu(self, validator: Validator) -> None:
        """Perfect scaling: as many samples a second on each GPU as on one."""
        perfect, physical = validator.from_one_gpu()
        assert np.isfinite(perfect).sum() > 20
        np.testing.assert_array_equal(np.isfinite(perfect), np.isfinite(physical))
        priced = validator.fitted.priced
        rate = {
            (m.source, m.job.model, round(m.job.step_samples / m.job.gpus / m.step_s, 6))
            for m in (p.measurement for p in priced)
            if m.job.gpus == 1
        }
        for i in np.flatnonzero(np.isfinite(perfect)):
            m = priced[i].measurement
            step_s = np.exp(perfect[i] + validator.phys[i])
            each = round(m.job.step_samples / m.job.gpus / step_s, 6)
            assert (m.source, m.job.model, each) in rate

    def test_twins_differ_in_precision_alone(self, validator: Validator) -> None:
        jobs = [p.measurement.job for p in validator.fitted.priced]
        seen: set[int] = set()
        for plain, mixed in validator.twins():
            members = {*plain.tolist(), *mixed.tolist()}
            assert not members & seen
            seen |= members
            assert (
                len({(jobs[i].source, jobs[i].model, jobs[i].gpu, jobs[i].gpus) for i in members})
                == 1
            )
            assert all(jobs[i].precision.mixed for i in mixed)
            assert not any(jobs[i].precision.mixed for i in plain)


@pytest.mark.slow
class TestValidation:
    def test_figures_are_of_rows_or_of_nothing(self, validation: Validation) -> None:
        counted = [f for f in validation.figures if f.n]
        assert len(counted) > 12
        assert all(0 < f.median <= f.p90 for f in counted)
        assert all(math.isnan(f.mean) for f in validation.figures if not f.n)

    def test_protocols_are_told_apart(self, validation: Validation) -> None:
        names = [(f.protocol, f.method) for f in validation.figures]
        assert len(set(names)) == len(names)

    def test_a_new_model_is_harder_than_a_new_run(self, validation: Validation) -> None:
        by_name = {f.protocol: f for f in validation.figures if f.method == "full"}
        assert (
            by_name["random 5-fold, all sources"].median
            < by_name["leave one model out, all sources"].median
        )

    def test_measured_speedups_are_ratios_of_throughput(
        self, validation: Validation, validator: Validator
    ) -> None:
        priced = validator.fitted.priced
        rate = np.array([p.measurement.job.step_samples / p.measurement.step_s for p in priced])
        possible = [
            m / p for plain, mixed in validator.twins() for m in rate[mixed] for p in rate[plain]
        ]
        assert len(validation.measured_ratio) == sum(len(m) for _, m in validator.twins())
        for ratio in validation.measured_ratio:
            assert np.isclose(possible, ratio).any()

    def test_times_of_the_plot_are_measured_times(
        self, validation: Validation, whole: Fitted
    ) -> None:
        measured = np.array([p.measurement.step_s for p in whole.priced])
        assert len(validation.measured_s) == len(validation.predicted_s) > 20
        assert all(np.isclose(measured, s).any() for s in validation.measured_s)

    @pytest.mark.parametrize("tier", Tier)
    def test_higher_levels_cover_more_and_are_wider(
        self, validation: Validation, validator: Validator, tier: Tier
    ) -> None:
        found = [c for c in validation.coverages if c.scope == tier.value]
        assert [c.level for c in found] == [0.9, 0.95, 0.99]
        assert [c.coverage for c in found] == sorted(c.coverage for c in found)
        assert [c.half_width for c in found] == sorted(c.half_width for c in found)
        for c in found:
            # errors within a group are alike: what is exchangeable is groups, not rows
            n = len(groups(validator.table, GROUPS[tier])) if tier in GROUPS else c.n
            slack = 4 * math.sqrt(c.level * (1 - c.level) / n) + 2 / n
            assert c.coverage > c.level - slack

    @pytest.mark.parametrize("tier", GROUPS)
    def test_coverage_never_calibrates_on_the_group_it_checks(
        self, validator: Validator, tier: Tier
    ) -> None:
        half = halves(validator, tier)
        assert 0 < half.sum() < len(half)
        for rows in groups(validator.table, GROUPS[tier]):
            assert len(set(half[rows])) == 1

    def test_the_page_has_a_line_for_each(self, validation: Validation) -> None:
        page = tables(validation)
        lines = [line for line in page.splitlines() if line.startswith("| ")]
        operators = [
            error
            for errors in (
                validation.operators.held_out_shapes,
                validation.operators.held_out_architectures,
            )
            for error in errors
            if error.gpu.startswith(("v100", "a100"))
        ]
        expected = len(validation.figures) + len(validation.coverages) + len(operators)
        assert len(lines) == expected + 3
