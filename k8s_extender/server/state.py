"""What decisions rest on at this moment, kept up with what changes on disk; what is counted.

Each part is replaced as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import ProcessCollector, generate_latest

from predictor.errors import PrecisionTimeError
from predictor.graphs.catalog import import_builders
from predictor.identify.grammar import parse_text
from predictor.service.loading import LoadedPredictor, PredictorLoader
from predictor.service.metrics import ServiceMetrics
from predictor.service.process import settle_memory
from predictor.service.reload import WatchedFiles, watch_files
from predictor.site.calibration.site_state import FILE_NAME, read_state
from predictor.trusted_files import home

from ..claims import Devices, with_devices
from ..config import Config, read_config
from ..decide import Decider, NodeTable
from ..nodes import GpuNode, NodeWatch
from ..rank import SiteEstimates, TypeEstimate
from ..workload import PodJob
from .app import Certificates

PREFIX = "precision_time_k8s"
SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
STARTED = "process_start_time_seconds"
# Beginnings of the lines that `k8s audit` sums.
SUMMED = ("placed_", "unplaced_", "kept_off_", "deadlines_t", "observing", "requests_t")
AUDITED = (STARTED, *(f"{PREFIX}_{name}" for name in SUMMED))
NODES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)


class ExtenderMetrics(ServiceMetrics):
    """What is counted of requests, nodes, predictions, files and connections."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        ProcessCollector(registry=self.registry)
        self.requests = self._counter("requests", "Requests.", "verb", "outcome")
        self._seconds = self._histogram(
            "request_duration_seconds", "From the whole request to its answer.", SECONDS, "verb"
        )
        self._nodes = self._histogram("request_nodes", "Nodes of a request.", NODES, "verb")
        self.refused = self._counter("nodes_refused", "Nodes refused.", "reason")
        self._predictions = self._counter("predictions", "Predictions.", "gpu", "tier")
        self.kept_off = self._counter(
            "kept_off", "Filter calls that refused nodes to a pod, or would have.", "reason"
        )
        self._placed = self._counter("placed", "Pods given an order of GPU types.", "first")
        self._unplaced = self._counter("unplaced", "Pods without one.", "why")
        self._filled = self._counter("deadlines", "Objects given a deadline.")
        self.moved = self._counter("deadlines_moved", "Deadlines brought to the GPUs.", "to")
        self._reloads = self._counter("reloads", "Files read anew.", "file", "outcome")
        self.closed = self._counter("connections_closed", "Connections we ended.", "why")

    def watch_state(self, state: ServerState) -> None:
        """Show how much is known of the nodes, and whether we are ready."""
        self.watch("nodes", "Nodes in the table.", lambda: len(state.table()))
        self.watch("nodes_age_seconds", "Since nodes were heard of.", lambda: state.nodes.age_s)
        self.watch("observing", "1 in mode observe.", lambda: state.config.mode == "observe")
        self.watch("ready", "1 when ready.", lambda: float(not state.why_not_ready()))

    def audited(self) -> dict[str, str]:
        """What `k8s audit` sums of this process, by a name for it."""
        page = generate_latest(self.registry).decode().splitlines()
        lines = [line for line in page if line.startswith(AUDITED)]
        start = next(line for line in lines if line.startswith(STARTED)).split()[1]
        return {f"{socket.gethostname()}.{float(start):.0f}": "\n".join(lines) + "\n"}

    def answered(self, verb: str, outcome: str, duration_s: float, nodes: int | None) -> None:
        """Count one decision, about a number of nodes."""
        self.requests.labels(verb, outcome).inc()
        self._seconds.labels(verb).observe(duration_s)
        if nodes is not None:
            self._nodes.labels(verb).observe(nodes)

    def predicted(self, estimate: TypeEstimate) -> None:
        """Count one prediction."""
        gpu, prediction = estimate.type.gpu, estimate.prediction
        tier = "none" if prediction is None else prediction.tier.value
        self._predictions.labels("unknown" if gpu is None else gpu.name, tier).inc()

    def reviewed(self, placed: str, unplaced: str, deadline_s: int | None) -> None:
        """Count what a new object was given; under ``observe`` what it would have been."""
        if placed:
            self._placed.labels(placed).inc()
        if unplaced:
            why = "unknown model" if "is not known" in unplaced else unplaced
            self._unplaced.labels(why).inc()
        if deadline_s is not None:
            self._filled.inc()

    def reloaded(self, file: str, well: bool) -> None:
        """Count one file that was read anew."""
        self._reloads.labels(file, "done" if well else "refused").inc()


_log = logging.getLogger(__name__)

# Jobs of a convolutional network and a transformer: they touch every part of a prediction.
WARMING = (
    "model=resnet50 precision=amp batch=128 epochs=1",
    "model=bert-large precision=fp32 batch=8 steps=100",
)
RETRY_S = 30.0
SYNC_S, SYNC_POLL_S = 10.0, 0.05
FILES_EVERY_S = 2.0


