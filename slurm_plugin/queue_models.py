"""The queue model of the newest view of Slurm, made aside while the last one answers."""

from __future__ import annotations

import logging
import threading

from .cluster import Cluster
from .queue_time import QueueModel

_log = logging.getLogger(__name__)


class QueueModels:
    """Keeps one QueueModel.

    With tens of thousands of queued jobs making one takes longer than a submit may wait, so only
    the very first is waited for.
    """

    def __init__(self) -> None:
        self._of: Cluster | None = None
        self._model: QueueModel | None = None
        self._making = threading.Lock()

    def of(self, cluster: Cluster) -> QueueModel:
        """A model of ``cluster``, or of the view before it while the new one is being made."""
        if self._model is None:
            self._make(cluster)
        elif self._of is not cluster and self._making.acquire(blocking=False):
            threading.Thread(target=self._aside, args=(cluster,), name="queue", daemon=True).start()
        assert self._model is not None
        return self._model

    def _make(self, cluster: Cluster) -> None:
        model = QueueModel(cluster)
        self._of, self._model = cluster, model

    def _aside(self, cluster: Cluster) -> None:
        try:
            self._make(cluster)
        except Exception:
            _log.exception("the queue of %s jobs could not be modelled", len(cluster.queue))
        finally:
            self._making.release()
