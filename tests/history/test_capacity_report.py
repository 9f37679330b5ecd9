"""The capacity report of a history, the same in both databases."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from history_runs import START_S, run_number

from predictor.cli.main import main
from predictor.estimate.fitting import Fitted
from predictor.site.history.run import JobState
from predictor.site.history.store import History

RUNS = 200
STATES = tuple(JobState)
DAY_S = 86_400.0


@pytest.fixture
def filled(url: str) -> str:
    """A history with runs of every state, one of them without an end in the period."""
    with History.open(url) as store:
        store.add([run_number(n, ended={"state": STATES[n % len(STATES)]}) for n in range(RUNS)])
        later = {"job_id": "late", "end_s": START_S + 9 * DAY_S, "gpu_type": "v100"}
        store.add([run_number(RUNS, ended=later)])
    return url


def capacity(command: str, url: str, *words: str) -> Any:
    def at(moment_s: float) -> str:
        return datetime.fromtimestamp(moment_s, UTC).isoformat()

    period = ("--since", at(START_S), "--until", at(START_S + DAY_S))
    done = CliRunner().invoke(
        main,
        [
            "capacity",
            command,
            "--from",
            "history",
            "--history",
            url,
            "--format",
            "json",
            *period,
            *words,
        ],
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_its_sums_are_those_of_the_runs(filled: str) -> None:
    found = capacity("report", filled)
    one_h = 8 * (4000.000001 - 30.25) / 3600
    of_states = [STATES[n % len(STATES)] for n in range(RUNS)]
    counted = {"completed": 1, "cancelled": 1, "timed_out": 2, "failed": 3, "preempted": 2}
    counted |= {"unknown": 1}
    assert sum(counted.values()) == len(STATES)
    share = RUNS / len(STATES)
    for outcome, states in counted.items():
        assert found["hours"][outcome] == pytest.approx(one_h * states * share, rel=0.05)
    late_h = 8 * (DAY_S - RUNS * 60 - 30.25) / 3600
    assert found["hours"]["running"] == pytest.approx(late_h)
    total = sum(found["hours"].values())
    assert total == pytest.approx(len(of_states) * one_h + late_h)
    for shares in found["splits"].values():
        assert sum(sum(s["hours"].values()) for s in shares) == pytest.approx(total)
        assert sum(s["jobs"] for s in shares) == RUNS + 1


def test_its_queue_is_that_of_the_moment(
    filled: str, fitted: Fitted, session_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(session_home))  # where the predictor is
    assert capacity("queue", filled)["queue"] == []
    with History.open(filled) as store:
        waited = {"job_id": "waited", "start_s": START_S + 8.9 * DAY_S, "gpu_type": "v100"}
        store.add([run_number(RUNS + 1, ended=waited | {"end_s": START_S + 9 * DAY_S})])
    [job] = capacity("queue", filled)["queue"]
    assert (job["job_id"], job["gpu_type"]) == ("waited", "v100-sxm2-16gb")
    assert job["starts_s"]["low"] > 0
