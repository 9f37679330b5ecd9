"""The process: listens, loads, and ends without losing a call."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from predictor.service.logs import event_logger

from ..config import Config
from ..estimate import TypeEstimate
from .admitting import admission_handlers
from .app import App, Handler
from .calls import Ledger
from .certificates import certificates_of
from .known import JobOf
from .later import Later
from .listener import Listener, bind
from .loading import Loader
from .metrics import ExtenderMetrics
from .pages import health, metrics_page
from .state import NodeSource, State
from .upkeep import FILES_EVERY_S, Upkeep
from .verbs import GpuNodeOf, Hearing, Verbs

_events = event_logger(__name__)

# While it drains: once no call has come for so long, the schedulers ask another replica.
QUIET_S = 5.0
CLOSING_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the service is put together from: all that reads Kubernetes objects or its API.

    ``hearing`` is told of decisions; it may be absent.
    """

    nodes: NodeSource
    job_of: JobOf
    gpu_node: GpuNodeOf
    hearing: Callable[[State], Hearing] | None = None


class Service:
    """The extender as a process: `run` serves until SIGTERM or SIGINT.

    Raises ConfigError where certificates or addresses cannot be used. ``path`` is the file of the
    configuration, None for defaults.
    """

    def __init__(
        self,
        config: Config,
        path: Path | None,
        parts: Parts,
        *,
        files_every_s: float = FILES_EVERY_S,
    ) -> None:
        self._files_every_s = files_every_s
        self._metrics = ExtenderMetrics()
        self._later = Later()
        self._state = State(config, parts.nodes)
        loader = Loader(self._state.table, job_of=parts.job_of, predicted=self._predicted)
        self._upkeep = Upkeep(self._state, loader, self._metrics, path)
        self._hearing = None if parts.hearing is None else parts.hearing(self._state)
        self._certificates = certificates_of(config.server)
        self._app = self._calls(parts.gpu_node)
        self._listeners = tuple(self._listen())
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal, then until the schedulers have gone."""
        with self._signals():
            self._state.nodes.start()
            for listener in self._listeners:
                await listener.start()
            _events.info("listening", ports=[listener.port for listener in self._listeners])
            tasks = [
                asyncio.create_task(self._upkeep.load()),
                asyncio.create_task(
                    self._upkeep.watch_files(self._certificates, self._files_every_s)
                ),
            ]
            await self._ending.wait()
            await self._drain()
            for task in tasks:
                task.cancel()
            for listener in self._listeners:
                await listener.stop(CLOSING_S)
            self._later.run()
        await asyncio.to_thread(self._state.nodes.stop)
        if self._hearing is not None:
            await asyncio.to_thread(self._hearing.stop)
        _events.info("ended")

    def _calls(self, gpu_node: GpuNodeOf) -> App:
        state = self._state
        ledger = Ledger(self._metrics)
        verbs = Verbs(state, ledger, self._later, gpu_node=gpu_node, hearing=self._hearing)
        handlers: dict[str, Handler] = {
            "filter": verbs.filter,
            "prioritize": verbs.prioritize,
            "preempt": verbs.preempt,
            **admission_handlers(state, self._metrics),
        }
        return App(
            pages=health(state),
            handlers=_versioned(handlers),
            max_body_bytes=state.config.server.max_body_bytes,
            unread=self._unread,
            draining=lambda: state.draining,
        )

    def _listen(self) -> Iterator[Listener]:
        server, closed = self._state.config.server, self._metrics.closed
        context = None if self._certificates is None else self._certificates.context
        yield Listener(
            self._app,
            bind(server.host, server.port, "server.port"),
            keep_alive_s=server.keep_alive_s,
            context=context,
            closed=closed,
        )
        if server.metrics_port is not None:
            shown = metrics_page(self._metrics, self._state, before=self._later.run)
            pages = {**health(self._state), **shown}
            yield Listener(
                App(pages=pages),
                bind(server.host, server.metrics_port, "server.metrics_port"),
                keep_alive_s=server.keep_alive_s,
                closed=closed,
            )

    async def _drain(self) -> None:
        """Serve on while schedulers may still ask here; each answer closes its connection."""
        self._state.draining = True
        began, drain_s = time.monotonic(), self._state.config.server.drain_s
        _events.info("draining", at_most_s=drain_s)
        while (now := time.monotonic()) - began < drain_s:
            if now - max(began, self._app.called_at) > QUIET_S:
                return
            await asyncio.sleep(0.05)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._ending.set)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _predicted(self, estimate: TypeEstimate) -> None:
        gpu, prediction = estimate.type.gpu, estimate.prediction
        self._metrics.predicted(
            "unknown" if gpu is None else gpu.name,
            "none" if prediction is None else prediction.tier.value,
        )

    def _unread(self, path: str, outcome: str) -> None:
        self._metrics.unread(path.removeprefix("v1/"), outcome)
        _events.warning("request not answered", path=path, outcome=outcome)


def _versioned(handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """Each handler with and without the version of this contract before its name."""
    return {f"{version}{n}": h for version in ("v1/", "") for n, h in handlers.items()}
