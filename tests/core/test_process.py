"""The process: predictions from other rows are those a refit would make, outliers count less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.estimate.residual.features import Features, Vocabulary
from predictor.estimate.residual.kernel import Floats, Hyperparameters, Rows, covariance
from predictor.estimate.residual.process import Conditioned, GaussianProcess, condition, leave_out

ROWS = 90
MakeRows = Callable[..., list[Features]]
MakeHyper = Callable[..., Hyperparameters]


class Case:
    """A process fitted to targets drawn from it."""

    def __init__(self, rows: list[Features], vocabulary: Vocabulary, hyper: Hyperparameters):
        self.vocabulary, self.hyper = vocabulary, hyper
        self.table = vocabulary.encode(rows)
        self.noise = hyper.noise_of(vocabulary, self.table)
        self.matrix = covariance(self.table, hyper)
        rng = np.random.default_rng(len(rows))
        drawn = np.linalg.cholesky(self.matrix + np.diag(self.noise**2)) @ rng.normal(
            size=len(rows)
        )
        self.targets: Floats = 0.2 + drawn
        self.process, self.fitted = GaussianProcess.fit(vocabulary, self.table, self.targets, hyper)


@pytest.fixture(scope="module")
def case(random_rows: MakeRows, vocabulary: Vocabulary, random_hyper: MakeHyper) -> Case:
    return Case(random_rows(ROWS), vocabulary, random_hyper())


def refit(case: Case, fitted: Conditioned, out: Rows) -> tuple[Floats, Floats]:
    """Mean and variance of rows from all others by the textbook formula (R&W eq. 2.23, 2.24)."""
    kept = np.setdiff1d(np.arange(len(case.targets)), out)
    system = case.matrix[np.ix_(kept, kept)] + np.diag(fitted.noise[kept])
    cross = case.matrix[np.ix_(out, kept)]
    mean = fitted.mean + cross @ np.linalg.solve(system, case.targets[kept] - fitted.mean)
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(system, cross.T))
    return mean, case.hyper.prior_variance - explained


class TestLeaveOut:
    @given(data=st.data(), size=st.integers(1, ROWS - 1))
    def test_is_what_a_refit_without_the_group_predicts(
        self, case: Case, data: st.DataObject, size: int
    ) -> None:
        order = np.random.default_rng(data.draw(st.integers(0, 1000))).permutation(ROWS)
        out = np.sort(order[:size])
        held = leave_out(case.fitted, case.targets, [out])
        mean, variance = refit(case, case.fitted, out)
        np.testing.assert_allclose(held.mean[out], mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            held.deviation[out] ** 2, variance + case.noise[out] ** 2, rtol=1e-6, atol=1e-8
        )
        others = np.setdiff1d(np.arange(ROWS), out)
        assert np.isnan(held.mean[others]).all()
        assert np.isnan(held.deviation[others]).all()

    def test_groups_do_not_know_each_other(self, case: Case) -> None:
        parts = np.array_split(np.random.default_rng(1).permutation(ROWS), 5)
        together = leave_out(case.fitted, case.targets, parts)
        for part in parts:
            alone = leave_out(case.fitted, case.targets, [part])
            np.testing.assert_array_equal(together.mean[part], alone.mean[part])

    def test_a_row_does_not_see_its_own_target(self, case: Case) -> None:
        """The noise is held: a changed target could change only its own robust weight."""
        changed = case.targets.copy()
        changed[7] += 0.01
        alpha = case.fitted.inverse @ (changed - case.fitted.mean)
        held = leave_out(replace(case.fitted, alpha=alpha), changed, [np.array([7])])
        before = leave_out(case.fitted, case.targets, [np.array([7])])
        assert held.mean[7] == pytest.approx(before.mean[7])

    def test_deviations_are_as_large_as_the_errors(self, case: Case) -> None:
        held = leave_out(case.fitted, case.targets, [np.array([i]) for i in range(ROWS)])
        scores = (case.targets - held.mean) / held.deviation
        assert 0.75 < np.sqrt(np.mean(scores**2)) < 1.3


class TestPredict:
    def test_new_rows_by_the_textbook(
        self, case: Case, random_rows: MakeRows, vocabulary: Vocabulary
    ) -> None:
        everything = vocabulary.encode([*random_rows(ROWS), *random_rows(20, seed=9)])
        whole = covariance(everything, case.hyper)
        cross = whole[ROWS:, :ROWS]
        new = everything.take(np.arange(ROWS, ROWS + 20))
        noise = case.hyper.noise_of(vocabulary, new)
        found = case.process.predict(new, noise)
        system = case.matrix + np.diag(case.fitted.noise)
        mean = case.fitted.mean + cross @ np.linalg.solve(system, case.targets - case.fitted.mean)
        explained = np.einsum("ij,ji->i", cross, np.linalg.solve(system, cross.T))
        np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-6)
        variance = case.hyper.prior_variance - explained + noise**2
        # The deviation rests on the nearest rows alone: never narrower than on all of them.
        np.testing.assert_allclose(found.deviation, np.sqrt(variance), rtol=0.02)
        assert np.all(found.deviation**2 > variance * (1 - 1e-3))

    def test_a_stranger_gets_the_mean_and_the_whole_prior(self, case: Case) -> None:
        one = case.table.take(np.array([0]))
        stranger = replace(one, codes=np.full_like(one.codes, -1), numbers=one.numbers + 1e4)
        noise = np.array([0.1])
        found = case.process.predict(stranger, noise)
        assert found.mean[0] == pytest.approx(case.fitted.mean)
        assert found.deviation[0] ** 2 == pytest.approx(case.hyper.prior_variance + 0.01)

    def test_what_was_measured_is_surer_than_what_was_not(self, case: Case) -> None:
        known = case.process.predict(case.table, case.noise)
        unknown = replace(case.table, codes=np.full_like(case.table.codes, -1))
        assert (case.process.predict(unknown, case.noise).deviation > known.deviation).all()
        assert (known.deviation >= case.noise).all()

    def test_a_noisier_source_has_wider_predictions(self, case: Case) -> None:
        quiet = case.process.predict(case.table, np.full(ROWS, 0.01)).deviation
        loud = case.process.predict(case.table, np.full(ROWS, 0.5)).deviation
        np.testing.assert_allclose(loud**2 - quiet**2, 0.25 - 0.0001, rtol=1e-6)


class TestNoise:
    def test_a_source_has_its_own_and_a_stranger_the_common_one(self, case: Case) -> None:
        code = case.table.column("source")
        values = dict(enumerate(case.vocabulary.sources))
        expected = {"source0": 0.5 * 0.05, "source1": 3.0 * 0.05, "source2": 0.05}
        assert [expected[values[int(c)]] for c in code] == pytest.approx(case.noise.tolist())
        unknown = replace(case.table, codes=np.full_like(case.table.codes, -1))
        assert set(case.hyper.noise_of(case.vocabulary, unknown)) == {0.05}


class TestOutliers:
    """Thirty runs of one configuration, one of them three times too slow."""

    matrix: Floats = np.full((30, 30), 0.25) + 0.001 * np.eye(30)
    noise: Floats = np.full(30, 0.05)
    singles: tuple[Rows, ...] = tuple(np.array([i]) for i in range(30))

    def targets(self, outlier: float) -> Floats:
        found: Floats = np.random.default_rng(8).normal(0.3, 0.05, 30)
        found[11] += outlier
        return found

    def test_they_are_weighted_down_and_the_rest_is_not(self) -> None:
        fitted = condition(self.matrix, self.targets(np.log(3)), self.noise)
        ratio = fitted.noise / fitted.plain_noise
        assert ratio[11] > 20
        assert np.delete(ratio, 11).max() < 5
        assert (ratio >= 0.8 - 1e-12).all()  # nu / (nu + 1): at best a quarter more weight

    def test_they_hardly_move_the_others(self) -> None:
        others = np.delete(np.arange(30), 11)

        def held(outlier: float) -> Floats:
            targets = self.targets(outlier)
            fitted = condition(self.matrix, targets, self.noise)
            return leave_out(fitted, targets, self.singles).mean[others]

        plain_shift = np.log(3) / 30
        assert np.abs(held(np.log(3)) - held(0.0)).max() < 0.4 * plain_shift
        assert np.abs(held(np.log(30)) - held(np.log(3))).max() < 0.3 * plain_shift


def test_thousands_of_rows_are_inverted_like_few() -> None:
    """More rows than are mirrored at a time."""
    rng = np.random.default_rng(9)
    points = rng.normal(size=1300)
    matrix = np.exp(-np.abs(points[:, None] - points[None, :]))
    targets, noise = rng.normal(size=1300), np.full(1300, 0.3)
    fitted = condition(matrix, targets, noise)
    system = matrix + np.diag(fitted.noise)
    np.testing.assert_allclose(fitted.inverse @ system, np.eye(1300), atol=1e-8)
    np.testing.assert_allclose(fitted.inverse, fitted.inverse.T, atol=1e-12)


def test_what_is_not_known_of_two_jobs_is_what_their_joint_fit_says(
    random_rows: Callable[..., list[Features]], random_hyper: Callable[[int], Hyperparameters]
) -> None:
    """Conditioning on a first new row leaves the variance of the second one."""
    rows, hyper = random_rows(60), random_hyper(3)
    vocabulary, y = Vocabulary.of(rows), np.random.default_rng(0).normal(size=60)
    table, ones = vocabulary.encode(rows), np.ones(60)
    ones_but = ones[:58]
    process, _ = GaussianProcess.fit(vocabulary, table.take(np.arange(58)), y[:58], hyper, ones_but)
    joint = process.joint_covariance(table.take(np.array([58, 59])))
    noise = hyper.noise_of(vocabulary, table)
    left = joint[1, 1] - joint[0, 1] ** 2 / (joint[0, 0] + noise[58] ** 2)
    both, _ = GaussianProcess.fit(vocabulary, table.take(np.arange(59)), y[:59], hyper, ones[:59])
    last = table.take(np.array([59]))
    assert both.joint_covariance(last)[0, 0] == pytest.approx(left, rel=1e-3)
