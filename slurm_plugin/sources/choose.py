"""Which way to read Slurm: pyslurm, the commands' JSON, or their text."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..config import Slurm
from ..errors import SourceError
from .base import SlurmSource
from .commands import Commands
from .json_source import JsonSource
from .pyslurm_source import open_pyslurm

_log = logging.getLogger(__name__)


def open_source(policy: Slurm) -> SlurmSource:
    """The source a policy names, or the first that works; logs which one and why.

    Raises SourceError where slurmctld does not answer, and where a named source does not work,
    saying why.
    """
    commands = Commands.of(policy)
    text = SlurmSource(commands)
    version = text.settings().version

    def json() -> SlurmSource:
        source = JsonSource(commands)
        source.nodes()
        return source

    ways: dict[str, Callable[[], SlurmSource]] = {
        "pyslurm": lambda: open_pyslurm(version, commands),
        "json": json,
        "text": lambda: text,
    }
    if policy.source != "auto":
        source = ways[policy.source]()
        _log.info("reading Slurm %s with %s, as slurm.source says", version, source.name)
        return source
    reasons: list[str] = []
    for way in ways.values():
        try:
            source = way()
        except SourceError as error:
            reasons.append(str(error))
            continue
        because = f": {'; '.join(reasons)}" if reasons else ""
        _log.info("reading Slurm %s with %s%s", version, source.name, because)
        return source
    raise SourceError("; ".join(reasons))
