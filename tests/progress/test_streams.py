"""A rate within 10 %, the time left within 20 %, and no rate where there is no training."""

from __future__ import annotations

import pytest
from hostile import NOT_TRAINING, hostile
from hypothesis import given, settings
from hypothesis import strategies as st
from mixed import MIXED, SEARCHES_AND_REPORTS, saved_epochs_evaluated
from streams import REGULAR, Stream, megatron, own_epochs, tqdm_run

from predictor.site.progress.output_file import HEAD_BYTES, TAIL_BYTES, read_bytes
from predictor.site.progress.reader import ProgressKind, ProgressReading

HOSTILE = dict(hostile())
FALSE_ALARMS = NOT_TRAINING | SEARCHES_AND_REPORTS


def read(text: str) -> ProgressReading:
    raw = text.encode("utf-8", "surrogatepass")
    return read_bytes(raw[:HEAD_BYTES], raw[-TAIL_BYTES:], whole=len(raw) <= TAIL_BYTES)


def check(stream: Stream) -> None:
    found = read(stream.text)
    assert (found.kind, found.unit) == (ProgressKind.TRAINING, stream.unit)
    assert found.seconds_per_unit == pytest.approx(stream.rate_s, rel=0.1)
    if stream.remaining_s is None:
        assert found.remaining_s is None
    else:
        assert found.remaining_s == pytest.approx(stream.remaining_s, rel=0.2)
    if stream.at is not None:
        assert found.at == stream.at
    assert found.confidence is not None
    assert 0.5 <= found.confidence <= 1


def test_the_streams_are_sixty_and_half_of_them_hostile() -> None:
    assert len(REGULAR) + len(HOSTILE) >= 60
    assert len(HOSTILE) >= 30
    assert len(NOT_TRAINING) >= 30


@pytest.mark.parametrize("name", REGULAR)
def test_the_output_of_a_training_tells_its_rate_and_the_time_left(name: str) -> None:
    check(REGULAR[name]())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_output_tells_the_same(name: str) -> None:
    check(HOSTILE[name])


@pytest.mark.parametrize("name", MIXED)
def test_a_training_beside_what_looks_like_one_is_told_from_it(name: str) -> None:
    check(MIXED[name]())


def test_a_pass_over_saved_epochs_is_not_the_training() -> None:
    stream = saved_epochs_evaluated()
    found = read(stream.text)
    assert found.kind is ProgressKind.TRAINING
    assert found.at == pytest.approx(2950, rel=0.05)
    assert found.seconds_per_unit == pytest.approx(stream.rate_s, rel=0.1)


def test_a_first_step_alone_tells_no_rate() -> None:
    found = read("\rTraining:   0%|          | 1/3746 [00:36<37:53:58, 36.42s/it]")
    assert (found.kind, found.total) == (ProgressKind.TRAINING, 3746)
    assert (found.seconds_per_unit, found.remaining_s) == (None, None)


@pytest.mark.parametrize("name", FALSE_ALARMS)
def test_what_is_no_training_has_no_rate(name: str) -> None:
    found = read(FALSE_ALARMS[name])
    assert found.kind is not ProgressKind.TRAINING
    assert (found.unit, found.at, found.total, found.seconds_per_unit) == (None,) * 4
    assert (found.remaining_s, found.confidence) == (None, None)


@pytest.mark.parametrize("name", ["evaluation", "inference"])
def test_an_evaluation_is_told_as_one(name: str) -> None:
    assert read(NOT_TRAINING[name]).kind is ProgressKind.EVALUATION


def test_a_stated_length_is_no_counter() -> None:
    """``epochs: 3`` of a configuration makes no epoch of the steps after it."""
    lines = [f"step {n}/1000 loss 0.3 step_time 0.50s" for n in range(0, 400, 10)]
    found = read("epochs: 3\nNum Epochs = 3\n" + "\n".join(lines) + "\n")
    assert (found.unit, found.at, found.total) == ("step", 390, 1000)


def test_dictionaries_of_trainer_without_its_bar_tell_the_epoch() -> None:
    lines = [f"{{'loss': 1.9, 'learning_rate': 4e-05, 'epoch': {n * 0.04:.2f}}}" for n in range(40)]
    found = read("  Num Epochs = 3\n" + "\n".join(lines) + "\n")
    assert (found.unit, found.at, found.total) == ("epoch", 1.56, 3)
    assert (found.seconds_per_unit, found.remaining_s) == (None, None)


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.2, 50), at=st.integers(60, 900))
def test_the_rate_scales_with_the_time_that_a_step_takes(scale: float, at: int) -> None:
    check(megatron(step_s=scale, at=at // 10 * 10))
    check(tqdm_run(step_s=max(0.3, scale), at=at))
    check(own_epochs(epoch_s=10 + 10 * scale))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.binary(max_size=400))
def test_no_text_and_no_bytes_break_the_reader(text: str, raw: bytes) -> None:
    for given_text in (text, (text + "\n") * 3, "loss 1/2 " + text):
        read(given_text)
    read_bytes(raw, raw)
