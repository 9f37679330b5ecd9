"""The daemon as a whole: started, reloaded, stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from predictor.errors import PrecisionTimeError
from predictor.service.logs import event_logger
from predictor.service.process import settle_memory
from predictor.service.reload import read_anew

from ..cluster import Cluster
from ..config import Slurm, SlurmPolicy
from ..order import warnings as order_warnings
from .connection import Connections, DaemonSocket, Peers, uid_of
from .decider_child import ChildAnswer, Ending
from .decisions import REPORT_AFTER_S, Decisions
from .lanes import DeciderProcess, Lane
from .metrics import DaemonMetrics, MetricsServer
from .reconcile import Reconciler
from .views import CHILD, Snapshots

if TYPE_CHECKING:
    from ..decide import SlurmDecider


def notify(*assignments: str) -> None:
    """Send ``KEY=value`` lines to systemd, where it asked for them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    path = "\0" + address[1:] if address.startswith("@") else address
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_UNIX, kind) as sender, suppress(OSError):
        sender.sendto("\n".join(assignments).encode(), path)


FIRST_VIEW_S = 10.0
STOP_S = 5.0
TICK_S = 1.0
_log = logging.getLogger(__name__)
_events = event_logger(__name__)


@dataclass(eq=False)
class SlurmDaemon:
    """One daemon, made on the event loop it will run on.

    ``load`` reads what the daemon itself decides by, ``decider_command`` starts a process that
    decides aside (decider_child), both at start and at each reload.
    """

    policy: SlurmPolicy
    load: Callable[[bool], SlurmDecider]
    decider_command: Sequence[str]
    snapshot_command: Sequence[str] = CHILD

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = partial(DeciderProcess, tuple(self.decider_command))
        self._decisions: Decisions | None = None
        self._snapshots = self._views(self.policy.slurm)
        self._peers = Peers(self.policy.daemon.allowed_users)
        self._metrics = DaemonMetrics()
        self._metrics.watch_snapshots(lambda: self._snapshots)
        self._stopping = asyncio.Event()
        self._reload_asked = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; raises PrecisionTimeError where it cannot start."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        settings = self.policy.daemon
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

    def _loaded(self) -> tuple[SlurmDecider, DeciderProcess]:
        """What decides now and aside, once both can; raises PrecisionTimeError."""
        aside = self._child()
        try:
            decider = self.load(False)
            decider.version = aside.loaded()
        except PrecisionTimeError:
            aside.close()
            raise
        return decider, aside

    async def _serve(self, decider: SlurmDecider, aside: DeciderProcess) -> None:
        self._decisions = decisions = Decisions(
            decider, aside, self._child, self._answered, lambda: self._reconciler.soon()
        )
        self._reconciler = Reconciler(
            decider.policy,
            lambda: self._snapshots.latest,
            decisions,
            lambda outcome: self._metrics.reconciled.labels(outcome).inc(),
        )
        self._use(decider)
        closing = self._metrics.closed
        connections = Connections(decisions, self._peers, lambda why: closing.labels(why).inc())
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_asked.set)
        settle_memory()
        listening = self._socket.listen(shared=bool(self._peers.named - {0, os.geteuid()}))
        if self._peers.slurm_user is not None:
            self._socket.give_to(self._peers.slurm_user)
        connections.listen(listening)
        notify("READY=1", f"STATUS=predictor {decider.version}")
        _log.info("ready on %s, predictor %s", self.policy.daemon.socket, decider.version)
        self._reconciler.start()
        tasks = [
            asyncio.create_task(t) for t in (self._look_after(decisions.aside), self._reload())
        ]
        try:
            await self._stopping.wait()
        finally:
            notify("STOPPING=1")
            self._socket.remove()
            self._loop.remove_reader(listening)
            listening.close()
            for task in tasks:
                task.cancel()
            # What runs comes to its end, for a bounded time.
            until_s = time.monotonic() + STOP_S
            await asyncio.to_thread(self._reconciler.close)
            while not decisions.idle and time.monotonic() < until_s:
                await asyncio.sleep(0.01)
            await asyncio.sleep(2 * REPORT_AFTER_S)
            connections.close()
            decisions.aside.close()
            _log.info("stopped")

    async def _look_after(self, aside: Lane) -> None:
        """End a process that is stuck, and tell systemd that the loop runs, where it asked."""
        us, mine = os.environ.get("WATCHDOG_USEC", ""), str(os.getpid())
        watched = us.isdecimal() and int(us) > 0 and os.environ.get("WATCHDOG_PID", mine) == mine
        while True:
            await asyncio.sleep(min(TICK_S, int(us) / 2e6) if watched else TICK_S)
            aside.end_if_stuck()
            if watched:
                notify("WATCHDOG=1")

    async def _reload(self) -> None:
        while await self._reload_asked.wait():
            self._reload_asked.clear()
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            notify("RELOADING=1", f"MONOTONIC_USEC={now_us}")
            well = await read_anew("policy", self._read_anew)
            self._metrics.reloads.labels("done" if well else "refused").inc()
            notify("READY=1")

    async def _read_anew(self) -> None:
        decider, aside = await asyncio.to_thread(self._loaded)
        if decider.policy.slurm != self.policy.slurm:
            old, new = self._snapshots, self._views(decider.policy.slurm)
            # The view there is stays until the next arrives.
            new.latest, new.packed, new.failures = old.latest, old.packed, old.failures
            self._snapshots = new
            new.start()
            await asyncio.to_thread(old.close)
        assert self._decisions is not None
        self._decisions.use(decider, aside)
        self._use(decider)
        _log.info("reloaded, predictor %s", decider.version)

    def _use(self, decider: SlurmDecider) -> None:
        """Decide by what was loaded from now on."""
        assert self._decisions is not None
        if (packed := self._snapshots.packed) is not None:
            decider.look(*pickle.loads(packed))
            self._decisions.aside.tell(packed)
        policy = decider.policy
        old, new = self.policy.daemon, policy.daemon
        for name in ("socket", "metrics", "log_format"):
            if getattr(old, name) != getattr(new, name):
                _log.warning("daemon.%s has changed: it takes a restart", name)
        self._reconciler.policy = policy
        for user in self._peers.name(new.allowed_users):
            _log.warning("daemon.allowed_users: there is no user %s", user)
        self._decisions.deadline_s = new.deadline_ms / 1000
        self._decisions.prediction_s = new.prediction_ms / 1000
        self._metrics.predictor(decider.version)
        if (view := self._snapshots.latest) is not None and policy.order.mode != "off":
            for text in order_warnings(policy.order, view.settings):
                _log.warning("%s", text)
        self.policy = policy

    def _views(self, slurm: Slurm) -> Snapshots:
        def arrived(cluster: Cluster, packed: bytes) -> None:
            if self._decisions is not None:  # here, as it takes a while for thousands of nodes
                self._decisions.decider.look(*pickle.loads(packed))
            self._loop.call_soon_threadsafe(self._arrived, cluster, packed)

        return Snapshots(slurm, arrived, self.snapshot_command, self.policy.daemon.log_format)

    def _arrived(self, cluster: Cluster, packed: bytes) -> None:
        """Pass the newest view on, and answer SlurmUser once Slurm has said who that is."""
        if self._decisions is not None:
            self._decisions.aside.tell(packed)
        uid = uid_of(cluster.settings.slurm_user)
        if uid is None or uid == self._peers.slurm_user:
            return
        self._peers.slurm_user = uid
        self._socket.give_to(uid)

    def _answered(self, name: str, found: ChildAnswer, duration_s: float) -> None:
        """Count one answer, and log it as one event."""
        self._metrics.answered(found, duration_s)
        said: dict[str, object] = {
            "outcome": found.ending.value,
            "duration_us": round(1e6 * duration_s),
            "user": found.user,
            "job": found.job_name,
            **found.words,
            "id": name,
        }
        usual = found.ending in (Ending.DECIDED, Ending.FINISHED_LATE)
        level = logging.INFO if usual else logging.WARNING
        _events.log(
            level, "decision", **{name: value for name, value in said.items() if value != ""}
        )
