"""Keeps the state of the moment: the first load, and what changed on disk."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from predictor.errors import PrecisionTimeError
from predictor.service.process import settle_memory
from predictor.service.reload import WatchedFiles, watch_files

from ..config import read_config
from .certificates import Certificates
from .known import Brain
from .loading import Loader
from .metrics import ExtenderMetrics
from .state import NodeSource, State

_log = logging.getLogger(__name__)

RETRY_S = 30.0
SYNC_S = 10.0
FILES_EVERY_S = 2.0


class Upkeep:
    """Loads, and reloads what changes, until it is cancelled; ``path`` is the configuration's."""

    def __init__(
        self, state: State, loader: Loader, metrics: ExtenderMetrics, path: Path | None
    ) -> None:
        self._state = state
        self._loader = loader
        self._metrics = metrics
        self._path = path

    async def load(self) -> None:
        """Make the first brain, trying until there is one."""
        await _synced(self._state.nodes, SYNC_S)
        while self._state.brain is None:
            try:
                await self._use(await asyncio.to_thread(self._loader.load, self._state.config))
            except PrecisionTimeError as error:
                await self._failed(str(error))
            except Exception:
                _log.exception("the predictor cannot be loaded")
                await self._failed("the predictor cannot be loaded, see the log")

    async def watch_files(self, certificates: Certificates | None, every_s: float) -> None:
        """Reload configuration, site rules and certificates when they change."""
        watched = []
        if self._path is not None:
            watched.append(WatchedFiles("configuration", self._files, self._reload))
        if certificates is not None:

            async def reload() -> None:
                certificates.reload()

            watched.append(WatchedFiles("certificate", lambda: certificates.files, reload))
        await watch_files(
            watched, lambda name, well: self._metrics.reloaded(name, well=well), every_s
        )

    async def _failed(self, reason: str) -> None:
        self._state.loading_failed = reason
        _log.error("not ready: %s; trying again in %.0f s", reason, RETRY_S)
        await asyncio.sleep(RETRY_S)

    async def _use(self, brain: Brain) -> None:
        former = self._state.brain
        same = former is not None and former.predictor is brain.predictor
        del former
        self._state.brain, self._state.config = brain, brain.config
        self._metrics.predictor(brain.version)
        _log.info("predictor %s, policy %s", brain.version, brain.config.prioritize.policy)
        if not same:
            await asyncio.to_thread(settle_memory)

    def _files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self._path, self._state.config.rules) if path is not None)

    async def _reload(self) -> None:
        assert self._path is not None
        config, old = read_config(self._path), self._state.config
        if config.server != old.server:
            _log.warning("server.* of the configuration takes effect at the next start")
            config = config.model_copy(update={"server": old.server})
        brain = await asyncio.to_thread(self._loader.load, config)
        if (config.hardware, config.nodes) != (old.hardware, old.nodes):
            self._state.nodes.use(config)
        await self._use(brain)


async def _synced(nodes: NodeSource, at_most_s: float) -> None:
    until = time.monotonic() + at_most_s
    while not nodes.synced and time.monotonic() < until:
        await asyncio.sleep(0.05)
