"""The log of a service on stderr: one JSON object, or one line of ``key=value``, an event.

Events with fields go through `event_logger`, everything else through the `logging` module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import Queue
from typing import Any, Literal

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import Processor

LogFormat = Literal["json", "text"]
MAX_WAITING = 20_000
# A line that wakes the writer costs more than the line: those of so many seconds are one wake-up.
GATHERED_S = 0.05
RENDERERS: Mapping[LogFormat, Processor] = {
    "json": structlog.processors.JSONRenderer(),
    # The representation of a value is one line, whatever a user has written into it.
    "text": structlog.processors.KeyValueRenderer(repr_native_str=True),
}


def event_logger(name: str) -> BoundLogger:
    """A logger whose calls take the fields of an event: ``info("decision", pod="train")``."""
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[ProcessorFormatter.wrap_for_formatter],
        wrapper_class=BoundLogger,
    ).bind()  # or each call would put it together anew
    return logger


@contextmanager
def logging_to(form: LogFormat, *packages: str) -> Iterator[None]:
    """Log what some packages say until the block ends.

    A thread of its own formats and writes; new lines are dropped where stderr is read too slowly.
    """
    writer = logging.StreamHandler()
    writer.setFormatter(
        ProcessorFormatter(
            processors=[
                _when_and_level,
                structlog.processors.format_exc_info,
                ProcessorFormatter.remove_processors_meta,
                RENDERERS[form],
            ]
        )
    )
    handler = _Dropping(Queue(MAX_WAITING))
    listener = _Gathering(handler.queue, writer)
    loggers = [logging.getLogger(name) for name in packages]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    listener.start()
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        listener.stop()


class _Gathering(QueueListener):
    """Sleeps on while nothing waits to be written, so that whoever logs need not wake it."""

    queue: Queue[logging.LogRecord]

    def handle(self, record: logging.LogRecord) -> None:
        super().handle(record)
        if self.queue.empty():
            time.sleep(GATHERED_S)


class _Dropping(QueueHandler):
    """Hands records over as they are."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Nothing: the only error is a full queue."""


def _when_and_level(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Time, level and event first, in the order in which people read them."""
    record: logging.LogRecord = event["_record"]
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    head = {"time": at, "level": record.levelname.lower(), "event": event["event"]}
    return head | {key: value for key, value in event.items() if key not in head}
