"""`precision-time drift` on a history, as an administrator and as cron runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from drift_noise import replicate_noise
from site_runs import GPU, START_S, run_of, told

from predictor.cli.main import main
from predictor.site.history.run import Predicted, Run
from predictor.site.history.store import History

RUNS, CHANGED = 240, 160


def runs(slower: float, version: str | None = None) -> list[Run]:
    """Hourly runs of four users that take 0.1 s a step, as predicted, and longer from one on."""
    noise = np.random.default_rng(0).choice(replicate_noise(), RUNS)
    found = []
    for n in range(RUNS):
        step_s = 0.1 * (1 + noise[n] / 4) * (slower if n >= CHANGED else 1.0)
        said = Predicted(step_s=0.1, gpu=GPU, gpus=4, version=version)
        found.append(replace(run_of(n, reported=told(float(step_s))), predicted=said))
    return found


def stored(directory: Path, slower: float, version: str | None = None) -> str:
    url = str(directory / "history.sqlite")
    with History.open(url) as store:
        store.add(runs(slower, version))
    return url


def drift(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["drift", "--history", url, *words], catch_exceptions=False)


def shown(url: str, *words: str) -> Any:
    return json.loads(drift(url, "--format", "json", *words).stdout)


def test_a_slower_cluster_is_told_with_date_and_size(tmp_path: Path) -> None:
    url = stored(tmp_path, 1.2)
    found = drift(url, "--fail-on-alarm")
    assert found.exit_code == 1
    (whole, *_) = shown(url)["alarms"]
    since = datetime.fromtimestamp(whole["since_s"])
    assert f"slower since {since:%Y-%m-%d} on alpha: {GPU}, pytorch" in found.stdout
    assert whole["shift"] == pytest.approx(0.2, abs=0.03)
    assert whole["since_s"] == pytest.approx(START_S + CHANGED * 3600, abs=12 * 3600)
    assert whole["users"] == 4


def test_a_cluster_that_stays_as_it_was_is_silent(tmp_path: Path) -> None:
    url = stored(tmp_path, 1.0)
    found = drift(url, "--fail-on-alarm")
    assert (found.exit_code, "no change" in found.stdout) == (0, True)
    stream = shown(url)["streams"][0]
    assert stream["figures"]["bias"] == pytest.approx(0.0, abs=0.01)


def test_runs_before_a_date_are_left_out(tmp_path: Path) -> None:
    url = stored(tmp_path, 1.2)
    assert shown(url, "--since", "2025-10-20")["alarms"] == []


def test_coverage_is_the_share_below_what_was_told(tmp_path: Path) -> None:
    url = str(tmp_path / "history.sqlite")
    with History.open(url) as store:
        for run in runs(1.2):
            assert run.predicted is not None
            told = replace(run.predicted, median_s=100.0, upper_s=110.0, level=0.95)
            store.add([replace(run, predicted=told)])
    figures = shown(url)["streams"][0]["figures"]
    assert figures["judged"] == RUNS
    assert figures["coverage"] == pytest.approx(CHANGED / RUNS, abs=0.05)
    figures = shown(stored(tmp_path / "untold", 1.2))["streams"][0]["figures"]
    assert (figures["runs"], figures["judged"], figures["coverage"]) == (RUNS, 0, None)


def test_a_prediction_for_another_gpu_is_no_error_of_ours(tmp_path: Path) -> None:
    url = str(tmp_path / "history.sqlite")
    with History.open(url) as store:
        other = Predicted(step_s=0.1, gpu="v100-sxm2-16gb", gpus=4)
        store.add(replace(run, predicted=other) for run in runs(1.0))
    stream = shown(url)["streams"][0]
    assert (stream["measured"], stream["figures"]["runs"]) == (RUNS, 0)


def test_what_is_not_used_is_counted(tmp_path: Path) -> None:
    url = stored(tmp_path, 1.0)
    with History.open(url) as store:
        store.add([run_of(999, asked="")])
    assert shown(url)["not_used"] == {"model not known": 1}
    assert "1 model not known" in drift(url).stdout


def test_an_empty_history_says_so(tmp_path: Path) -> None:
    url = str(tmp_path / "history.sqlite")
    with History.open(url):
        pass
    found = drift(url)
    assert (found.exit_code, "history is empty" in found.stderr) == (0, True)
    assert "no change" not in found.stdout
