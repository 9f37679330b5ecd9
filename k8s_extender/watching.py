"""Calls of the API server: lists, and one watch for all kinds of objects.

Modelled on ``clients/watching.py`` of kopf, on the synchronous client of Kubernetes.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError, ReadTimeoutError

from .errors import ClusterError
from .plain import items, mapping, text

PAGE = 500
WATCH_S = 300.0  # one watch lasts for this long to twice as long, as in client-go
SILENT_S = 90.0  # bookmarks come every minute
SHORT_WATCH_S = 1.0  # a watch that ends sooner, without a word, counts as failed
RETRY_S, MAX_RETRY_S = 0.5, 30.0
_log = logging.getLogger(__name__)
_untyped_watch: Any = Watch

KubeObject = Mapping[str, Any]
ListCall = Callable[..., Any]  # ``CoreV1Api.list_node`` and its like


class _InterruptedError(Exception):
    """The watch is to end, or to begin anew."""


@dataclass(eq=False)
class ObjectWatch:
    """Follows all objects that a call lists.

    ``listed`` gets an iterator over all there are; what it raises half-way says that they are not
    all. ``changed`` gets an object and None, or the time (Unix seconds) it was deleted at. While
    the API server is away nothing is told; then the watch goes on from the last change, or lists
    anew where it has expired or was garbled, and after ``resync_s`` in any case.
    """

    call: ListCall
    listed: Callable[[Iterator[KubeObject]], None]
    changed: Callable[[KubeObject, float | None], object]
    page: int = PAGE
    retry_s: float = RETRY_S
    max_retry_s: float = MAX_RETRY_S

    def __post_init__(self) -> None:
        self.kind = _kind(self.call)
        self.silent_s = SILENT_S
        self.resync_s = math.inf
        self.error = ""
        self.heard_s = time.monotonic()  # the last word of the API server
        self.synced = threading.Event()
        self._watch = _untyped_watch()  # with a type every object would be written and read again
        self._thread = threading.Thread(target=self._run, name=f"watch-{self.kind}", daemon=True)
        self._ended = threading.Event()
        self._anew = threading.Event()
        self._resync_at_s = math.inf
        self._version: str | None = None
        self._failures = 0

    def start(self) -> None:
        """Begin, once; returns at once."""
        if self._thread.ident is None:
            self.heard_s = time.monotonic()
            self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End; a watch that is silent is left behind."""
        self._ended.set()
        self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def list_anew(self) -> None:
        """Begin again with a whole list."""
        self._anew.set()
        self._watch.stop()

    @property
    def _interrupted(self) -> bool:
        return self._ended.is_set() or self._anew.is_set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step()
                self._well()
            except Exception as error:
                if not self._interrupted:
                    self._failed(error)

    def _step(self) -> None:
        """List where there is nothing to go on from, then watch until the stream ends."""
        if self._anew.is_set() or time.monotonic() >= self._resync_at_s:
            self._anew.clear()
            self._version = None
        if self._version is None:
            self._list()
        began_s, version = time.monotonic(), self._version
        longest_s = min(self._resync_at_s - began_s, WATCH_S * random.uniform(1, 2))
        events = self._watch.stream(
            self._opened,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=max(1, math.ceil(longest_s)),
            _request_timeout=(CALL_TIMEOUT_S[0], self.silent_s),
        )
        try:
            for event in events:
                self._take(event)
                if self._interrupted or time.monotonic() >= self._resync_at_s:
                    return
        except ReadTimeoutError:
            return
        short = time.monotonic() - began_s < SHORT_WATCH_S
        if short and self._version == version and not self._interrupted:
            raise ClusterError(f"the watch of {self.kind} ended as soon as it began")

    def _list(self) -> None:
        version = ""

        def all_objects() -> Iterator[KubeObject]:
            nonlocal version
            for page in pages(self.call, self.page):
                self.heard_s = time.monotonic()
                version = text(page, "metadata", "resourceVersion")
                yield from items(page, "items")
                if self._interrupted:
                    raise _InterruptedError
            if not version:
                raise ClusterError(f"the list of {self.kind} has no resourceVersion")

        self.listed(all_objects())
        self._version = version
        self._well()
        self._resync_at_s = time.monotonic() + self.resync_s * random.uniform(0.9, 1)
        self.synced.set()

    def _opened(self, **options: Any) -> Any:
        """The answer to a watch request, which is a word of the API server, too."""
        response = self.call(**options)
        if self._interrupted:
            response.close()
            raise _InterruptedError
        if 200 <= response.status <= 299:
            self.heard_s = time.monotonic()
        return response

    def _take(self, event: Any) -> None:
        """One change; raises ClusterError for one that cannot be read."""
        kind, obj = text(event, "type"), mapping(event, "object")
        version = text(obj, "metadata", "resourceVersion")
        if not version or not (text(obj, "metadata", "name") or kind == "BOOKMARK"):
            self._version = None
            raise ClusterError(f"an event of {self.kind} cannot be read: {event!r:.100}")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self.changed(obj, time.time() if kind == "DELETED" else None)
        self._version = version
        self.heard_s = time.monotonic()
        self._well()

    def _well(self) -> None:
        self._failures = 0
        self.error = ""

    def _failed(self, error: Exception) -> None:
        """Keep the place in the stream, unless the stream itself is in doubt; then wait.

        Twice as long after each failure in a row, with jitter; not at all after the first expiry.
        """
        self._failures += 1
        cause = error.__cause__ if isinstance(error, ClusterError) else error
        expired = isinstance(cause, ApiException) and cause.status == GONE
        if expired or not isinstance(error, (*FAILURES, ClusterError)):
            self._version = None
        if said(error) != self.error:
            self.error = said(error)
            level = logging.INFO if expired else logging.WARNING
            _log.log(level, "watch of %s: %s", self.kind, self.error)
        if self._version is not None or self._failures > 1:
            pause_s = min(self.max_retry_s, self.retry_s * 2.0 ** min(self._failures, 30))
            self._ended.wait(random.uniform(0.5, 1.0) * pause_s)


