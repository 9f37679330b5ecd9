"""Keeps the state of the moment: the first load, and what changed on disk."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from predictor.errors import PrecisionTimeError
from predictor.service.process import settle_memory
from predictor.service.reload import WatchedFiles, watch_files

from ..config import read_config
from ..decide import Decider
from .connections import Certificates
from .metrics import ExtenderMetrics
from .state import DeciderLoader, ServerState

_log = logging.getLogger(__name__)

RETRY_S = 30.0
SYNC_S = 10.0
FILES_EVERY_S = 2.0


class Upkeep:
    """Loads, and reloads what changes, until it is cancelled; ``path`` is the configuration's."""

    def __init__(
        self, state: ServerState, loader: DeciderLoader, metrics: ExtenderMetrics, path: Path | None
    ) -> None:
        self._state = state
        self._loader = loader
        self._metrics = metrics
        self._path = path

    async def load(self) -> None:
        """Make the first decider, trying until there is one."""
        await asyncio.to_thread(self._state.nodes.synced.wait, SYNC_S)
        while self._state.decider is None:
            try:
                await self._use(await asyncio.to_thread(self._loader.load, self._state.config))
            except Exception as error:
                known = isinstance(error, PrecisionTimeError)
                reason = str(error) if known else "the predictor cannot be loaded, see the log"
                self._state.loading_failed = reason
                text = "not ready: %s; trying again in %.0f s"
                _log.error(text, reason, RETRY_S, exc_info=None if known else error)
                await asyncio.sleep(RETRY_S)

    async def watch_files(self, certificates: Certificates | None, every_s: float) -> None:
        """Reload configuration, site rules and certificates when they change."""
        watched = []
        if self._path is not None:
            watched.append(WatchedFiles("configuration", self._files, self._reload))
        if certificates is not None:
            watched.append(
                WatchedFiles("certificate", lambda: certificates.files, certificates.reload)
            )
        await watch_files(watched, self._metrics.reloaded, every_s)

    async def _use(self, decider: Decider) -> None:
        former = self._state.decider
        same = former is not None and former.predictor is decider.predictor
        del former
        self._state.decider, self._state.config = decider, decider.config
        self._metrics.predictor(decider.version)
        _log.info("predictor %s, policy %s", decider.version, decider.config.prioritize.policy)
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
        decider = await asyncio.to_thread(self._loader.load, config)
        if (config.hardware, config.nodes) != (old.hardware, old.nodes):
            self._state.nodes.use(config)
        await self._use(decider)
