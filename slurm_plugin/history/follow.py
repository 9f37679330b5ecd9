"""Live ingest: reports of the running jobs, and every minute what ended since the last look."""

from __future__ import annotations

import time
from collections.abc import Callable

from predictor.errors import HistoryError
from predictor.site.history.ingest import Tally, fill, period
from predictor.site.history.store import History

from ..config import SlurmPolicy
from ..sources.base import SlurmSource
from ..sources.choose import open_source
from .records import records
from .reports import Reports

# How late accounting may hear of an end: seldom a day, mostly within the hour.
OVERLAP_S, NEAR_S = 86400.0, 3600.0
FAR_EVERY_S = 3600.0

Open = Callable[[], History]


class SlurmFollower:
    """Looks at Slurm again and again, and keeps nothing that it could not read anew.

    What was not written is read again from the cursor on: while Slurm or the database is away,
    nothing is held but the last report of each running job.
    """

    def __init__(self, open_history: Open, *, overlap_s: float = OVERLAP_S) -> None:
        self._open = open_history
        self._overlap_s = overlap_s
        self._history: History | None = None
        self._source: SlurmSource | None = None
        self._reports = Reports()
        self._far_s = -FAR_EVERY_S

    def look(self, policy: SlurmPolicy, *, since_s: float | None = None) -> Tally:
        """One look; raises SourceError and HistoryError, after which another may be taken.

        Ends that were heard of late are looked for an hour back, once an hour ``overlap_s`` back.
        """
        if self._source is None:
            self._source = open_source(policy.slurm)
        self._reports.look(self._source.queue(), policy)
        far = time.monotonic() - self._far_s >= FAR_EVERY_S
        overlap_s = self._overlap_s if far else min(NEAR_S, self._overlap_s)
        try:
            tally = self._fill(policy, overlap_s, since_s)
        except HistoryError:
            self._history = None  # opened anew with the next look
            raise
        if far:
            self._far_s = time.monotonic()
        return tally

    def _fill(self, policy: SlurmPolicy, overlap_s: float, since_s: float | None) -> Tally:
        assert self._source is not None
        history = self._history = self._history or self._open()
        name = cursor_of(self._source.settings().cluster_name)
        read = period(history.cursor(name), time.time(), since_s=since_s, overlap_s=overlap_s)
        found = records(policy, read.since_s, read.until_s, self._reports.of, self._reports.printed)
        return fill(history, found, cursor=name, since_s=read.since_s)


def cursor_of(cluster: str) -> str:
    """The name of a cluster's cursor: several may share a history."""
    return f"slurm:{cluster}"
