"""Nodes and queue from the commands' JSON: openapi 0.0.38 of 22.05 and the data_parser of later.

What JSON does not tell in every version is read as text: 22.05 has none of partitions, settings
and accounting, and 24.11 and 25.11 leave out which partition is the default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from predictor.site.ended_job import EndedJob

from ..cluster import Node, Partition, QueuedJob, Settings, WallLimits
from ..errors import SourceError
from .commands import Commands
from .gres import asked_gpus, gpus_used, node_gres, tres_gpus
from .raw_job import RawJob, in_order
from .text_form import TextForm
from .words import listed, node_states

_VERSION = re.compile(r"\D*(\d+)\.(\d+)")
_SCONTROL_JSON = (23, 2)


class JsonForm:
    """Reads ``scontrol show nodes --json`` (22.05: ``sinfo --json``) and ``squeue --json``."""

    name = "json"

    def __init__(self, commands: Commands, text: TextForm) -> None:
        self._commands = commands
        self._text = text

    def settings(self) -> Settings:
        """What of slurm.conf matters here, from text."""
        return self._text.settings()

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by name."""
        argv = ("scontrol", "-a", "show", "nodes") if self._newer() else ("sinfo", "-a")
        found = (_node(item) for item in self._items("nodes", *argv, "--json"))
        return tuple(sorted(found, key=lambda node: node.name))

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, from text."""
        return self._text.partitions()

    def queue(self) -> tuple[QueuedJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return in_order(_raw_job(item) for item in self._items("jobs", "squeue", "-a", "--json"))

    def wall_limits(self) -> WallLimits:
        """MaxWall of QOS and associations, from text."""
        return self._text.wall_limits()

    def ended(self, since_s: float, until_s: float | None = None) -> Iterator[EndedJob]:
        """Jobs that ended in a period of Unix seconds, oldest first, from text."""
        return self._text.ended(since_s, until_s)

    def _newer(self) -> bool:
        said = self._commands.text("scontrol", "--version")
        match = _VERSION.match(said)
        if match is None:
            raise SourceError(f"scontrol --version says {said.strip()!r}, no version")
        return (int(match[1]), int(match[2])) >= _SCONTROL_JSON

    def _items(self, key: str, *argv: str) -> Sequence[Mapping[str, Any]]:
        command = " ".join(argv)
        try:
            # a raw control character in a job's name is no reason to read none
            answer = json.loads(self._commands.text(*argv), strict=False)
        except ValueError as error:
            raise SourceError(f"{command} did not print JSON: {error}") from None
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if errors:
            raise SourceError(f"{command}: {_said(errors[0])}")
        if not isinstance(answer, dict) or not isinstance(answer.get(key), list):
            raise SourceError(f"{command} printed JSON without a list of {key}")
        return answer[key]  # type: ignore[no-any-return]


def _said(error: Any) -> str:
    told = error if isinstance(error, dict) else {}
    return str(told.get("description") or told.get("error") or error)


def _node(item: Mapping[str, Any]) -> Node:
    return Node(
        name=item["name"],
        partitions=tuple(sorted(item.get("partitions") or ())),
        features=frozenset(_words(item.get("active_features"))),
        gpus=node_gres(item.get("gres") or ""),
        gpus_used=gpus_used(item.get("gres_used") or ""),
        states=node_states([*_words(item.get("state")), *_words(item.get("state_flags"))]),
    )


def _raw_job(item: Mapping[str, Any]) -> RawJob:
    nodes, tasks = _whole(item, "node_count") or 1, _whole(item, "tasks") or 1
    texts = {
        key: item.get(key) or ""
        for key in (
            "user_name",
            "name",
            "state_reason",
            "account",
            "qos",
            "nodes",
            "features",
            "comment",
            "admin_comment",
            "current_working_directory",
            "standard_output",
            "array_task_string",
            "tres_per_job",
            "tres_per_node",
            "tres_per_task",
            "tres_per_socket",
        )
    }
    return RawJob(
        job_id=item["job_id"],
        array_id=_whole(item, "array_job_id") or None,
        task=_whole(item, "array_task_id"),
        tasks=texts["array_task_string"],
        het_id=_whole(item, "het_job_id") or None,
        het_offset=_whole(item, "het_job_offset") or 0,
        user=texts["user_name"],
        name=texts["name"],
        states=_words(item.get("job_state")),
        reason=texts["state_reason"],
        partitions=listed(item.get("partition") or ""),
        account=texts["account"],
        qos=texts["qos"],
        tres=tres_gpus(item.get("tres_alloc_str") or item.get("tres_req_str") or ""),
        asked=asked_gpus(
            per_job=texts["tres_per_job"],
            per_node=texts["tres_per_node"],
            per_task=texts["tres_per_task"],
            per_socket=texts["tres_per_socket"],
            nodes=nodes,
            tasks=tasks,
        ),
        node_count=nodes,
        nodes=texts["nodes"],
        features=texts["features"],
        priority=_whole(item, "priority") or 0,
        submit_s=float(_whole(item, "submit_time") or 0),
        start_s=float(_whole(item, "start_time") or 0) or None,
        limit_min=_whole(item, "time_limit"),
        comment=texts["comment"],
        admin_comment=texts["admin_comment"],
        work_dir=texts["current_working_directory"],
        stdout=texts["standard_output"],
        batch=bool(item.get("batch_flag")),
    )


def _words(value: Any) -> tuple[str, ...]:
    """A list, or the comma-separated text that 22.05 has in its place."""
    return listed(value) if isinstance(value, str) else tuple(value or ())


def _whole(item: Mapping[str, Any], key: str) -> int | None:
    """A number, plain or as ``{set, infinite, number}``; None where unset or infinite."""
    value = item.get(key)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) else None
