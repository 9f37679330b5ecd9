"""`precision-time fit`, `models` and `validate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from predictor.estimate import artifacts, store
from predictor.estimate.fitting import Fitted
from predictor.evaluation.validator import Figure, IntervalCoverage, Validation

Run = Callable[..., Result]
RunJson = Callable[..., Any]

FIGURES = (
    Figure("random 5-fold", "full", 0.09, 0.06, 0.2, 50),
    Figure("random 5-fold", "blind", 0.4, 0.3, 0.9, 50),
    Figure("unseen model", "full", float("nan"), float("nan"), float("nan"), 0),
)


@pytest.fixture
def validated(no_refit: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Cross-validation that is already done; holds the folders it was written to."""
    pairs = (np.ones(2),) * 4
    validation = Validation(FIGURES, (IntervalCoverage("run", 0.95, 0.951, 0.3, 50),), (), *pairs)
    folders: list[Path] = []
    monkeypatch.setattr("predictor.evaluation.protocols.validate", lambda *_: validation)

    def write(_: Validation, directory: Path) -> list[Path]:
        folders.append(directory)
        return [directory / "accuracy.md"]

    monkeypatch.setattr("predictor.evaluation.report.write", write)
    return folders


def test_fit_stores_a_predictor_and_puts_it_to_use(
    run: Run, home: Path, fitted: Fitted, no_refit: list[Any]
) -> None:
    lines = run("fit").stdout.splitlines()
    assert artifacts.current() == lines[0]
    assert lines[1].split() == ["rows", str(len(fitted.priced))]


def test_models_are_listed_used_rolled_back_and_removed(
    run: Run, run_json: RunJson, home: Path, fitted: Fitted
) -> None:
    first, second = (store.store(fitted.predictor, {"rows": n}).version for n in (1.0, 2.0))
    for version in (first, second):
        assert run("models", "use", version).stdout.strip() == version
    assert [m["version"] for m in run_json("models", "list") if m["in_use"]] == [second]
    assert run("models", "rollback").stdout.strip() == first
    assert "in use" in run("models", "remove", first, code=2).stderr
    assert run("models", "remove", second).stdout == f"removed {second}\n"
    lines = run("models", "list").stdout.splitlines()
    shipped = artifacts.shipped().version
    assert [line.split()[:2] for line in lines[1:]] == [[shipped, "*"], [first, "*"]]
    assert run("models", "use", "shipped").stdout.strip() == shipped
    assert [(m["version"], m["shipped"]) for m in run_json("models", "list") if m["in_use"]] == [
        (shipped, True)
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("use", "v1"), "'v1' is not a version"),
        (("remove", "v1"), "'v1' is not a version"),
        (("rollback",), "no earlier version"),
    ],
)
def test_a_version_that_is_not_there_is_an_error(
    run: Run, home: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in run("models", *words, code=2).stderr


def test_a_predictor_of_other_tables_is_pointed_out(
    run: Run, home: Path, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts.use(store.store(fitted.predictor, {}).version)
    monkeypatch.setattr(store, "tables_hash", lambda: "of later tables")
    words = ("resnet50", "--gpu", "v100", "--precision", "amp", "--batch-size", "8")
    assert "fitted on other tables" in run("predict", *words).stderr


def test_the_first_prediction_fits_nothing(run: Run, home: Path) -> None:
    words = ("predict", "resnet50", "--gpu", "v100", "--precision", "amp", "--batch-size", "8")
    assert run(*words).stderr == ""
    assert not home.exists()


def test_validate_prints_every_figure_and_writes_the_report(
    run: Run, validated: list[Path], tmp_path: Path
) -> None:
    result = run("validate", "--docs", str(tmp_path))
    text = result.stdout
    assert [line.split()[-1] for line in text.splitlines()[1:4]] == ["50", "50", "0"]
    assert "95.1 %" in text
    assert validated == [tmp_path]
    assert f"wrote {tmp_path / 'accuracy.md'}" in result.stderr


def test_validate_can_leave_the_report_alone(run: Run, validated: list[Path]) -> None:
    run("validate", "--no-write")
    assert validated == []


def test_validate_shows_the_protocols_that_were_named(
    run: Run, run_json: RunJson, validated: list[Path]
) -> None:
    found = run_json("validate", "--no-write", "--protocol", "unseen")
    assert [f["protocol"] for f in found["figures"]] == ["unseen model"]
    assert found["figures"][0]["mean"] is None
    error = run("validate", "--no-write", "--protocol", "seen", code=2).stderr
    assert "protocol='seen'" in error
    assert "random 5-fold" in error
