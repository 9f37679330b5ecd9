"""Slurm's data from the commands' text, which every version prints."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..cluster import Association, Cluster, Partition, Settings, SlurmJob, SlurmNode, WallLimits
from ..errors import SourceError
from .commands import Commands, new_mark, rows
from .queue_items import queued_jobs
from .words import gpus_used, listed, minutes, node_gres, node_states, stated

# What ``squeue --json`` calls a field, and what ``squeue -O`` does
QUEUE = {
    "job_id": "JobID",
    "array_job_id": "ArrayJobID",
    "array_task_id": "ArrayTaskID",
    "het_job_id": "HetJobID",
    "het_job_offset": "HetJobOffset",
    "user_name": "UserName",
    "job_state": "State",
    "state_reason": "Reason",
    "partition": "Partition",
    "account": "Account",
    "qos": "QOS",
    "tres_alloc_str": "tres-alloc",
    "tres_per_job": "tres-per-job",
    "tres_per_node": "tres-per-node",
    "tres_per_task": "tres-per-task",
    "tres_per_socket": "tres-per-socket",
    "node_count": "NumNodes",
    "tasks": "NumTasks",
    "nodes": "NodeList",
    "features": "Feature",
    "priority": "PriorityLong",
    "submit_time": "SubmitTime",
    "start_time": "StartTime",
    "time_limit": "TimeLimit",
    "batch_flag": "BatchFlag",
    "name": "Name",
    "comment": "Comment",
    "admin_comment": "admin_comment",
    "current_working_directory": "WorkDir",
    "standard_output": "STDOUT",
}
_NO_ACCOUNTING = "not running a supported accounting_storage"
_USER = re.compile(r"(.*)\(\d+\)")


class SlurmSource:
    """Reads ``scontrol``, ``squeue`` and ``sacctmgr``; every method raises SourceError.

    Other sources read nodes and queue in another way.
    """

    name = "text"

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    def settings(self) -> Settings:
        """What of slurm.conf matters here, as slurmctld has it."""
        lines = self.commands.text("scontrol", "show", "config").splitlines()
        found = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
        if "SLURM_VERSION" not in found:
            raise SourceError("scontrol show config tells no SLURM_VERSION")
        user = _USER.fullmatch(found.get("SlurmUser", ""))
        age_s = 60.0 * (minutes(found.get("PriorityMaxAge", "")) or 0)
        return Settings(
            version=found["SLURM_VERSION"],
            cluster_name=stated(found.get("ClusterName", "")),
            slurm_user=user[1] if user else "",
            enforce_part_limits=found.get("EnforcePartLimits", "NO"),
            priority=found.get("PriorityType", "").removeprefix("priority/"),
            scheduler=found.get("SchedulerType", "").removeprefix("sched/"),
            age_points_per_s=_age_points(found) / age_s if age_s else 0.0,
            age_max_s=age_s,
            over_min=_over_min(found.get("OverTimeLimit", "")) or 0.0,
            stores_scripts="job_script" in found.get("AccountingStoreFlags", ""),
        )

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, by name."""
        lines = self.commands.text("scontrol", "-a", "show", "nodes", "-d", "-o").splitlines()
        found = (_node(pairs(line)) for line in lines if line.startswith("NodeName="))
        return tuple(sorted(found, key=lambda node: node.name))

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, hidden ones too, by name."""
        lines = self.commands.text("scontrol", "-a", "show", "partitions", "-o").splitlines()
        found = (_partition(pairs(line)) for line in lines if line.startswith("PartitionName="))
        return tuple(sorted(found, key=lambda partition: partition.name))

    def queue(self) -> tuple[SlurmJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return queued_jobs(_item(row) for row in table(self.commands, QUEUE.values(), "-r"))

    def wall_limits(self) -> WallLimits:
        """MaxWall of QOS and of this cluster's associations; empty without accounting."""
        cluster = self.settings().cluster_name
        try:
            qos = self._accounts("qos", "format=name,maxwall")
            associations = self._accounts(
                "assoc", "where", f"cluster={cluster}", "format=account,user,partition,maxwall"
            )
        except SourceError as error:
            if _NO_ACCOUNTING in str(error):
                return WallLimits()
            raise
        return WallLimits(
            qos={name: wall for name, text in qos if (wall := minutes(text)) is not None},
            associations=tuple(
                Association(account=account, user=user, partition=partition, max_wall_min=wall)
                for account, user, partition, text in associations
                if (wall := minutes(text)) is not None
            ),
        )

    def _accounts(self, *what: str) -> list[list[str]]:
        text = self.commands.text("sacctmgr", "--noheader", "--parsable2", "show", *what)
        return [line.split("|") for line in text.splitlines()]


def table(commands: Commands, fields: Iterable[str], *options: str) -> Iterator[dict[str, str]]:
    """Rows of ``squeue`` with these fields, in full length."""
    mark, columns = new_mark(), tuple(fields)
    layout = ",".join(f"{field}:0{mark}" for field in columns)
    output = commands.stream("squeue", "-h", "-a", *options, "-O", layout)
    return rows(output, mark, columns)


def pairs(line: str) -> Mapping[str, str]:
    """``Key=value`` of a line. What people write (Comment, Reason) is last: first ones hold."""
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def _age_points(config: Mapping[str, str]) -> int:
    """PriorityWeightAge, which slurmctld heeds only beside slurmdbd."""
    weight = config.get("PriorityWeightAge", "0")
    counts = config.get("AccountingStorageType", "").endswith("slurmdbd") and weight.isdecimal()
    return int(weight) if counts else 0


def _item(row: Mapping[str, str]) -> Mapping[str, Any]:
    item: dict[str, Any] = {key: stated(row[field]) for key, field in QUEUE.items()}
    if not item["array_task_id"].isdecimal():
        item["array_job_id"] = None  # squeue repeats the job's own id there
    return item | {"name": row["Name"], "time_limit": minutes(row["TimeLimit"])}


def _over_min(text: str) -> float | None:
    """Of ``10``, ``10 min``, ``UNLIMITED``; None for NONE."""
    number = text.removesuffix("min").strip()
    return math.inf if number == "UNLIMITED" else float(number) if number.isdecimal() else None


def _node(pairs: Mapping[str, str]) -> SlurmNode:
    return SlurmNode(
        name=pairs["NodeName"],
        partitions=tuple(sorted(listed(pairs.get("Partitions", "")))),
        features=frozenset(listed(pairs.get("ActiveFeatures", ""))),
        gpus=node_gres(pairs.get("Gres", "")),
        gpus_used=gpus_used(pairs.get("GresUsed", "")),
        states=node_states([pairs.get("State", "UNKNOWN")]),
    )


def _partition(pairs: Mapping[str, str]) -> Partition:
    return Partition(
        name=pairs["PartitionName"],
        default=pairs.get("Default") == "YES",
        default_min=minutes(pairs.get("DefaultTime", "")),
        max_min=minutes(pairs.get("MaxTime", "")),
        over_min=_over_min(pairs.get("OverTimeLimit", "")),
        qos=stated(pairs.get("QoS", "")) or None,
        up=pairs.get("State") == "UP",
    )


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