class ServerState:
    """The configuration, the nodes and the decider in use, which is None until one is loaded."""

    def __init__(self, config: Config, nodes: NodeWatch, devices: Devices | None = None) -> None:
        self.config = config
        self.nodes = nodes
        self.devices = devices
        self._merged: tuple[object, object, NodeTable] = (None, None, {})
        self.decider: Decider | None = None
        self.draining = False
        self.loading_failed = ""

    def table(self) -> Mapping[str, GpuNode]:
        """The newest table of nodes, with the GPUs that their slices tell."""
        if self.devices is None:
            return self.nodes.table
        nodes, types = self.nodes.table, self.devices.types
        if self._merged[0] is not nodes or self._merged[1] is not types:
            self._merged = (nodes, types, with_devices(nodes, self.devices))
        return self._merged[2]

    def why_not_ready(self) -> tuple[str, ...]:
        """What stands in the way of answering well; empty where nothing does."""
        reasons = ["shutting down"] if self.draining else []
        if self.decider is None:
            reasons.append(self.loading_failed or "the predictor is not loaded yet")
        if not self.nodes.synced.is_set():
            error = f": {self.nodes.error}" if self.nodes.error else ""
            reasons.append(f"the nodes are not listed yet{error}")
        return tuple(reasons)


@dataclass(eq=False)
class Upkeep:
    """Loads, and reloads what changes, until it is cancelled; ``path`` is the configuration's.

    A predictor that stays the same is loaded once. Loading takes about a second, so it is done by a
    thread while answers go out.
    """

    state: ServerState
    metrics: ExtenderMetrics
    path: Path | None

    def __post_init__(self) -> None:
        self._predictors = PredictorLoader()
        self._warm: LoadedPredictor | None = None

    def decider(self, config: Config) -> Decider:
        """A warm decider for a configuration; raises RulesError and ArtifactError.

        It predicts once on every GPU type of the table, so that no pod waits for what comes first.
        """
        rules = config.site_rules()
        loaded = self._predictors.load(config.predictor_version)
        decider = Decider(
            loaded.predictor,
            config,
            self.state.table,
            rules=rules,
            version=loaded.version,
            predicted=self.metrics.predicted,
            site=SiteEstimates(read_state().memory, loaded.predictor, config.site),
        )
        if loaded is not self._warm:
            import_builders()
            kinds = {node.type for node in decider.nodes().values() if node.type is not None}
            for text in WARMING:
                for policy in ("time", "reserve"):
                    stated = parse_text(text, "warming")
                    job = PodJob(stated=stated, gpus_per_pod=1, scheduling_policy=policy)
                    decider.scores(job, kinds)
            self._warm = loaded
        return decider

    async def load(self) -> None:
        """Make the first decider, trying until there is one."""
        until_s = time.monotonic() + SYNC_S
        while not self.state.nodes.synced.is_set() and time.monotonic() < until_s:
            await asyncio.sleep(SYNC_POLL_S)  # in no thread: the process would end after it
        while self.state.decider is None:
            try:
                await self._use(await asyncio.to_thread(self.decider, self.state.config))
            except Exception as error:
                known = isinstance(error, PrecisionTimeError)
                reason = str(error) if known else "the predictor cannot be loaded, see the log"
                self.state.loading_failed = reason
                text = "not ready: %s; trying again in %.0f s"
                _log.error(text, reason, RETRY_S, exc_info=None if known else error)
                await asyncio.sleep(RETRY_S)

    async def watch_files(self, certificates: Certificates | None, every_s: float) -> None:
        """Reload configuration, site rules, what calibrate learned, certificates on a change."""
        watched = []
        if (path := self.path) is not None:
            watched.append(
                WatchedFiles(
                    "configuration",
                    lambda: [path, home() / FILE_NAME, *filter(None, [self.state.config.rules])],
                    lambda: self._reload(path),
                )
            )
        if certificates is not None:
            watched.append(
                WatchedFiles("certificate", lambda: certificates.files, certificates.reload)
            )
        await watch_files(watched, self.metrics.reloaded, every_s)

    async def _use(self, decider: Decider) -> None:
        former = self.state.decider
        same = former is not None and former.predictor is decider.predictor
        del former
        self.state.decider, self.state.config = decider, decider.config
        self.metrics.predictor(decider.version)
        _log.info("predictor %s, policy %s", decider.version, decider.config.prioritize.policy)
        if not same:
            await asyncio.to_thread(settle_memory)

    async def _reload(self, path: Path) -> None:
        config, old = read_config(path), self.state.config
        if config.server != old.server:
            _log.warning("server.* of the configuration takes effect at the next start")
            config = config.model_copy(update={"server": old.server})
        decider = await asyncio.to_thread(self.decider, config)
        if (config.hardware, config.nodes) != (old.hardware, old.nodes):
            self.state.nodes.use(config)
        await self._use(decider)
