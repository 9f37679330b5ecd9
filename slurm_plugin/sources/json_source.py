"""Nodes and queue from the commands' JSON: openapi 0.0.38 of 22.05 and the data_parser of later.

The rest is read as text: 22.05 has no JSON of partitions, settings and accounting, and 24.11 and
25.11 leave out which partition is the default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster import SlurmJob, SlurmNode
from ..errors import SourceError
from .base import SlurmSource
from .queue_items import queued_jobs, words
from .words import gpus_used, node_gres, node_states

_VERSION = re.compile(r"\D*(\d+)\.(\d+)")
_SCONTROL_JSON = (23, 2)


class JsonSource(SlurmSource):
    """Reads ``scontrol show nodes --json`` (22.05: ``sinfo --json``) and ``squeue --json``."""

    name = "json"

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, by name."""
        argv = ("scontrol", "-a", "show", "nodes") if self._newer() else ("sinfo", "-a")
        found = (node_of(item) for item in self._items("nodes", *argv, "--json"))
        return tuple(sorted(found, key=lambda node: node.name))

    def queue(self) -> tuple[SlurmJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return queued_jobs(self._items("jobs", "squeue", "-a", "--json"))

    def _newer(self) -> bool:
        printed = self.commands.text("scontrol", "--version")
        match = _VERSION.match(printed)
        if match is None:
            raise SourceError(f"scontrol --version says {printed.strip()!r}, no version")
        return (int(match[1]), int(match[2])) >= _SCONTROL_JSON

    def _items(self, key: str, *argv: str) -> Sequence[Mapping[str, Any]]:
        command = " ".join(argv)
        try:
            # a raw control character in a job's name is no reason to read none
            answer = json.loads(self.commands.text(*argv), strict=False)
        except ValueError as error:
            raise SourceError(f"{command} did not print JSON: {error}") from None
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if errors:
            told = errors[0] if isinstance(errors[0], dict) else {}
            text = told.get("description") or told.get("error") or errors[0]
            raise SourceError(f"{command}: {text}")
        if not isinstance(answer, dict) or not isinstance(answer.get(key), list):
            raise SourceError(f"{command} printed JSON without a list of {key}")
        return answer[key]  # type: ignore[no-any-return]


def node_of(item: Mapping[str, Any]) -> SlurmNode:
    """The node of an item with the keys of ``scontrol show nodes --json``."""
    return SlurmNode(
        name=item["name"],
        partitions=tuple(sorted(item.get("partitions") or ())),
        features=frozenset(words(item.get("active_features"))),
        gpus=node_gres(item.get("gres") or ""),
        gpus_used=gpus_used(item.get("gres_used") or ""),
        states=node_states([*words(item.get("state")), *words(item.get("state_flags"))]),
    )
