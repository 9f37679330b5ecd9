"""One view of the cluster from any source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from ..cluster import Cluster, Settings, WallLimits
from ..errors import SourceError
from .base import SlurmSource

_log = logging.getLogger(__name__)
_Part = TypeVar("_Part")
# What each source could not read, so that it is logged once and not with every view
_missing: WeakKeyDictionary[SlurmSource, dict[str, str]] = WeakKeyDictionary()


def take(source: SlurmSource) -> Cluster:
    """Nodes, partitions, queue, wall limits and settings, read one right after the other.

    Raises SourceError where nodes or partitions cannot be read. Another part that cannot be read
    is left empty, which is logged when it begins and when it ends.
    """
    taken_s = time.time()
    nodes, partitions = source.nodes(), source.partitions()
    return Cluster(
        taken_s=taken_s,
        nodes=nodes,
        partitions=partitions,
        queue=_part(source, "queue", source.queue, ()),
        settings=_part(source, "settings", source.settings, Settings()),
        walls=_part(source, "wall limits", source.wall_limits, WallLimits()),
    )


def _part(source: SlurmSource, name: str, read: Callable[[], _Part], empty: _Part) -> _Part:
    missing = _missing.setdefault(source, {})
    try:
        part = read()
    except SourceError as error:
        if missing.get(name) != str(error):
            _log.warning("no %s from Slurm: %s", name, error)
        missing[name] = str(error)
        return empty
    if missing.pop(name, None) is not None:
        _log.info("%s can be read from Slurm again", name)
    return part
