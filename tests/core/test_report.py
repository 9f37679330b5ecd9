"""The accuracy page says what the validation found, and its plots are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predictor.evaluation.report import markdown, tables, write
from predictor.evaluation.validator import (
    Figure,
    IntervalCoverage,
    OperatorError,
    OperatorEvaluation,
    SourceFigure,
    Validation,
)

VALIDATION = Validation(
    figures=(
        Figure("random 5-fold", "full", 0.0614, 0.0331, 0.144, 1961),
        Figure("random 5-fold, all sources", "full", 0.067, 0.028, 0.17, 6237),
        Figure("unseen source", "full", 0.217, 0.155, 0.56, 1707),
        Figure("1 to n GPUs", "perfect scaling", 0.158, 0.106, 0.3, 1372),
        Figure("leave one model out, all sources", "full", np.nan, np.nan, np.nan, 0),
    ),
    coverages=(
        IntervalCoverage("site", 0.95, 0.951, 1.512, 1707),
        IntervalCoverage("run", 0.95, 0.95, 0.19, 6000),
    ),
    sources=tuple(
        SourceFigure(
            Figure(name, "full", mean, 0.1, 0.3, 40),
            IntervalCoverage(name, 0.95, coverage, 1.0, 40),
        )
        for name, mean, coverage in (("one", 0.1, 0.9), ("other", 0.3, 1.0))
    ),
    measured_s=np.array([0.1, 1.0, 10.0]),
    predicted_s=np.array([0.11, 0.9, 10.5]),
    measured_ratio=np.array([1.5, 2.0]),
    predicted_ratio=np.array([1.4, 2.2]),
    operators=OperatorEvaluation(
        (
            OperatorError("shape", "gemm fp32", "v100-pcie-32gb", 240, 0.055, 0.041, -0.01),
            OperatorError("shape", "gemm fp32", "t4-16gb", 99, 0.2, 0.1, 0.0),
        ),
        (),
    ),
)


def test_every_figure_has_its_protocol_method_errors_and_count() -> None:
    assert "| random 5-fold | full | 6.1 % | 3.3 % | 14.4 % | 1961 |" in tables(VALIDATION)


def test_an_interval_has_its_tier_level_coverage_and_width() -> None:
    assert "| site | 95 % | 95.1 % | 151 % | 1707 |" in tables(VALIDATION)


def test_the_first_page_says_what_is_known_what_runs_bring_and_how_sources_fare() -> None:
    page = markdown(VALIDATION)
    assert "ran at this site | 6.7 % | 2.8 % | 95.0 % | 19 % |" in page
    assert "| no run | 21.7 % | 15.5 % |" in page
    assert "| other | 40 | 30.0 % | 10.0 % | 100.0 % | 100 % |" in page
    assert "| mean over sources | | 20.0 % | 10.0 % | 95.0 % | 100 % |" in page
    assert "| 1 to n GPUs | perfect scaling | 15.8 % | 10.6 % |" in page
    assert "nobody ever measured the model" not in page  # no row was counted


def test_operator_errors_of_v100_and_a100_are_listed_and_no_others() -> None:
    page = tables(VALIDATION)
    assert "| shape | gemm fp32 | v100-pcie-32gb | 5.5 % | 4.1 % | -1.0 % | 240 |" in page
    assert "t4-16gb" not in page


def test_the_plots_the_page_names_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write(VALIDATION, tmp_path)
    assert [path.name for path in written] == [
        "accuracy.md",
        "accuracy-tables.md",
        "predicted-vs-measured.svg",
        "speedup.svg",
    ]
    for path in written[2:]:
        assert path.name in written[0].read_text()
        assert path.read_text().startswith("<?xml")
