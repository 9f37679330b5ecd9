"""Whatever breaks, the training goes on and is told once."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.estimate.fitting import Fitted
from predictor.integrations import TrainingLoop, follower, record, trainer_settings
from predictor.site.history.run import JobState
from predictor.site.step_rate import FILE_NAME, read_report

JOB = {"model": "resnet50", "precision": "amp", "gpu": "a100-sxm4-80gb", "batch_size": 256}


def train(**given: Any) -> int:
    return sum(1 for _ in TrainingLoop(**{**JOB, **given}).over(range(60)))


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ERRORS = (FULL, RuntimeError(), MemoryError(), RecursionError())


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (trainer_settings, "job_of"),
        (follower, "source_here"),
        (follower, "report_path"),
        (follower, "write_report"),
        (follower, "StepReport"),
        (follower, "wanted"),
        (follower, "_expectation"),
        (follower.StepClock, "mark"),
        (follower.StepClock, "__init__"),
        (follower.HostTime, "now"),
        (follower.HostTime, "between"),
        (trainer_settings, "rank_here"),
        (trainer_settings, "gpus_here"),
        (trainer_settings, "float32_here"),
    ],
)
@pytest.mark.parametrize("error", ERRORS)
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
        ({"model": None}, "no model"),
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
    monkeypatch.setattr(follower.HostTime, "between", lambda *_: took_s)
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


def test_a_history_that_cannot_be_written(
    fitted: Fitted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(record.HISTORY_VARIABLE, "mysql://nowhere/x")
    assert train() == 60
    assert "the history is off" in caplog.text


def test_a_directory_that_is_a_file(
    fitted: Fitted, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "reports").touch()
    assert train(directory=directory / "reports") == 60
    assert "the step report is off" in caplog.text


PARTS = (
    (follower, "write_report"),
    (follower, "StepReport"),
    (follower, "job_id_here"),
    (follower.StepClock, "mark"),
    (follower.HostTime, "between"),
    (follower, "wanted"),
)


@given(st.lists(st.booleans(), max_size=80), st.sampled_from(PARTS), st.sampled_from(ERRORS))
@settings(max_examples=40)
def test_whatever_fails_at_whatever_step(
    fails: list[bool], part: tuple[Any, str], error: Exception
) -> None:
    turns = iter(fails)
    owner, name = part
    real = getattr(owner, name)

    def at_times(*arguments: Any, **named: Any) -> Any:
        if next(turns, False):
            raise error
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "REFINE_STEPS", 3)
        patch.setattr(follower, "WRITE_EVERY_S", 0.0)
        patch.setattr(owner, name, at_times)
        assert train(gpu=None) == 60


def test_a_fork_neither_reports_nor_records(
    fitted: Fitted, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from predictor.site.history.store import History

    monkeypatch.setenv(record.HISTORY_VARIABLE, str(directory / "h.sqlite"))
    with TrainingLoop(**JOB, steps=80) as one:
        for _ in range(30):
            one.step()
        child = os.fork()
        if child == 0:
            for _ in range(40):
                one.step()
            one.end()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        before = read_report(directory / FILE_NAME)
        for _ in range(10):
            one.step()
    assert before is not None
    assert before.step < 40
    after = read_report(directory / FILE_NAME)
    assert after is not None
    assert after.step == 40
    with History.open() as history:
        assert history.count() == 1


def test_an_interrupt_of_the_training_is_a_cancelled_run(
    fitted: Fitted, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from predictor.site.history.store import History

    def interrupted() -> None:
        with TrainingLoop(**JOB, steps=80) as one:
            for step in range(80):
                one.step()
                if step == 39:
                    raise KeyboardInterrupt

    monkeypatch.setenv(record.HISTORY_VARIABLE, str(directory / "h.sqlite"))
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with History.open() as history:
        (run,) = history.runs()
    assert run.ended.state is JobState.CANCELLED


def test_an_interrupt_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower.StepClock, "mark", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        train()
