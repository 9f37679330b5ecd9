"""All groups that the API server shows, and which of them ended and are not stored yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from predictor.site.history.run import Run

from ..pod_name import pod_name
from .groups import SERVICES, RunObjects
from .seen import Reader, SeenObject, SeenPod

MAX_WAITING = 20_000  # groups that wait for a database, about 100 MB
_log = logging.getLogger(__name__)


class RunTable:
    """Pods and Jobs by group; streams fill it, one thread takes what ended.

    A group stays as long as one of its objects is there: what changes after its end is given
    again. What has gone waits until it is stored; of too many the oldest are dropped.
    """

    def __init__(self, reader: Reader, cluster: str) -> None:
        self._reader = reader
        self._cluster = cluster
        self._lock = threading.Lock()
        self._groups: dict[str, RunObjects] = {}
        self._changed: dict[str, None] = {}  # groups not stored as they are, the last change last
        self._pods: dict[str, str] = {}  # the group of each pod that is there, by its uid
        self._jobs: dict[str, str] = {}

    def pod(self, pod: Mapping[str, Any], deleted_s: float | None = None) -> bool:
        """Take note of a pod; False for one without GPUs, or of a service."""
        seen = self._reader.pod(pod, deleted_s)
        if seen is None or seen.of.owner.kind in SERVICES:
            return False
        with self._lock:
            group = self._touched(seen.of, self._pods, there=deleted_s is None)
            group.pods[seen.of.uid] = _as_known(seen, group.pods.get(seen.of.uid))
        return True

    def job(self, job: Mapping[str, Any], deleted_s: float | None = None) -> bool:
        """Take note of a Job; False for one without GPUs."""
        seen = self._reader.job(job, deleted_s)
        if seen is None:
            return False
        with self._lock:
            self._touched(seen, self._jobs, there=deleted_s is None).jobs[seen.uid] = seen
        return True

    def all_pods(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Take note of all pods there are.

        Of those that went while nobody looked and still ran it is not known how they ended.
        """
        uids = _noted(found, self.pod)
        with self._lock:
            for uid in self._pods.keys() - uids:
                pods = self._groups[self._pods.pop(uid)].pods
                if pods[uid].of.state is None:
                    del pods[uid]

    def all_jobs(self, found: Iterable[Mapping[str, Any]]) -> None:
        """The same of Jobs."""
        uids = _noted(found, self.job)
        with self._lock:
            for uid in self._jobs.keys() - uids:
                jobs = self._groups[self._jobs.pop(uid)].jobs
                if jobs[uid].state is None:
                    del jobs[uid]

    def ended(self) -> dict[str, tuple[Run, ...]]:
        """The runs that ended and are not stored as they are, by group."""
        with self._lock:
            self._tidy()
            changed = ((key, self._groups[key]) for key in self._changed)
            return {key: group.runs(self._cluster) for key, group in changed if group.ended}

    def going(self) -> list[RunObjects]:
        """The groups of which something still runs or waits."""
        with self._lock:
            return [group for group in self._groups.values() if group.going]

    def stored(self, runs: Mapping[str, tuple[Run, ...]]) -> None:
        """What ``ended`` gave was stored."""
        with self._lock:
            for key, known in runs.items():
                if self._groups[key].runs(self._cluster) == known:
                    self._changed.pop(key, None)
            self._tidy()

    def _touched(self, seen: SeenObject, where: dict[str, str], *, there: bool) -> RunObjects:
        """The group of an object that is, or is no longer, there."""
        if there:
            where[seen.uid] = seen.group
        else:
            where.pop(seen.uid, None)
        self._changed.pop(seen.group, None)
        self._changed[seen.group] = None
        return self._groups.setdefault(seen.group, RunObjects())

    def _tidy(self) -> None:
        """Forget groups of which nothing is there, unless they ended and wait to be stored."""
        there = {*self._pods.values(), *self._jobs.values()}
        gone = [key for key in self._groups if key not in there]
        waiting = [k for k in self._changed if k not in there and self._groups[k].ended]
        if dropped := waiting[:-MAX_WAITING]:
            _log.warning("the history cannot be written: %d runs are lost", len(dropped))
        for key in {*gone} - {*waiting[-MAX_WAITING:]}:
            del self._groups[key]
            self._changed.pop(key, None)


def _noted(
    found: Iterable[Mapping[str, Any]], note: Callable[[Mapping[str, Any]], object]
) -> set[str]:
    """Take note of each object; their uids."""
    uids = set()
    for obj in found:
        note(obj)
        uids.add(pod_name(obj).uid)
    return uids


def _as_known(seen: SeenPod, before: SeenPod | None) -> SeenPod:
    """Its node may be gone by now: the GPU it had stays."""
    if before is None or seen.gpu_type is not None:
        return seen
    return replace(seen, gpu_type=before.gpu_type)
