"""What is added is there, once, exactly, and completed by what is added later."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from history_runs import bare, run_number
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.errors import HistoryError
from predictor.site.history import store
from predictor.site.history.run import EndedJob, JobState, LimitBy, Predicted, Reported, Run
from predictor.site.history.store import STAGED_ROWS, Cursor, History, Merged, Where

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
WORDS = TEXTS.filter(bool)
SECONDS = st.floats(0, 4e9)
COUNTS = st.integers(0, 2**40)
FOR_ALL = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


JOBS = st.builds(
    EndedJob,
    scheduler=TEXTS,
    cluster=TEXTS,
    job_id=TEXTS,
    name=TEXTS,
    user=TEXTS,
    account=TEXTS,
    partition=TEXTS,
    qos=TEXTS,
    state=st.sampled_from(JobState),
    submit_s=SECONDS,
    start_s=optional(SECONDS),
    end_s=SECONDS,
    limit_s=optional(SECONDS),
    gpus=COUNTS,
    gpu_type=optional(WORDS),
    nodes=COUNTS,
    node_names=st.lists(TEXTS, max_size=3).map(tuple),
    stated=TEXTS,
    decision=TEXTS,
    submit_line=TEXTS,
    constraint=TEXTS,
    energy_j=optional(SECONDS),
)
PREDICTED = st.builds(
    Predicted,
    step_s=SECONDS,
    median_s=optional(SECONDS),
    upper_s=optional(SECONDS),
    level=optional(st.floats(0, 1)),
    gpu=optional(WORDS),
    gpus=optional(COUNTS),
    version=optional(WORDS),
    tier=optional(WORDS),
    limit_s=optional(SECONDS),
)
REPORTED = st.builds(
    Reported,
    step_s=SECONDS,
    steps=COUNTS,
    step_s_spread=optional(SECONDS),
    total_steps=optional(COUNTS),
    startup_s=optional(SECONDS),
    paused_s=optional(SECONDS),
    loader_bound=optional(st.floats(0, 1)),
)
RUNS = st.builds(
    Run,
    ended=JOBS,
    asked=TEXTS,
    origin=TEXTS,
    limit_by=optional(st.sampled_from(LimitBy)),
    predicted=optional(PREDICTED),
    reported=optional(REPORTED),
)


@FOR_ALL
@given(st.lists(RUNS, max_size=5, unique_by=lambda run: run.key))
def test_what_is_read_is_what_was_added_to_the_last_bit(history: History, runs: list[Run]) -> None:
    history.forget(math.inf)
    assert history.add(runs) == Merged(new=len(runs))
    assert list(history.runs()) == sorted(runs, key=lambda run: (run.ended.end_s, run.key))


@FOR_ALL
@given(st.lists(RUNS, min_size=1, max_size=5))
def test_adding_the_same_again_changes_nothing(history: History, runs: list[Run]) -> None:
    history.forget(math.inf)
    history.add(runs)
    before = list(history.runs())
    for run in before:
        assert history.add([run]) == Merged(same=1)
    assert list(history.runs()) == before


def test_a_later_record_fills_what_was_missing_and_erases_nothing(history: History) -> None:
    full = run_number(1)
    history.add([bare(full)])
    assert history.add([full]) == Merged(changed=1)
    assert history.add([bare(full)]) == Merged(same=1)
    assert list(history.runs()) == [full]


def test_a_later_record_says_how_and_when_the_job_ended(history: History) -> None:
    first = run_number(1)
    later = run_number(1, ended={"state": JobState.TIMEOUT, "end_s": first.ended.end_s + 5})
    history.add([first])
    assert history.add([later]) == Merged(changed=1)
    assert list(history.runs()) == [later]


def test_model_precision_and_gpu_follow_the_job_that_was_asked_for(history: History) -> None:
    history.add([run_number(1)])
    history.add([run_number(1, asked='model="nemo 5" steps=9')])
    row = history.frame(columns=["model", "precision", "gpu"]).collect().row(0)
    assert row == ("nemo 5", None, None)


def test_a_job_that_comes_twice_in_one_batch_is_one_run(history: History) -> None:
    one, two = run_number(1), run_number(2)
    assert history.add([bare(one), two, one, one]) == Merged(new=2, changed=1, same=1)
    assert list(history.runs()) == [one, two]


def test_a_number_that_is_given_again_is_another_job(history: History) -> None:
    wrapped = [run_number(n, ended={"job_id": "7"}) for n in range(3)]
    elsewhere = run_number(0, ended={"job_id": "7", "cluster": "beta"})
    assert history.add([*wrapped, elsewhere]).new == 4


def test_more_than_is_held_at_once_is_one_transaction(history: History) -> None:
    rows = STAGED_ROWS + 3
    assert history.add(run_number(n) for n in range(rows)) == Merged(new=rows)
    assert history.count() == rows


def test_the_cursor_moves_with_the_runs_and_never_without(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STAGED_ROWS", 500)

    def broken() -> Any:
        yield from map(run_number, range(501))
        raise OSError("sacct ended")

    assert history.cursor("sacct") is None
    history.add([run_number(1)], cursor=Cursor("sacct", 100.000001))
    with pytest.raises(OSError, match="sacct ended"):
        history.add(broken(), cursor=Cursor("sacct", 200))
    assert (history.cursor("sacct"), history.count()) == (100.000001, 1)
    history.add([], cursor=Cursor("sacct", 150))
    assert history.status().cursors == {"sacct": 150}


def test_texts_that_no_database_takes_are_kept_as_far_as_they_go(history: History) -> None:
    history.add([run_number(1, ended={"name": "a\0b", "job_id": "1\0", "user": "\udc80x"})])
    (job,) = (run.ended for run in history.runs())
    replaced = "\N{REPLACEMENT CHARACTER}"
    assert (job.name, job.job_id, job.user) == (f"a{replaced}b", f"1{replaced}", "?x")


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE runs; --", "%s", ":name", "\\N", "\t\n\r", "{}", "\\.", "🚂é", '"']
)
def test_hostile_texts_are_only_texts(history: History, name: str) -> None:
    run = run_number(1, ended={"name": name, "user": name, "job_id": name}, origin=name)
    history.add([run], cursor=Cursor(name, 1))
    assert list(history.runs(Where(users=(name,)))) == [run]
    assert history.cursor(name) == 1


@pytest.mark.parametrize("field", ["submit_s", "end_s", "energy_j", "gpus"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_a_number_that_is_none_is_refused_by_name(
    history: History, field: str, value: float
) -> None:
    with pytest.raises(HistoryError, match=re.escape(f"{field}={value!r} of slurm job '1001'")):
        history.add([run_number(0), run_number(1, ended={field: value})])
    assert history.count() == 0


def test_a_prediction_of_nothing_is_none(history: History) -> None:
    history.add([replace(run_number(1), predicted=Predicted())])
    (run,) = history.runs()
    assert run.predicted is None
