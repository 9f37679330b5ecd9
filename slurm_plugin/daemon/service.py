"""The daemon as a whole: started, reloaded, stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from predictor.service.logs import event_logger
from predictor.service.process import settle_memory
from predictor.service.reload import read_anew

from ..cluster import Cluster
from ..config import Slurm, SlurmPolicy
from ..order import warnings as order_warnings
from .connection import Connections, DaemonSocket, Peers, uid_of
from .decider_child import Ending, Ready
from .decisions import REPORT_AFTER_S, Decisions, Record
from .lanes import DeciderProcess, LoadError
from .metrics import DaemonMetrics, MetricsServer
from .reconcile import Reconciler
from .views import CHILD, Snapshots


def notify(*assignments: str) -> None:
    """Send ``KEY=value`` lines to systemd, where it asked for them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    path = "\0" + address[1:] if address.startswith("@") else address
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_UNIX, kind) as sender, suppress(OSError):
        sender.sendto("\n".join(assignments).encode(), path)


def watchdog_s() -> float | None:
    """How often systemd wants to hear ``WATCHDOG=1``, in seconds; None for never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() and int(text) else None


FIRST_VIEW_S = 10.0
STOP_S = 5.0
TICK_S = 1.0
_log = logging.getLogger(__name__)
_events = event_logger(__name__)


class SlurmDaemon:
    """One daemon, made on the event loop it will run on.

    ``decider_command`` starts a process that decides (decider_child), at start and at each reload.
    """

    def __init__(
        self,
        policy: SlurmPolicy,
        decider_command: Sequence[str],
        snapshot_command: Sequence[str] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._policy = policy
        self._child = partial(DeciderProcess, tuple(decider_command))
        self._decisions: Decisions | None = None
        self._snapshot_command = snapshot_command or CHILD
        self._snapshots = self._views(policy.slurm)
        self._peers = Peers(policy.daemon.allowed_users)
        self._metrics = DaemonMetrics()
        self._metrics.watch_snapshots(lambda: self._snapshots)
        self._stopping = asyncio.Event()
        self._reload_asked = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; raises PrecisionTimeError where it cannot start."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        settings = self._policy.daemon
        self._socket = DaemonSocket(settings.socket)
        server = None
        try:
            self._snapshots.start()
            loaded = await asyncio.to_thread(self._loaded)
            if settings.metrics is not None:
                server = MetricsServer(settings.metrics, self._metrics.registry)
            await asyncio.to_thread(self._snapshots.settled.wait, FIRST_VIEW_S)
            await self._serve(*loaded)
        finally:
            await asyncio.to_thread(self._snapshots.close)
            if server is not None:
                server.close()
            self._socket.close()

    def _loaded(self) -> tuple[Ready, DeciderProcess, DeciderProcess]:
        """Both processes, once they can decide; raises LoadError."""
        children = [self._child(aside) for aside in (False, True)]
        try:
            ready = [child.loaded() for child in children]
        except LoadError:
            for child in children:
                child.close()
            raise
        return ready[0], *children  # type: ignore[return-value]

    async def _serve(self, ready: Ready, now: DeciderProcess, aside: DeciderProcess) -> None:
        self._decisions = decisions = Decisions(
            now, aside, self._child, self._answered, lambda: self._reconciler.soon()
        )
        self._reconciler = Reconciler(
            ready.policy, lambda: self._snapshots.latest, decisions, self._metrics.reconciled
        )
        self._pass_on()
        self._use(ready)
        connections = Connections(decisions, self._peers, self._metrics.closed)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)
        settle_memory()
        listening = self._socket.listen(shared=self._peers.shared)
        if self._peers.slurm_user is not None:
            self._socket.give_to(self._peers.slurm_user)
        connections.listen(listening)
        notify("READY=1", f"STATUS=predictor {ready.version}")
        _log.info("ready on %s, predictor %s", self._policy.daemon.socket, ready.version)
        self._reconciler.start()
        tasks = [asyncio.create_task(t) for t in (self._look_after(), self._reload())]
        try:
            await self._stopping.wait()
        finally:
            notify("STOPPING=1")
            self._socket.remove()
            self._loop.remove_reader(listening)
            listening.close()
            for task in tasks:
                task.cancel()
            await self._finish(connections)
            _log.info("stopped")

    async def _finish(self, connections: Connections) -> None:
        """Let what runs come to its end, for a bounded time."""
        until_s = time.monotonic() + STOP_S
        assert self._decisions is not None
        await asyncio.to_thread(self._reconciler.close)
        while not self._decisions.idle and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
        await asyncio.sleep(2 * REPORT_AFTER_S)
        connections.close()
        for lane in self._decisions.lanes:
            lane.close()

    async def _look_after(self) -> None:
        """End processes that are stuck, and tell systemd that the loop runs."""
        period_s = watchdog_s()
        while True:
            await asyncio.sleep(TICK_S if period_s is None else min(TICK_S, period_s / 2))
            assert self._decisions is not None
            for lane in self._decisions.lanes:
                lane.end_if_stuck()
            if period_s is not None:
                notify("WATCHDOG=1")

    async def _reload(self) -> None:
        while await self._reload_asked.wait():
            self._reload_asked.clear()
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            notify("RELOADING=1", f"MONOTONIC_USEC={now_us}")
            self._metrics.reloaded(well=await read_anew("policy", self._read_anew))
            notify("READY=1")

    async def _read_anew(self) -> None:
        ready, now, aside = await asyncio.to_thread(self._loaded)
        await self._view_by(ready.policy.slurm)
        assert self._decisions is not None
        self._decisions.use(now, aside)
        self._use(ready)
        _log.info("reloaded, predictor %s", ready.version)

    def _use(self, ready: Ready) -> None:
        """Decide by what was loaded from now on."""
        assert self._decisions is not None
        old, new = self._policy.daemon, ready.policy.daemon
        for name in ("socket", "metrics", "log_format"):
            if getattr(old, name) != getattr(new, name):
                _log.warning("daemon.%s has changed: it takes a restart", name)
        self._reconciler.policy = ready.policy
        for user in self._peers.name(new.allowed_users):
            _log.warning("daemon.allowed_users: there is no user %s", user)
        self._decisions.deadline_s = new.deadline_ms / 1000
        self._decisions.prediction_s = new.prediction_ms / 1000
        self._metrics.predictor(ready.version)
        if (view := self._snapshots.latest) is not None and ready.policy.order.mode != "off":
            for text in order_warnings(ready.policy.order, view.settings):
                _log.warning("%s", text)
        self._policy = ready.policy

    def _views(self, slurm: Slurm) -> Snapshots:
        def arrived(cluster: Cluster) -> None:
            self._loop.call_soon_threadsafe(self._arrived, cluster)

        return Snapshots(slurm, arrived, self._snapshot_command, self._policy.daemon.log_format)

    def _pass_on(self) -> None:
        """Tell both processes that decide of the newest view."""
        if self._decisions is not None and self._snapshots.packed is not None:
            for lane in self._decisions.lanes:
                lane.tell(self._snapshots.packed)

    async def _view_by(self, slurm: Slurm) -> None:
        """Read Slurm as a new policy says; the view there is stays until the next arrives."""
        if slurm == self._policy.slurm:
            return
        old, new = self._snapshots, self._views(slurm)
        new.latest, new.packed, new.failures = old.latest, old.packed, old.failures
        self._snapshots = new
        new.start()
        await asyncio.to_thread(old.close)

    def _arrived(self, cluster: Cluster) -> None:
        """Pass the newest view on, and answer SlurmUser once Slurm has said who that is."""
        self._pass_on()
        uid = uid_of(cluster.settings.slurm_user)
        if uid is None or uid == self._peers.slurm_user:
            return
        self._peers.slurm_user = uid
        self._socket.give_to(uid)

    def _answered(self, record: Record) -> None:
        """Count one answer, and log it as one event."""
        self._metrics.answered(record)
        said: dict[str, object] = {
            "outcome": record.found.ending.value,
            "duration_us": round(1e6 * record.duration_s),
            "kind": record.found.kind,
            "user": record.found.user,
            "job": record.found.job_name,
            **record.words,
            "id": record.id,
        }
        level = logging.INFO if record.found.ending is Ending.DECIDED else logging.WARNING
        _events.log(
            level, "decision", **{name: value for name, value in said.items() if value != ""}
        )
