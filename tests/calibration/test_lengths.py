"""How long jobs run that do not say, from like jobs of the same user."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_runs import run_of

from predictor.site.calibration.lengths import MIN_RUNS, LengthModel
from predictor.site.calibration.like_jobs import LikeJob, command_pattern, name_pattern
from predictor.site.ended_job import JobState
from predictor.site.history.run import Run

BARE = {"asked": "", "submit_line": ""}


def named(count: int, elapsed_s: float, name: str = "nightly-{}", **ended: object) -> list[Run]:
    return [
        run_of(n, elapsed_s=elapsed_s, name=name.format(n), user="ann", **BARE | ended)  # type: ignore[arg-type]
        for n in range(count)
    ]


def like(**changes: object) -> LikeJob:
    return LikeJob(**{"user": "ann", "gpus": 4, "name": "nightly-77"} | changes)  # type: ignore[arg-type]


def test_like_names_tell_the_length() -> None:
    found = LengthModel.fit(named(40, 7200.0)).estimate(like(), 0.9)
    assert found is not None
    assert found.median_s == pytest.approx(7200.0)
    assert found.quantile_s >= found.median_s
    assert (found.runs, found.evidence) == (40, "40 runs of the same user and name")


@pytest.mark.parametrize(
    "other", [{"user": "bob"}, {"gpus": 8}, {"name": "weekly-77"}, {"name": ""}]
)
def test_jobs_of_another_user_name_or_gpu_count_are_not_like(other: dict[str, object]) -> None:
    assert LengthModel.fit(named(40, 7200.0)).estimate(like(**other), 0.9) is None


def test_too_few_runs_tell_nothing() -> None:
    assert LengthModel.fit(named(MIN_RUNS - 1, 100.0)).estimate(like(), 0.5) is None


def test_a_high_quantile_needs_as_many_errors() -> None:
    """A 95 % quantile from 9 earlier errors would be a guess."""
    model = LengthModel.fit(named(MIN_RUNS + 9, 100.0))
    assert model.estimate(like(), 0.5) is not None
    assert model.estimate(like(), 0.95) is None


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED])
def test_runs_that_did_not_finish_tell_no_length(state: JobState) -> None:
    assert LengthModel.fit(named(40, 100.0, state=state)).keys == {}


def test_nothing_is_said_where_many_runs_hit_their_limit() -> None:
    runs = [*named(30, 3000.0), *named(10, 3600.0, state=JobState.TIMEOUT)]
    assert LengthModel.fit(runs[:32]).estimate(like(), 0.5) is not None
    assert LengthModel.fit([*runs[:20], *runs[30:]]).estimate(like(), 0.5) is None


def test_what_changed_lately_counts_more() -> None:
    found = LengthModel.fit([*named(40, 1000.0), *named(25, 4000.0)]).estimate(like(), 0.5)
    assert found is not None
    assert found.median_s == pytest.approx(4000.0, rel=0.05)


def test_the_most_telling_likeness_is_used() -> None:
    line = "sbatch -N1 /home/ann/long.sh --epochs {}"
    long = named(40, 9000.0, submit_line=line.format(3))
    short = named(40, 100.0, submit_line="sbatch short.sh")
    mixed = [run for pair in zip(long, short, strict=True) for run in pair]
    found = LengthModel.fit(mixed).estimate(like(command="/spool/job1/long.sh --epochs 90"), 0.5)
    assert found is not None
    assert found.evidence == "40 runs of the same user and command"
    assert found.median_s == pytest.approx(9000.0, rel=0.15)


def test_a_submit_line_and_the_arguments_a_hook_sees_are_one_command() -> None:
    line = "sbatch --gres=gpu:4 -t 60 jobs/train.sh --lr 1e-3 --seed 7"
    assert command_pattern(line) == command_pattern("/home/u/jobs/train.sh --lr 0.1 --seed 12")
    assert command_pattern("sbatch --wrap hostname") == ""
    assert name_pattern("wrap") == ""


def drawn(users: int, each: int, seed: int) -> Iterator[tuple[str, float]]:
    """Jobs of users with a length and a spread of their own, in turn."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(8.0, 1.0, users)
    spreads = rng.uniform(0.02, 0.5, users)
    for _ in range(each):
        for user in range(users):
            yield f"u{user}", float(np.exp(rng.normal(centres[user], spreads[user])))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_a_quantile_covers_what_it_says(level: float) -> None:
    """Of runs that taught nothing, the share below the quantile is the level."""
    jobs = list(drawn(users=40, each=40, seed=3))
    runs = [
        run_of(n, elapsed_s=s, user=user, name="sweep", **BARE)  # type: ignore[arg-type]
        for n, (user, s) in enumerate(jobs)
    ]
    model = LengthModel.fit(runs[:1400])
    inside = []
    for user, seconds in jobs[1400:]:
        found = model.estimate(LikeJob(user=user, gpus=4, name="sweep"), level)
        assert found is not None
        inside.append(seconds <= found.quantile_s)
    assert np.mean(inside) == pytest.approx(level, abs=0.08)


@given(st.lists(st.floats(1.0, 1e6), min_size=MIN_RUNS, max_size=60), st.floats(0.05, 0.95))
def test_the_median_lies_among_the_runs_and_the_quantile_above_it(
    lengths: list[float], level: float
) -> None:
    runs = [run for s in lengths for run in named(1, s)]
    found = LengthModel.fit(runs).estimate(like(), level)
    if found is not None:
        assert min(lengths) * 0.999 <= found.median_s <= max(lengths) * 1.001
        assert found.quantile_s >= found.median_s


def test_it_is_the_same_after_json_and_names_nobody() -> None:
    model = LengthModel.fit(named(40, 7200.0))
    text = json.dumps(model.as_dict())
    assert "ann" not in text
    assert "nightly" not in text
    again = LengthModel.from_dict(json.loads(text)).estimate(like(), 0.9)
    found = model.estimate(like(), 0.9)
    assert again is not None
    assert found is not None
    assert again.median_s == pytest.approx(found.median_s, rel=1e-3)
