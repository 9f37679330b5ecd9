"""What is read: in order, what was asked for, while others write, and without holding it all."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import polars as pl
import pytest
from history_runs import PERIOD_S, START_S, bare, run_number

from predictor.errors import HistoryError
from predictor.site.history import store
from predictor.site.history.frame import BLOCK_ROWS
from predictor.site.history.run import JobState
from predictor.site.history.store import History, Merged, Where
from predictor.site.history.tables import COLUMNS

RUNS = tuple(run_number(n) for n in range(40))
END_S = RUNS[0].ended.end_s


@pytest.fixture
def filled(history: History) -> History:
    shuffled = random.Random(1).sample(RUNS, len(RUNS))
    history.add(shuffled)
    return history


def test_runs_come_in_order_of_their_end(filled: History) -> None:
    assert tuple(filled.runs()) == RUNS


def test_runs_that_end_together_come_in_order_of_their_key(history: History) -> None:
    together = [
        run_number(n, ended={"end_s": END_S, "job_id": job_id})
        for n, job_id in enumerate(("é", "Z", "a", "10", "9", "_"))
    ]
    history.add(together)
    assert list(history.runs()) == sorted(together, key=lambda run: run.key)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        (Where(since_s=END_S + 37 * PERIOD_S), [37, 38, 39]),
        (Where(until_s=END_S + 2 * PERIOD_S), [0, 1]),
        (Where(users=("user1", "user2"), until_s=END_S + 10 * PERIOD_S), [1, 2, 8, 9]),
        (Where(job_ids=("1003",)), [3]),
        (Where(clusters=("beta",)), []),
        (Where(states=(JobState.FAILED,)), []),
        (
            Where(
                models=("resnet50",),
                gpu_types=("a100",),
                schedulers=("slurm",),
                states=(JobState.COMPLETED,),
                only_reported=True,
                job_ids=("1001",),
            ),
            [1],
        ),
    ],
)
def test_a_condition_keeps_what_it_names(filled: History, where: Where, numbers: list[int]) -> None:
    runs = [RUNS[n] for n in numbers]
    assert list(filled.runs(where)) == runs
    assert filled.count(where) == len(runs)
    ids = [run.ended.job_id for run in runs]
    assert sorted(filled.frame(where).collect()["job_id"]) == sorted(ids)


def test_only_what_told_its_step_time_is_reported(history: History) -> None:
    history.add([bare(RUNS[0]), RUNS[1]])
    assert list(history.runs(Where(only_reported=True))) == [RUNS[1]]


def test_those_that_tell_of_their_steps_name_a_network_and_reported_or_ended(
    history: History,
) -> None:
    failed = JobState.FAILED
    told = [
        replace(RUNS[1], ended=replace(RUNS[1].ended, state=failed)),
        replace(RUNS[2], ended=replace(RUNS[2].ended, state=JobState.TIMEOUT), reported=None),
    ]
    silent = [
        bare(RUNS[0]),
        replace(RUNS[3], asked=""),
        replace(RUNS[4], ended=replace(RUNS[4].ended, start_s=None)),
        replace(RUNS[5], ended=replace(RUNS[5].ended, state=failed), reported=None),
    ]
    history.add([*told, *silent])
    assert list(history.runs(Where(only_telling=True))) == told


def test_the_latest_are_the_last_ones_oldest_first(filled: History) -> None:
    assert tuple(filled.latest(3)) == RUNS[-3:]
    assert filled.latest(2, Where(users=("user0",))) == [RUNS[28], RUNS[35]]


def test_reading_goes_on_while_others_write_and_sees_what_was_there(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "READ_ROWS", 500)
    rows = 510
    history.add(map(run_number, range(rows)))
    reader = history.runs()
    first = list(islice(reader, 3))
    later = [replace(run, asked="model=bert") for run in map(run_number, range(rows - 5, rows + 5))]
    assert history.add(later) == Merged(new=5, changed=5)
    assert [*first, *reader] == list(map(run_number, range(rows)))


def test_the_frame_has_the_columns_of_the_table_and_their_kinds(filled: History) -> None:
    frame = filled.frame().collect()
    assert frame.columns == list(COLUMNS)
    kinds = {"end_s": pl.Float64, "gpus": pl.Int64, "user": pl.String, "reported_steps": pl.Int64}
    assert {name: frame.schema[name] for name in kinds} == kinds
    assert frame.sort("end_s")["job_id"].to_list() == [run.ended.job_id for run in RUNS]


def test_an_empty_history_is_an_empty_frame(history: History) -> None:
    assert history.frame().collect().shape == (0, len(COLUMNS))


def test_a_query_of_the_frame_is_that_of_the_runs(filled: History) -> None:
    by_user = (
        filled.frame(columns=["user", "gpus", "start_s", "end_s"])
        .filter(pl.col("end_s") >= END_S + 5 * PERIOD_S)
        .group_by("user")
        .agg(hours=(pl.col("gpus") * (pl.col("end_s") - pl.col("start_s"))).sum() / 3600)
        .collect()
    )
    expected = dict.fromkeys((run.ended.user for run in RUNS), 0.0)
    for job in (run.ended for run in RUNS[5:]):
        assert job.start_s is not None
        expected[job.user] += job.gpus * (job.end_s - job.start_s) / 3600
    assert dict(by_user.iter_rows()) == pytest.approx(expected)


def test_a_frame_longer_than_a_block_is_whole(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictor.site.history.frame.BLOCK_ROWS", 7)
    assert BLOCK_ROWS > 7
    history.add(RUNS)
    frame = history.frame(columns=["job_id", "end_s"])
    assert frame.sort("end_s").collect()["job_id"].to_list() == [r.ended.job_id for r in RUNS]
    assert frame.select(pl.len()).collect().item() == len(RUNS)
    assert frame.head(9).collect().height == 9


def test_a_column_that_is_none_is_refused(history: History) -> None:
    with pytest.raises(HistoryError, match=r"columns=\['colour'\].*node_names"):
        history.frame(columns=["user", "colour"])


def test_it_is_read_from_the_first_second_on(history: History) -> None:
    history.add([run_number(0, ended={"submit_s": 0.0, "start_s": None, "end_s": START_S})])
    assert history.count(Where(since_s=START_S)) == 1
