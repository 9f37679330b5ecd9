"""All objects of a kind, listed once and then followed, in a thread of their own."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import ReadTimeoutError

from ..api_calls import CALL_TIMEOUT_S, FAILURES, GONE, body_of, said
from ..errors import ClusterError
from ..plain import items, mapping, text

PAGE = 500
WATCH_S = 300.0
SILENT_S = 90.0  # bookmarks come every minute
RETRY_S, MAX_RETRY_S = 0.5, 30.0
_log = logging.getLogger(__name__)
_untyped_watch: Any = Watch

Call = Callable[..., Any]
Hear = Callable[[Mapping[str, Any], float | None], object]


def pages(call: Call, page: int = PAGE) -> Iterator[Mapping[str, Any]]:
    """The lists that a call gives, page by page; raises ClusterError naming what failed."""
    token = None
    while True:
        try:
            response = call(
                limit=page, _continue=token, _preload_content=False, _request_timeout=CALL_TIMEOUT_S
            )
            found = orjson.loads(body_of(response))
        except (*FAILURES, ValueError) as error:
            raise ClusterError(f"{_kind(call)} cannot be listed: {said(error)}") from error
        yield found
        token = text(found, "metadata", "continue") or None
        if token is None:
            return


class Stream:
    """Tells ``hear`` of every object: (object, None) where it is there, (object, when) once gone.

    ``only`` gets the uids of a new list, after an outage too long to go on from. While the API
    server is away nothing is told; then it goes on from the last change, or lists anew.
    """

    def __init__(
        self,
        call: Call,
        hear: Hear,
        only: Callable[[set[str]], None],
        *,
        page: int = PAGE,
        retry_s: float = RETRY_S,
    ) -> None:
        self._call = call
        self._hear = hear
        self._only = only
        self._page = page
        self._retry_s = retry_s
        self._version: str | None = None
        self._failures = 0
        self._trouble = ""
        self._stop = threading.Event()
        self._watch = _untyped_watch(return_type="object")
        self._thread = threading.Thread(target=self._run, name=_kind(call), daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End; a watch that is silent is left behind."""
        self._stop.set()
        self._watch.stop()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception as error:
                if not self._stop.is_set():
                    self._failed(error)

    def _step(self) -> None:
        if self._version is None:
            self._list()
        began_s, version = time.monotonic(), self._version
        try:
            for event in self._events():
                self._take(event)
                if self._stop.is_set():
                    return
        except ReadTimeoutError:
            return
        if self._version == version and time.monotonic() - began_s < 1.0:
            raise ClusterError("the watch ended as soon as it began")

    def _list(self) -> None:
        uids: set[str] = set()
        version = ""
        for page in pages(self._call, self._page):
            for obj in items(page, "items"):
                uids.add(text(obj, "metadata", "uid"))
                self._hear(obj, None)
            version = text(page, "metadata", "resourceVersion")
        if not version:
            raise ClusterError("the list has no resourceVersion")
        self._only(uids)
        self._version = version

    def _events(self) -> Iterator[Any]:
        return iter(
            self._watch.stream(
                self._call,
                resource_version=self._version,
                allow_watch_bookmarks=True,
                timeout_seconds=int(WATCH_S * random.uniform(1, 2)),
                _request_timeout=(CALL_TIMEOUT_S[0], SILENT_S),
            )
        )

    def _take(self, event: Any) -> None:
        kind, obj = text(event, "type"), mapping(event, "object")
        version = text(obj, "metadata", "resourceVersion")
        if not version:
            raise ValueError(f"an event that cannot be read: {event!r:.100}")
        if kind in ("ADDED", "MODIFIED"):
            self._hear(obj, None)
        elif kind == "DELETED":
            self._hear(obj, time.time())
        self._version, self._failures, self._trouble = version, 0, ""

    def _failed(self, error: Exception) -> None:
        """Keep the place in the stream, unless the stream itself is in doubt; then wait."""
        self._failures += 1
        cause = error.__cause__ if isinstance(error, ClusterError) else error
        expired = isinstance(cause, ApiException) and cause.status == GONE
        if expired or not isinstance(error, (*FAILURES, ClusterError)):
            self._version = None
        if not expired and said(error) != self._trouble:
            self._trouble = said(error)
            _log.warning("%s: %s", self._thread.name, self._trouble)
        if not (expired and self._failures == 1):
            longest_s = min(MAX_RETRY_S, self._retry_s * 2.0 ** min(self._failures, 30))
            self._stop.wait(random.uniform(0.5, 1.0) * longest_s)


def _kind(call: Call) -> str:
    """``list_pod_for_all_namespaces`` is about pods."""
    return f"{getattr(call, '__name__', 'list_objects').split('_')[1]}s"
