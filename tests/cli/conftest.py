"""Commands run in this process, on the predictor that the whole test run shares."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.estimate.measurement import shipped

Run = Callable[..., Result]
Row = Mapping[str, str]


@pytest.fixture
def run() -> Run:
    """Run a command; its exit code must be the one expected."""

    def invoke(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, words)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """Run a command with ``--format json``, and read what it prints."""
    return lambda *words, code=0: json.loads(run(*words, "--format", "json", code=code).stdout)


@pytest.fixture
def no_refit(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What commands that fit anew asked to be fitted on; they get the shared predictor."""
    asked: list[Any] = []

    def fit(measurements: Any = None, **_: Any) -> Fitted:
        asked.append(measurements)
        return fitted

    monkeypatch.setattr("predictor.estimate.fitting.fit", fit)
    return asked


@pytest.fixture(scope="session")
def rows() -> tuple[Row, ...]:
    """Shipped runs of one source and of two GPUs, under ids and figures of their own."""
    chosen = [m for m in shipped() if m.source == "dlperf" and m.job.gpus == 1][:12]
    return tuple(
        {**m.row, "id": f"own-{n}", "throughput": str(1.07 * float(m.row["throughput"]))}
        for n, m in enumerate(chosen)
    )


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def file(tmp_path: Path, rows: tuple[Row, ...]) -> Path:
    """Twelve runs that can be predicted, and two that cannot."""
    unknown = {**rows[0], "id": "unknown", "model": "no-such-net"}
    empty = dict.fromkeys(("throughput", "iteration_s", "total_s"), "")
    timeless = {**rows[0], "id": "timeless", **empty}
    return write_csv(tmp_path / "runs.csv", [*rows, unknown, timeless])
