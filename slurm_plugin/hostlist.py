"""Slurm's host lists: ``a[1-3,7],b01`` and the names they stand for."""

from __future__ import annotations

from ClusterShell.NodeSet import NodeSet, NodeSetException

from .errors import SourceError


def expand(text: str) -> tuple[str, ...]:
    """The names of a list, each once; raises SourceError where it is none.

    Ranges may be padded with zeros and stand at several places of a name.
    """
    if "[" not in text:
        return tuple(dict.fromkeys(name for name in text.split(",") if name))
    try:
        return tuple(NodeSet(text, resolver=None))
    except NodeSetException as error:
        raise SourceError(f"{text!r} is not a host list: {error}") from None
