"""Which way to read Slurm: pyslurm, the commands' JSON, or their text."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..config import Slurm
from ..errors import SourceError
from .base import SlurmSource
from .commands import Commands
from .json_form import JsonForm
from .pyslurm_form import open_pyslurm
from .text_form import TextForm

_log = logging.getLogger(__name__)


def open_source(policy: Slurm) -> SlurmSource:
    """The source a policy names, or the first that works; logs which one and why.

    Raises SourceError where slurmctld does not answer, and where a named source does not work,
    saying why.
    """
    commands = Commands.of(policy)
    text = TextForm(commands)
    version = text.settings().version

    def pyslurm() -> SlurmSource:
        return open_pyslurm(version, text)

    def json() -> SlurmSource:
        form = JsonForm(commands, text)
        form.nodes()
        return form

    ways: dict[str, Callable[[], SlurmSource]] = {
        "pyslurm": pyslurm,
        "json": json,
        "text": lambda: text,
    }
    if policy.source != "auto":
        source = ways[policy.source]()
        _log.info("reading Slurm %s with %s, as slurm.source says", version, source.name)
        return source
    return _first(ways, version)


def _first(ways: dict[str, Callable[[], SlurmSource]], version: str) -> SlurmSource:
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
