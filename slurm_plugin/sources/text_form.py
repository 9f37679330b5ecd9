"""Slurm's data from the commands' text, which every version prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from predictor.site.ended_job import EndedJob

from ..cluster import Association, Node, Partition, QueuedJob, Settings, WallLimits
from ..errors import SourceError
from . import accounting, queue_text
from .commands import Commands
from .gres import gpus_used, node_gres
from .words import listed, minutes, node_states, stated

_NO_ACCOUNTING = "not running a supported accounting_storage"
_USER = re.compile(r"(.*)\(\d+\)")


class TextForm:
    """Reads ``scontrol``, ``squeue``, ``sacct`` and ``sacctmgr``; needs no JSON in Slurm."""

    name = "text"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def settings(self) -> Settings:
        """What of slurm.conf matters here, as slurmctld has it."""
        lines = self._commands.text("scontrol", "show", "config").splitlines()
        found = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
        if "SLURM_VERSION" not in found:
            raise SourceError("scontrol show config tells no SLURM_VERSION")
        user = _USER.fullmatch(found.get("SlurmUser", ""))
        return Settings(
            version=found["SLURM_VERSION"],
            cluster_name=stated(found.get("ClusterName", "")),
            slurm_user=user[1] if user else "",
            slurm_conf=stated(found.get("SLURM_CONF", "")),
            enforce_part_limits=found.get("EnforcePartLimits", "NO"),
            job_submit_plugins=listed(found.get("JobSubmitPlugins", "")),
        )

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by name."""
        lines = self._commands.text("scontrol", "-a", "show", "nodes", "-d", "-o").splitlines()
        found = (_node(pairs(line)) for line in lines if line.startswith("NodeName="))
        return tuple(sorted(found, key=lambda node: node.name))

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, hidden ones too, by name."""
        lines = self._commands.text("scontrol", "-a", "show", "partitions", "-o").splitlines()
        found = (_partition(pairs(line)) for line in lines if line.startswith("PartitionName="))
        return tuple(sorted(found, key=lambda partition: partition.name))

    def queue(self) -> tuple[QueuedJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return queue_text.read(self._commands)

    def wall_limits(self) -> WallLimits:
        """MaxWall of QOS and of this cluster's associations; empty without accounting."""
        cluster = self.settings().cluster_name
        try:
            qos = self._table("qos", "format=name,maxwall")
            rows = self._table(
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
                for account, user, partition, text in rows
                if (wall := minutes(text)) is not None
            ),
        )

    def ended(self, since_s: float, until_s: float | None = None) -> Iterator[EndedJob]:
        """Jobs that ended in a period of Unix seconds, oldest first, a row for each run."""
        return accounting.ended(self._commands, since_s, until_s)

    def _table(self, *what: str) -> list[list[str]]:
        text = self._commands.text("sacctmgr", "--noheader", "--parsable2", "show", *what)
        return [line.split("|") for line in text.splitlines()]


def pairs(line: str) -> Mapping[str, str]:
    """``Key=value`` of a line. What people write (Comment, Reason) is last: first ones hold."""
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def _node(pairs: Mapping[str, str]) -> Node:
    return Node(
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
        qos=stated(pairs.get("QoS", "")) or None,
        up=pairs.get("State") == "UP",
    )