class WatchGroup:
    """Follows several kinds of objects."""

    _watches: Sequence[ObjectWatch]

    def start(self) -> None:
        """Begin to watch, once; returns at once."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """End."""
        for watch in self._watches:
            watch.stop()


def objects(call: ListCall, page: int = PAGE) -> Iterator[KubeObject]:
    """All objects that a call lists; raises ClusterError naming what failed."""
    for found in pages(call, page):
        yield from items(found, "items")


def pages(call: ListCall, page: int = PAGE) -> Iterator[KubeObject]:
    """The lists that a call gives, page by page; raises ClusterError naming what failed."""
    token = None
    while True:
        try:
            found = orjson.loads(body_of(call(limit=page, _continue=token, **OPTIONS)))
        except (*FAILURES, ValueError) as error:
            raise ClusterError(f"{_kind(call)} cannot be listed: {said(error)}") from error
        yield found
        token = text(found, "metadata", "continue") or None
        if token is None:
            return


def _kind(call: ListCall) -> str:
    """``list_pod_for_all_namespaces`` is about pods, a partial call about its last argument."""
    if isinstance(call, partial):
        return str(call.args[-1])
    return f"{getattr(call, '__name__', 'list_objects').split('_')[1]}s"


# Seconds to connect, and to wait for the next byte of an answer.
CALL_TIMEOUT_S = (5.0, 30.0)
OPTIONS: Mapping[str, Any] = {"_preload_content": False, "_request_timeout": CALL_TIMEOUT_S}
# What a call can fail with, besides what is wrong in the answer.
FAILURES = (ApiException, HTTPError, OSError)
GONE = 410


def body_of(response: Any) -> bytes:
    """The body of an answer got with ``_preload_content=False``; raises ApiException by status.

    The connection goes back to the pool.
    """
    try:
        body: bytes = response.read()
    finally:
        response.release_conn()
    if not 200 <= response.status <= 299:
        error = ApiException(status=response.status, reason=response.reason)
        error.headers = response.headers
        raise error
    return body


def said(error: BaseException) -> str:
    """An error on one line, short enough for a log."""
    if isinstance(error, ApiException):
        return f"the API server answered {error.status} {error.reason}"[:200]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
