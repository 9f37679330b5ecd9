"""The node watch: lists the nodes, then follows their changes in a thread of its own."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import ReadTimeoutError

from .api_calls import CALL_TIMEOUT_S, FAILURES, GONE, body_of, said
from .config import Config
from .errors import ClusterError
from .node_labels import gpu_node
from .node_table import LiveTable
from .plain import items, mapping, text
from .records import GpuNode

_log = logging.getLogger(__name__)
PAGE = 500
# One watch lasts this long, as in client-go: 5 to 10 minutes.
WATCH_S = 300.0
# Of the time until the table counts as stale, what may pass in silence before we ask again.
PATIENCE = 0.5
# A watch that ends sooner, without a word, counts as failed.
SHORT_WATCH_S = 1.0
RETRY_S, MAX_RETRY_S = 0.5, 30.0

_untyped_watch: Any = Watch


class _InterruptedError(Exception):
    """The watch is to end, or to begin anew."""


class NodeWatch:
    """Keeps ``table`` equal to the cluster's nodes.

    While the API server is away the last table stays; ``stale`` tells when it has not been heard
    of for ``nodes.stale_s``. After an expired or garbled watch the nodes are listed anew, and every
    ``nodes.resync_s`` in any case. Needs the verbs get, list and watch on nodes.
    """

    def __init__(
        self,
        client: ApiClient,
        config: Config,
        *,
        page: int = PAGE,
        retry_s: float = RETRY_S,
        max_retry_s: float = MAX_RETRY_S,
    ) -> None:
        self._api: Any = CoreV1Api(client)
        self._config = config
        self._page = page
        self._retry_s = retry_s
        self._max_retry_s = max_retry_s
        self._table = LiveTable()
        self._watch = _untyped_watch(return_type="object")
        self._thread = threading.Thread(target=self._run, name="node-watch", daemon=True)
        self._ended = threading.Event()
        self._anew = threading.Event()
        self._synced = threading.Event()
        self._heard_s = time.monotonic()
        self._resync_at_s = 0.0
        self._version: str | None = None
        self._failures = 0
        self.error = ""

    @property
    def table(self) -> Mapping[str, GpuNode]:
        """The newest table; it never changes, the next one takes its place."""
        return self._table.nodes

    @property
    def synced(self) -> bool:
        """True once all nodes were listed."""
        return self._synced.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the last word of the API server, or since the start."""
        return time.monotonic() - self._heard_s

    @property
    def stale(self) -> bool:
        """True where the table may lag behind the cluster by more than ``nodes.stale_s``."""
        return not self.synced or self.age_s > self._config.nodes.stale_s

    def start(self) -> None:
        """Begin to watch; returns at once."""
        self._heard_s = time.monotonic()
        self._thread.start()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait for the first whole table; False where it did not come in time."""
        return self._synced.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the watch; the table stays as it is."""
        self._ended.set()
        self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def use(self, config: Config) -> None:
        """Read labels by another configuration: the nodes are listed anew."""
        self._config = config
        self._anew.set()
        self._watch.stop()

    def list_once(self) -> Mapping[str, GpuNode]:
        """List the nodes in this thread, for a check; raises ClusterError."""
        try:
            self._list()
        except (*FAILURES, ValueError) as error:
            raise ClusterError(f"nodes cannot be listed: {said(error)}") from None
        return self.table

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
                    self._ended.wait(self._pause_s())

    def _step(self) -> None:
        """List where there is nothing to go on from, then watch until the stream ends."""
        if self._anew.is_set() or time.monotonic() >= self._resync_at_s:
            self._anew.clear()
            self._version = None
        if self._version is None:
            self._list()
        began_s, version = time.monotonic(), self._version
        try:
            for event in self._events():
                self._take(event)
                if self._interrupted or time.monotonic() >= self._resync_at_s:
                    return
        except ReadTimeoutError:
            return
        if self._interrupted:
            return
        if self._version == version and time.monotonic() - began_s < SHORT_WATCH_S:
            raise ClusterError("the watch of nodes ended as soon as it began")

    def _list(self) -> None:
        nodes, token = [], None
        while True:
            response = self._api.list_node(
                limit=self._page,
                _continue=token,
                _preload_content=False,
                _request_timeout=CALL_TIMEOUT_S,
            )
            page = orjson.loads(body_of(response))
            self._heard()
            nodes += [gpu_node(n, self._config.hardware) for n in _named(page)]
            token = text(page, "metadata", "continue") or None
            if self._interrupted:
                raise _InterruptedError
            if token is None:
                break
        version = text(page, "metadata", "resourceVersion")
        if not version:
            raise ClusterError("the list of nodes has no resourceVersion")
        self._table.replace(nodes)
        self._version = version
        self._well()
        self._resync_at_s = time.monotonic() + self._config.nodes.resync_s * random.uniform(0.9, 1)
        self._synced.set()

    def _events(self) -> Iterator[Any]:
        left_s = self._resync_at_s - time.monotonic()
        return iter(
            self._watch.stream(
                self._opened,
                resource_version=self._version,
                allow_watch_bookmarks=True,
                timeout_seconds=max(1, math.ceil(min(left_s, WATCH_S * random.uniform(1, 2)))),
                _request_timeout=(CALL_TIMEOUT_S[0], PATIENCE * self._config.nodes.stale_s),
            )
        )

    def _opened(self, **options: Any) -> Any:
        """The answer to a watch request, which is a word of the API server, too."""
        response = self._api.list_node(**options)
        if self._interrupted:
            response.close()
            raise _InterruptedError
        if 200 <= response.status <= 299:
            self._heard()
        return response

    def _take(self, event: Any) -> None:
        """One change; raises ClusterError for one that cannot be read."""
        kind, node = text(event, "type"), mapping(event, "object")
        name, version = text(node, "metadata", "name"), text(node, "metadata", "resourceVersion")
        if not version or not (name or kind == "BOOKMARK"):
            self._version = None
            raise ClusterError(f"an event of the node watch cannot be read: {event!r:.100}")
        if kind in ("ADDED", "MODIFIED"):
            self._table.put(gpu_node(node, self._config.hardware))
        elif kind == "DELETED":
            self._table.remove(name)
        self._version = version
        self._well()
        self._heard()

    def _heard(self) -> None:
        self._heard_s = time.monotonic()

    def _well(self) -> None:
        self._failures = 0
        self.error = ""

    def _failed(self, error: Exception) -> None:
        """Keep the place in the stream, unless the stream itself is in doubt."""
        self._failures += 1
        expired = isinstance(error, ApiException) and error.status == GONE
        if expired or not isinstance(error, (*FAILURES, ClusterError)):
            self._version = None
        if said(error) != self.error:
            self.error = said(error)
            _log.log(logging.INFO if expired else logging.WARNING, "node watch: %s", self.error)

    def _pause_s(self) -> float:
        """Twice as long after each failure in a row, with jitter; none after the first expiry."""
        if self._version is None and self._failures == 1:
            return 0.0
        longest_s = self._retry_s * 2.0 ** min(self._failures, 30)
        return random.uniform(0.5, 1.0) * min(self._max_retry_s, longest_s)


def _named(page: Any) -> list[Mapping[str, Any]]:
    return [node for node in items(page, "items") if text(node, "metadata", "name")]
