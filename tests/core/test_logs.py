"""The log of a service: what it costs whoever logs, and that nothing of it is lost at the end."""

from __future__ import annotations

import logging
from threading import Event
from types import SimpleNamespace

import pytest

from predictor.service import logs


def test_lines_that_come_together_are_written_in_one_wake_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asleep, awake = Event(), Event()

    def sleep(_: float) -> None:
        asleep.set()
        awake.wait(60.0)

    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=sleep))
    logger = logging.getLogger("of_a_service")
    with logs.logging_to("json", logger.name):
        logger.info("first")
        assert asleep.wait(60.0)
        logger.info("second")
        logger.info("third")
        assert "second" not in capsys.readouterr().err  # nobody was woken for it
        awake.set()
    written = capsys.readouterr().err
    assert written.index("second") < written.index("third")
