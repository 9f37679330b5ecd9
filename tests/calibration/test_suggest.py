"""The runs that are suggested are those that tell most of what the site runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from site_runs import run_of, slow_site

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.calibration.suggest import suggest
from predictor.site.history.run import Run
from predictor.site.history.store import History


@pytest.fixture(scope="module")
def site(fitted: Fitted) -> list[Run]:
    return slow_site(fitted.predictor.steps, runs=40, factor=3.0)


def test_each_run_narrows_more_than_none_and_less_than_the_one_before(
    fitted: Fitted, site: list[Run]
) -> None:
    found = suggest(fitted.predictor, site, 4)
    left = [found.deviation, *(one.deviation for one in found.runs)]
    assert len(left) == 5
    falls = -np.diff(np.square(left))
    assert (falls > 0).all()
    assert (falls[:-1] >= falls[1:] - 1e-12).all()
    assert len({one.job for one in found.runs}) == 4


def test_the_first_run_is_better_than_any_other(fitted: Fitted, site: list[Run]) -> None:
    first = suggest(fitted.predictor, site, 1)
    more = suggest(fitted.predictor, site, 3)
    assert more.runs[0] == first.runs[0]


def test_runs_without_a_network_suggest_nothing(fitted: Fitted) -> None:
    nameless = run_of(1, asked="")
    assert suggest(fitted.predictor, [nameless], 3).runs == ()


def test_the_command_prints_lines_to_submit(
    site: list[Run], tmp_path: Path, fitted: Fitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.cli.calibrate.predictor", lambda *_: fitted.predictor)
    url = str(tmp_path / "history.db")
    with History.open(url) as store:
        store.add(site)
    words = ["calibrate", "--history", url, "--suggest", "2"]
    text = CliRunner().invoke(main, words)
    assert text.exit_code == 0, text.output
    assert text.stdout.count("sbatch --nodes=1 --gpus-per-node=a100") == 2
    assert "--time" not in text.stdout
    assert "comment" not in text.stdout
    told: Any = json.loads(CliRunner().invoke(main, [*words, "--format", "json"]).stdout)
    assert all(run["command"] in text.stdout for run in told["runs"])
    assert told["deviation"] > told["runs"][0]["deviation"] > told["runs"][1]["deviation"]
