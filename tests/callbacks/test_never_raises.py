"""Whatever breaks, the training goes on and is told once."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from predictor.callbacks import TrainingLoop, clock, follower, loop, record
from predictor.fitting import Fitted

JOB = {"model": "resnet50", "precision": "amp", "gpu": "a100-sxm4-80gb", "batch_size": 256}


def train(**given: Any) -> int:
    return sum(1 for _ in TrainingLoop(**{**JOB, **given}).over(range(60)))


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (follower, "job_of"),
        (follower, "source_here"),
        (follower, "report_path"),
        (follower, "write_report"),
        (follower, "StepReport"),
        (follower, "wanted"),
        (follower, "_expectation"),
        (follower.StepClock, "mark"),
        (follower.StepClock, "__init__"),
        (clock.HostTime, "now"),
        (clock.HostTime, "between"),
        (loop, "rank_here"),
        (loop, "gpus_here"),
        (loop, "float32_here"),
    ],
)
@pytest.mark.parametrize("error", [FULL, RuntimeError(), MemoryError(), RecursionError()])
def test_a_part_that_fails_is_off(
    fitted: Fitted,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: Any,
    name: str,
    error: Exception,
) -> None:
    monkeypatch.setattr(part, name, raising(error))
    assert train() == 60
    assert 1 <= len(caplog.records) <= 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "no-such-network"}, "no-such-network"),
        ({"model": None}, "model=None"),
        ({"model": 7}, ""),
        ({"gpu": "abacus"}, "abacus"),
        ({"precision": "fp1"}, "fp1"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"batchsize": 3}, "batchsize"),
        ({"grad_accum": 0}, "grad_accum"),
        ({"grad_accum": "many"}, "grad_accum"),
        ({"steps": 10**13}, "total_steps"),
        ({"steps": "many"}, "many"),
        ({"steps": float("nan")}, "nan"),
    ],
)
def test_what_cannot_be_is_said(
    fitted: Fitted, caplog: pytest.LogCaptureFixture, given: dict[str, Any], said: str
) -> None:
    assert train(**given) == 60
    assert said in caplog.text
    assert caplog.records


@pytest.mark.parametrize("took_s", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_absurd_times_are_no_steps(
    monkeypatch: pytest.MonkeyPatch, directory: Path, took_s: float
) -> None:
    monkeypatch.setattr(clock.HostTime, "between", lambda *_: took_s)
    assert train() == 60
    assert not list(directory.iterdir())


def test_a_directory_that_is_gone(
    fitted: Fitted, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(directory)
    assert train() == 60
    assert len(caplog.records) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_read_only(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.chmod(0o500)
    assert train(gpu=None) == 60
    assert "the step report is off" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert train() == 60
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # what is left can be flushed


def test_no_predictor_is_no_minute_of_fitting(
    home: Path, caplog: pytest.LogCaptureFixture, directory: Path
) -> None:
    assert train() == 60
    assert "precision-time fit" in caplog.text
    assert list(directory.iterdir())  # the training is followed all the same


def test_a_history_that_cannot_be_written(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(record.HISTORY_VARIABLE, "mysql://nowhere/x")
    assert train() == 60
    assert "the history is off" in caplog.text


def test_an_interrupt_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower.StepClock, "mark", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        train()
