"""What calibration is for: a site that is slower than the shipped ones is predicted as such."""

from __future__ import annotations

import json
from math import expm1, inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from initial_hyper import initial_sets
from site_runs import run_of, slow_site

from predictor.cli.main import main
from predictor.errors import HistoryError
from predictor.estimate import artifacts
from predictor.estimate.fitting import Fitted
from predictor.site.calibration.calibrate import (
    LATEST,
    UNTIL,
    Base,
    CalibrationComparison,
    Gathered,
    compare,
    cut_at,
    gather,
    with_noise,
)
from predictor.site.calibration.guards import Guards
from predictor.site.calibration.run_reader import fixed_times
from predictor.site.calibration.site_state import read_state
from predictor.site.history.run import JobState, Run
from predictor.site.history.store import History
from predictor.site.history.tables import EVERY_RUN

FACTOR = 3.0
RUNS = 120


@pytest.fixture(scope="session")
def base(fitted: Fitted) -> Base:
    return Base(fitted.predictor.steps, fitted.priced, fitted.unreadable)


@pytest.fixture(scope="session")
def site(base: Base) -> list[Run]:
    return slow_site(base.steps, runs=RUNS, factor=FACTOR)


def gathered_of(site: list[Run]) -> Gathered:
    return gather(site, fixed_times(site), site[int(0.8 * len(site))].ended.end_s)


@pytest.fixture(scope="session")
def compared(fitted: Fitted, base: Base, site: list[Run]) -> CalibrationComparison:
    guards = Guards(fitted.predictor, frozenset())
    hyper = initial_sets()
    return compare(fitted.predictor, base, gathered_of(site), guards=guards, hyper=hyper)


def test_a_slow_site_is_predicted_well_after_it_was_calibrated(
    compared: CalibrationComparison,
) -> None:
    before = sum(abs(expm1(-c.error)) for c in compared.before) / len(compared.before)
    after = sum(abs(expm1(-c.error)) for c in compared.after) / len(compared.after)
    assert len(compared.after) == len(compared.before) > 10
    assert after < 0.1 < before
    assert compared.verdict.better
    figures = compared.figures([one.candidate for one in compared.after])
    assert figures["held-back mean error after"] == pytest.approx(after)


def test_what_checks_is_later_than_all_that_taught(site: list[Run]) -> None:
    found = gathered_of(site)
    last = max(c.run.ended.end_s for c in found.earlier)
    assert all(c.run.ended.end_s > last for c in found.later)
    assert len(found.earlier) + len(found.later) == found.runs == RUNS


def test_the_rows_of_a_site_are_few(compared: CalibrationComparison) -> None:
    assert len(compared.groups.groups) == 12
    assert sum(group.runs for group in compared.groups.groups) > 90


def test_a_predictor_that_is_no_better_is_not_used(
    base: Base, site: list[Run], compared: CalibrationComparison
) -> None:
    calibrated = compared.fitted.predictor
    guards = Guards(calibrated, frozenset())
    again = compare(calibrated, base, gathered_of(site), guards=guards, hyper=initial_sets())
    assert not again.verdict.better


def test_without_a_usable_run_it_says_why(fitted: Fitted, base: Base) -> None:
    runs = [run_of(n, state=JobState.FAILED) for n in range(3)]
    guards = Guards(fitted.predictor, frozenset())
    with pytest.raises(HistoryError, match="3 failed or cancelled"):
        compare(fitted.predictor, base, gather(runs, (), 0.0), guards=guards)


def test_no_configuration_fills_the_memory() -> None:
    found = gather((run_of(n, elapsed_s=9000.0) for n in range(LATEST + 50)), (), inf)
    assert len(found.earlier) == LATEST
    assert found.left[f"one of more than {LATEST} similar runs"] == 50


def test_runs_that_were_not_worth_reading_are_counted() -> None:
    found = gather((run_of(n, elapsed_s=9000.0) for n in range(3)), (), inf, total=10)
    assert (found.runs, found.left.total()) == (10, 7)


def test_the_noise_of_a_site_is_that_of_its_like_runs() -> None:
    hyper = initial_sets()
    noisy = with_noise(hyper, ["site:a"], 2 * hyper.known.noise)
    assert noisy.known.noise_by_source["site:a"] == pytest.approx(2.0)
    assert with_noise(hyper, ["site:a"], None) is hyper
    assert with_noise(hyper, ["site:a"], 1e-9).novel.noise_by_source["site:a"] == 0.5


@pytest.fixture
def history(tmp_path: Path, site: list[Run]) -> str:
    url = str(tmp_path / "history.sqlite")
    with History.open(url) as store:
        store.add(site)
        cut_s = cut_at(store, EVERY_RUN, 0.2)
        half_s = site[RUNS // 2].ended.end_s
        later_s = cut_at(store, EVERY_RUN, 0.2, taught_s=half_s)
    assert sum(run.ended.end_s > cut_s for run in site) == pytest.approx(0.2 * RUNS, abs=1)
    assert sum(run.ended.end_s > later_s for run in site) == pytest.approx(0.1 * RUNS, abs=1)
    return url


def calibrated(monkeypatch: pytest.MonkeyPatch, base: Base, *words: str) -> Any:
    monkeypatch.setattr(Base, "of", lambda progress=None: base)
    monkeypatch.setattr("predictor.estimate.fitting.stored_hyperparameters", initial_sets)
    return CliRunner().invoke(main, ["calibrate", *words], catch_exceptions=False)


def test_the_command_stores_and_uses_what_is_better(
    fitted: Fitted,
    base: Base,
    site: list[Run],
    history: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from predictor.estimate import store

    artifacts.use(store.store(fitted.predictor, {}).version)
    first = artifacts.current()
    dry = calibrated(monkeypatch, base, "--history", history, "--dry-run", "--format", "json")
    assert json.loads(dry.stdout)["better"]
    assert artifacts.current() == first
    assert read_state().fixed == ()

    told = calibrated(monkeypatch, base, "--history", history)
    assert "all held-back runs" in told.stdout
    assert "start-up alpha: median 30.0 s" in told.stdout
    used = artifacts.load()
    assert used.manifest.version != first
    assert used.manifest.figures["site rows"] == 12
    assert used.manifest.figures[UNTIL] == site[-1].ended.end_s
    assert read_state().cluster("alpha") is not None


def test_without_a_history_it_is_an_error(home: Path) -> None:
    found = CliRunner().invoke(main, ["calibrate", "--history", "nowhere.sqlite"])
    assert found.exit_code == 2
    assert "nowhere.sqlite" in found.stderr
