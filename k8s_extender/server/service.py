"""The process: listens, loads, and ends without losing a call."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from predictor.service.logs import event_logger

from ..bound import BoundPods
from ..claims import Devices
from ..config import Config
from ..errors import ConfigError
from ..nodes import NodeWatch
from ..writeback import Writeback
from .app import Certificates, ConnectionGuard, ExtenderApp, Handler, HttpReply, Page
from .state import FILES_EVERY_S, ExtenderMetrics, ServerState, Upkeep
from .verbs import Verbs, admission_handlers

_events = event_logger(__name__)

BACKLOG = 1024
# While it drains: once no call has come for so long, the schedulers ask another replica.
QUIET_S = 5.0
CLOSING_S = 3
FOLLOW_S = 5.0
KEEP_S = 60.0
# A client that reads nothing of an answer for so long is gone.
UNREAD_S = 30


class ExtenderServer:
    """The extender as a process: `run` serves until SIGTERM or SIGINT.

    Raises ConfigError where certificates or addresses cannot be used. ``path`` is the file of the
    configuration, None for defaults; ``audit`` is the ConfigMap of counts, as ``namespace/name``.
    """

    def __init__(
        self,
        config: Config,
        path: Path | None,
        nodes: NodeWatch,
        writeback: Writeback | None = None,
        *,
        bound: BoundPods | None = None,
        devices: Devices | None = None,
        audit: str = "",
        files_every_s: float = FILES_EVERY_S,
    ) -> None:
        self._files_every_s = files_every_s
        self._metrics = ExtenderMetrics()
        self._state = state = ServerState(config, nodes, devices)
        self._upkeep = Upkeep(state, self._metrics, path)
        self._writeback = writeback
        self._bound = bound
        self._audit = audit
        server = config.server
        self._certificates = (
            None
            if server.certificate is None or server.key is None
            else Certificates(server.certificate, server.key, server.client_ca)
        )
        self._app = self._calls()
        self._sockets = [bind(server.host, server.port, "server.port")]
        self._servers = [self._server(self._app, self._certificates)]
        if server.metrics_port is not None:
            self._sockets.append(bind(server.host, server.metrics_port, "server.metrics_port"))
            self._metrics.watch_state(state)
            pages = {**health_pages(state), "metrics": self._page}
            self._servers.append(self._server(ExtenderApp(pages=pages)))
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal, then until the schedulers have gone."""
        self._state.nodes.start()
        if self._state.devices is not None:
            self._state.devices.start()
        serving = [
            asyncio.create_task(server.serve(sockets=[bound]))
            for server, bound in zip(self._servers, self._sockets, strict=True)
        ]
        while not all(server.started for server in self._servers):
            await asyncio.sleep(0.01)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn by itself would close at once
            asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        _events.info("listening", ports=[bound.getsockname()[1] for bound in self._sockets])
        work = (
            self._upkeep.load(),
            self._upkeep.watch_files(self._certificates, self._files_every_s),
            self._repeat(FOLLOW_S, self._follow, "pods are not followed"),
            self._repeat(KEEP_S, self._keep, "counts are not kept"),
        )
        tasks = [asyncio.create_task(one) for one in work]
        await self._ending.wait()
        if not self._state.why_not_ready():  # else no scheduler was told to ask here
            await self._drain()
        for task in tasks:
            task.cancel()
        for server in self._servers:
            server.should_exit = True
        await asyncio.gather(*serving)
        for watch in (self._state.nodes, self._state.devices, self._bound):
            if watch is not None:
                await asyncio.to_thread(watch.stop)
        if self._writeback is not None:
            self._keep()
            await asyncio.to_thread(self._writeback.queue.stop)
        _events.info("ended")

    def _calls(self) -> ExtenderApp:
        """The verbs, each with and without the version of this contract before its name."""
        state = self._state
        verbs = Verbs(state, self._metrics, self._writeback)
        handlers: dict[str, Handler] = {
            "filter": verbs.filter,
            "prioritize": verbs.prioritize,
            "preempt": verbs.preempt,
            **admission_handlers(state, self._metrics, self._writeback),
        }
        return ExtenderApp(
            pages=health_pages(state),
            handlers={f"{v}{name}": one for v in ("v1/", "") for name, one in handlers.items()},
            max_body_bytes=state.config.server.max_body_bytes,
            unread=self._unread,
            draining=lambda: state.draining,
        )

    def _page(self) -> HttpReply:
        """The metrics, on a port without TLS."""
        page = generate_latest(self._metrics.registry)
        return HttpReply(200, page, ((b"content-type", CONTENT_TYPE_LATEST.encode()),))

    def _server(self, app: ExtenderApp, certificates: Certificates | None = None) -> uvicorn.Server:
        guard = ConnectionGuard(lambda why: self._metrics.closed.labels(why).inc())
        protocol: Any = guard.protocol
        context = None if certificates is None else certificates.context
        return uvicorn.Server(
            uvicorn.Config(
                guard.around(app),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=round(self._state.config.server.keep_alive_s),
                timeout_graceful_shutdown=CLOSING_S,
                ssl_context_factory=None if context is None else lambda config, default: context,
            )
        )

    async def _repeat(self, every_s: float, work: Callable[[], None], failed: str) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                work()
            except Exception:
                _events.exception(failed)

    def _follow(self) -> None:
        """Heed what pods wait for and where they went."""
        bound, decider = self._bound, self._state.decider
        if bound is None or decider is None:
            return
        config = decider.config
        if config.watches_pods:
            bound.start()
        decider.gangs = bound.gangs
        decider.waiting = bound.waiting(decider) if config.placement.balance else ()
        places = config.deadline.follow and config.mode == "place"
        if places and self._writeback is not None:
            for change in bound.changes(decider, time.time()):
                self._writeback.changed(change, partial(bound.forget, change))
                to = "lower" if change.new_s < change.old_s else "higher"
                self._metrics.moved.labels(to).inc()

    def _keep(self) -> None:
        """Keep what was counted where it outlives this process."""
        if self._writeback is not None and self._audit:
            self._writeback.counted(self._audit, self._metrics.audited())

    async def _drain(self) -> None:
        """Serve on while schedulers may still ask here; each answer closes its connection."""
        self._state.draining = True
        began, drain_s = time.monotonic(), self._state.config.server.drain_s
        _events.info("draining", at_most_s=drain_s)
        while time.monotonic() < min(began + drain_s, max(began, self._app.called_at) + QUIET_S):
            await asyncio.sleep(0.05)

    def _unread(self, path: str, outcome: str) -> None:
        self._metrics.requests.labels(path.removeprefix("v1/"), outcome).inc()
        _events.warning("request not answered", path=path, outcome=outcome)


def health_pages(state: ServerState) -> dict[str, Page]:
    """/livez, and /readyz which says why not: for probes and people."""

    def ready() -> HttpReply:
        reasons, nodes = state.why_not_ready(), state.nodes
        late = nodes.synced.is_set() and nodes.stale
        warnings = [f"nodes were last heard of {nodes.age_s:.0f} s ago"] if late else []
        said = {"ready": not reasons, "reasons": reasons, "warnings": warnings}
        return HttpReply(503 if reasons else 200, orjson.dumps(said))

    return {"livez": lambda: HttpReply(200, b'{"alive":true}'), "readyz": ready}


def bind(host: str, port: int, field: str) -> socket.socket:
    """A socket bound to an address, ::1 or :: for IPv6; raises ConfigError naming the field."""
    address, six = (host, port), ":" in host
    family, both = socket.AF_INET6 if six else socket.AF_INET, six and socket.has_dualstack_ipv6()
    try:
        bound = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigError(f"{field}: {host}:{port} cannot be listened on: {error}") from None
    # Connections inherit it: what a client does not take in for so long ends its connection.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_S)
    return bound
