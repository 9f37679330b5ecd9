"""Filling the history: in batches, with a cursor that is never ahead of what is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from history_runs import run_number
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.site.history import ingest
from predictor.site.history.ingest import Item, LeftOut, Tally, Through, Unread, fill, period
from predictor.site.history.run import Run
from predictor.site.history.store import History, Merged

NAME = "slurm:north"


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "BATCH", 3)


def days(*lengths: int) -> Iterator[Item]:
    """Runs of some days, each followed by its end."""
    number = 0
    for day, length in enumerate(lengths, start=1):
        for _ in range(length):
            yield run_number(number)
            number += 1
        yield Through(day * 86400.0)


def test_everything_is_there_once_and_counted(history: History) -> None:
    heard: list[int] = []
    tally = fill(history, days(7, 0, 2), cursor=NAME, told=lambda t: heard.append(t.records))
    assert (tally.added.new, tally.runs, history.count()) == (9, 9, 9)
    assert tally.states.total() == 9
    assert history.cursor(NAME) == tally.cursor_s == 3 * 86400.0
    assert heard == sorted(heard)
    assert heard[-1] == 9


def test_the_same_again_changes_nothing(history: History) -> None:
    fill(history, days(5, 4), cursor=NAME)
    before = list(history.runs())
    tally = fill(history, days(5, 4), cursor=NAME)
    assert tally.added == Merged(same=9)
    assert list(history.runs()) == before


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(breaks=st.integers(0, 14), lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_whatever_ends_an_ingest_the_cursor_is_not_ahead_of_it(
    history: History, breaks: int, lengths: list[int]
) -> None:
    name = f"{breaks} {lengths}"

    def broken() -> Iterator[Item]:
        for given_before, item in enumerate(days(*lengths)):
            if given_before == breaks:
                raise KeyboardInterrupt
            yield item

    history.forget(float("inf"))
    try:
        fill(history, broken(), cursor=name)
    except KeyboardInterrupt:
        day = int((history.cursor(name) or 0) / 86400)
        assert history.count() >= sum(lengths[:day])
    fill(history, days(*lengths), cursor=name)
    assert history.count() == sum(lengths)
    assert history.cursor(name) == len(lengths) * 86400.0


def test_what_cannot_be_read_is_counted_and_the_first_reasons_are_kept(history: History) -> None:
    items: list[Item] = [Unread(f"job {i}", "x" * 500) for i in range(20)]
    tally = fill(history, [*items, LeftOut("without GPUs"), run_number(1)])
    assert (tally.unread, tally.left_out, tally.runs) == (20, {"without GPUs": 1}, 1)
    assert tally.records == 22
    assert len(tally.reasons) == ingest.REASONS_KEPT
    assert tally.reasons[0].startswith("job 0: xxx")
    assert max(map(len, tally.reasons)) <= 200
    assert list(tally.unread_reasons.values()) == [20]


def test_reasons_are_counted_without_end(history: History) -> None:
    tally = fill(history, (Unread("job", f"no {number}") for number in range(100)))
    assert len(tally.unread_reasons) == ingest.REASONS_COUNTED + 1
    assert (tally.unread_reasons.total(), tally.unread_reasons[ingest.OTHER_REASONS]) == (100, 80)


def test_the_cursor_never_moves_back_nor_over_a_gap(history: History) -> None:
    fill(history, days(1, 1), cursor=NAME)
    assert fill(history, days(1), cursor=NAME).cursor_s == 2 * 86400.0
    later: list[Run | Through] = [run_number(5), Through(9 * 86400.0)]
    tally = fill(history, later, cursor=NAME, since_s=8 * 86400.0)
    assert (tally.added.new, tally.at_s, tally.cursor_s) == (1, 9 * 86400.0, 2 * 86400.0)
    assert history.cursor(NAME) == 2 * 86400.0
    fill(history, later, cursor=NAME, since_s=2 * 86400.0)
    assert history.cursor(NAME) == 9 * 86400.0


def test_a_source_is_read_from_before_its_cursor_and_the_first_time_for_a_month() -> None:
    now_s = 1e9
    assert period(None, now_s, overlap_s=60).since_s == now_s - ingest.FIRST_S
    assert period(now_s - 1000, now_s, overlap_s=60).since_s == now_s - 1060
    assert period(now_s - 1000, now_s, since_s=5.0, overlap_s=60).since_s == 5.0
    assert period(None, now_s + 0.7, overlap_s=60).until_s == now_s, "more may end in that second"


def test_a_tally_is_plain_json(history: History) -> None:
    told: list[Tally] = []
    fill(history, days(2), cursor=NAME, told=told.append)
    assert told[-1].as_dict() == {
        "records": 2,
        "new": 2,
        "changed": 0,
        "same": 0,
        "states": {state.value: n for state, n in told[-1].states.items()},
        "left_out": {},
        "noted": {},
        "unread": 0,
        "unread_reasons": {},
        "reasons": [],
        "cursor_s": 86400.0,
    }
