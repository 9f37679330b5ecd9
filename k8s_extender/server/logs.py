"""The log on stderr: one JSON object or one text line an event, written by a thread of its own."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

PACKAGES = ("k8s_extender", "predictor", "uvicorn")
MAX_WAITING = 20_000
BATCH_S = 0.05

Form = Literal["json", "text"]
_Event = tuple[float, str, str, Mapping[str, object]]


class Log:
    """Lines for a file descriptor; where its reader does not keep up, new lines are dropped.

    An event costs its caller a few microseconds: what takes longer is left to the thread.
    """

    def __init__(self, form: Form = "json", descriptor: int | None = None) -> None:
        self._form = form
        self._descriptor = sys.stderr.fileno() if descriptor is None else descriptor
        self._waiting: deque[_Event] = deque()
        self._dropped = 0
        self._some = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end; a reader that hangs is waited for two seconds."""
        self._ending.set()
        self._some.set()
        self._thread.join(2.0)

    def event(self, level: str, event: str, when: float, **fields: object) -> None:
        """One event at a time in seconds since the epoch."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append((when, level, event, fields))
        if not self._some.is_set():
            self._some.set()

    def _write_on(self) -> None:
        while not self._ending.is_set():
            self._some.wait()
            self._ending.wait(BATCH_S)
            self._some.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = [self._line(self._waiting.popleft()) for _ in range(len(self._waiting))]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            event = (time.time(), "warning", "log lines dropped", {"lines": dropped})
            lines.append(self._line(event))
        text = b"".join(lines)
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
        except OSError:
            return

    def _line(self, waiting: _Event) -> bytes:
        when, level, event, fields = waiting
        at = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
        if self._form == "json":
            head = {"time": at, "level": level, "event": event}
            return _json(head | {k: v for k, v in fields.items() if k not in head}) + b"\n"
        words = [b" %s=%s" % (key.encode(), _json(value)) for key, value in fields.items()]
        return f"{at} {level:<7} {_json(event).decode()}".encode() + b"".join(words) + b"\n"


class _Forwarding(logging.Handler):
    """Hands what the `logging` module records to the log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._log.event(record.levelname.lower(), record.getMessage(), record.created, **fields)


@contextmanager
def logging_to(
    form: Form, descriptor: int | None = None, level: int = logging.INFO
) -> Iterator[Log]:
    """Log what our packages and the server say until the block ends."""
    log = Log(form, descriptor)
    handler = _Forwarding(log)
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level if logger.name != "uvicorn" else logging.ERROR)
        logger.propagate = False
    log.start()
    try:
        yield log
    finally:
        for logger, old_level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = propagate
        log.stop()


def _json(value: object) -> bytes:
    """JSON of anything; a text that is no UTF-8 is shown escaped."""
    try:
        return orjson.dumps(value, default=str)
    except (orjson.JSONEncodeError, RecursionError):
        return orjson.dumps(ascii(value))
