"""The daemon's log on stderr: one JSON object or one text line an event, written by a thread."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import Queue
from typing import Any, Literal, TextIO

from .records import Ending, Record

MAX_QUEUED = 20_000
PACKAGES = ("slurm_plugin", "predictor")
FIELDS = "fields"  # attribute of a log record with the words of an event
_log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """``{"time": ..., "level": ..., "event": ..., ...}``; texts of users cannot break a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One event."""
        return json.dumps(_event(self, record), default=str)


class TextLines(logging.Formatter):
    """``time level event key=value ...``, values quoted as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One event."""
        event = _event(self, record)
        head = f"{event.pop('time')} {event.pop('level'):<7} {event.pop('event')!r}"
        return " ".join([head, *(f"{k}={json.dumps(v, default=str)}" for k, v in event.items())])


class _Dropping(QueueHandler):
    """Hands records over; drops them where the reader of our stderr does not keep up."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Nothing: the only error is a full queue."""


@contextmanager
def logging_to(
    form: Literal["json", "text"], stream: TextIO | None = None, level: int = logging.INFO
) -> Iterator[None]:
    """Log what our packages say, decisions included, until the block ends."""
    writer = logging.StreamHandler(sys.stderr if stream is None else stream)
    writer.setFormatter(JsonLines() if form == "json" else TextLines())
    queue: Queue[logging.LogRecord] = Queue(MAX_QUEUED)
    handler = _Dropping(queue)
    listener = QueueListener(queue, writer)
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
    listener.start()
    try:
        yield
    finally:
        for logger, old_level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = propagate
        listener.stop()


def log_decision(record: Record) -> None:
    """One line of one answer."""
    decided = record.decided
    level = logging.INFO if record.ending in (Ending.DECIDED, Ending.REPEATED) else logging.WARNING
    if not _log.isEnabledFor(level):
        return
    said: dict[str, object] = {
        "outcome": record.ending.value,
        "duration_us": round(1e6 * record.duration_s),
        "kind": decided.kind,
        "user": decided.user,
        "job": decided.job_name,
        **decided.words,
        "id": decided.id,
    }
    _log.log(level, "decision", extra={FIELDS: {k: v for k, v in said.items() if v != ""}})


def _event(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    event = {"time": when, "level": record.levelname.lower(), "event": record.getMessage()}
    added: Mapping[str, Any] = getattr(record, FIELDS, {})
    event |= {key: value for key, value in added.items() if key not in event}
    if record.exc_info:
        event["traceback"] = formatter.formatException(record.exc_info)
    return event
