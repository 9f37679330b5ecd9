"""Slurm's data from the commands' text, which every version prints."""

from __future__ import annotations

import logging
import math
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from predictor.site.history.cells import AskedGpus, asked_gpus
from profiles.storage import shipped_yaml

from ..cluster import Association, Cluster, Partition, Settings, SlurmJob, SlurmNode, WallLimits
from ..errors import SourceError
from ..nodes import FIELDS, gpu_request
from ..protocol import HookRequest
from .commands import Commands, new_mark, rows
from .words import expand, first_gpus, listed, minutes, node_gres, node_states, queue_state, stated

# What ``squeue --json`` calls a field, and what ``squeue -O`` and pyslurm do
FIELDS_OF: Mapping[str, Mapping[str, str]] = shipped_yaml("fields.yaml", __file__)
QUEUE = FIELDS_OF["squeue"]
_NO_ACCOUNTING = "not running a supported accounting_storage"
_USER = re.compile(r"(.*)\(\d+\)")


class SlurmSource:
    """Reads ``scontrol``, ``squeue`` and ``sacctmgr``; every method raises SourceError.

    Other sources read nodes and queue in another way.
    """

    name = "text"

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.missing: dict[str, str] = {}  # what could not be read, so that it is logged once

    def settings(self) -> Settings:
        """What of slurm.conf matters here, as slurmctld has it."""
        lines = self.commands.text("scontrol", "show", "config").splitlines()
        found = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
        if "SLURM_VERSION" not in found:
            raise SourceError("scontrol show config tells no SLURM_VERSION")
        user = _USER.fullmatch(found.get("SlurmUser", ""))
        age_s = 60.0 * (minutes(found.get("PriorityMaxAge", "")) or 0)
        weight = found.get("PriorityWeightAge", "0")  # heeded only beside slurmdbd
        accounts = found.get("AccountingStorageType", "").endswith("slurmdbd")
        age_points = int(weight) if accounts and weight.isdecimal() else 0
        return Settings(
            version=found["SLURM_VERSION"],
            cluster_name=stated(found.get("ClusterName", "")),
            slurm_user=user[1] if user else "",
            enforce_part_limits=found.get("EnforcePartLimits", "NO"),
            priority=found.get("PriorityType", "").removeprefix("priority/"),
            scheduler=found.get("SchedulerType", "").removeprefix("sched/"),
            age_points_per_s=age_points / age_s if age_s else 0.0,
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
        return queued_jobs(
            _item(row) for row in table(self.commands, ",".join(QUEUE.values()), "-r")
        )

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


def table(commands: Commands, fields: str, *options: str) -> Iterator[dict[str, str]]:
    """Rows of ``squeue`` with these fields (``JobID,Name``), in full length."""
    mark, columns = new_mark(), fields.split(",")
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
        gpus_used=sum(gres.count for gres in node_gres(pairs.get("GresUsed", ""))),
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
    missing = source.missing
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


_PATTERN = re.compile(r"%(?P<width>\d{0,2})(?P<letter>[%AaJjNntux])")


def printed_path(pattern: str, work_dir: str, values: Mapping[str, str]) -> str:
    """The path of a pattern, below ``work_dir`` unless absolute; empty for an empty one.

    ``values`` are the texts of the letters A, a, j, N, u and x; a batch script is task 0 on node
    0. A backslash anywhere turns patterns off and is dropped; one without a value stays as it is.
    """
    if not pattern:
        return ""
    known = {"%": "%", "n": "0", "t": "0", "J": values.get("j", "")} | dict(values)

    def value(match: re.Match[str]) -> str:
        found = known.get(match["letter"], "")
        return found.zfill(int(match["width"] or 0)) if found else match[0]

    off = "\\" in pattern
    path = pattern.replace("\\", "") if off else _PATTERN.sub(value, pattern)
    return posixpath.join(work_dir, path)


Item = Mapping[str, Any]
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"})
_TASKS = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+))?(?::(?P<step>\d+))?")


def queued_jobs(items: Iterable[Item]) -> tuple[SlurmJob, ...]:
    """Those that are pending, running or suspended, by id; each task of an array on its own."""
    jobs = (job for item in items for job in _jobs(item))
    return tuple(sorted(jobs, key=lambda job: (job.job_id, len(job.label), job.label)))


def array_tasks(text: str) -> Iterator[int]:
    """The numbers of an array's tasks: ``0-9%2``, ``1,3``, ``0-8:2``; none of other text."""
    for part in text.partition("%")[0].split(","):
        if match := _TASKS.fullmatch(part):
            start = int(match["first"])
            yield from range(start, int(match["last"] or start) + 1, int(match["step"] or 1))


def words(value: Any) -> tuple[str, ...]:
    """A list, or the comma-separated text that older versions have in its place."""
    return listed(value) if isinstance(value, str) else tuple(value or ())


def whole(item: Item, key: str) -> int | None:
    """A number; None where unset or infinite."""
    value = item.get(key)
    if isinstance(value, str):
        return int(value) if value.isdecimal() else None
    return value if isinstance(value, int) else None


def _jobs(item: Item) -> Iterator[SlurmJob]:
    """Waiting tasks of an array are one item without a task; an ended job gives nothing."""
    state = queue_state(words(item.get("job_state")))
    if state is None:
        return
    array, task = whole(item, "array_job_id") or None, whole(item, "array_task_id")
    waiting = item.get("array_task_string") or ""
    if array is None or task is not None or not waiting:
        yield _job(item, state, array, task)
    else:
        for number in array_tasks(waiting):
            yield _job(item, state, array, number)


def _job(item: Item, state: str, array: int | None, task: int | None) -> SlurmJob:
    job_id, priority = int(item["job_id"]), whole(item, "priority") or 0
    names = expand(item.get("nodes") or "")
    count = whole(item, "node_count") or 1
    gpus = _gpus(item, count)
    held = not priority or item.get("state_reason") in _HELD
    return SlurmJob(
        job_id=job_id,
        user=item.get("user_name") or "",
        name=item.get("name") or "",
        state=state,
        partitions=listed(item.get("partition") or ""),
        account=item.get("account") or "",
        qos=item.get("qos") or "",
        gpus=gpus.count,
        gpu_type=gpus.type,
        nodes=len(names) or count,
        node_names=names,
        features=item.get("features") or "",
        priority=priority,
        submit_s=float(whole(item, "submit_time") or 0),
        start_s=float(whole(item, "start_time") or 0) or None,
        limit_min=whole(item, "time_limit"),
        held=state == "PENDING" and held,
        comment=item.get("comment") or "",
        admin_comment=item.get("admin_comment") or "",
        work_dir=item.get("current_working_directory") or "",
        stdout=_stdout(item, array, task, names),
        label=_label(item, array, task),
    )


def _gpus(item: Item, nodes: int) -> AskedGpus:
    """Those it has, else those it asks for."""
    given = asked_gpus(item.get("tres_alloc_str") or item.get("tres_req_str") or "")
    if given is not None and given.count and given.type:
        return given
    asked: dict[str, Any] = {field: item.get(field) or None for field in FIELDS}
    wanted = gpu_request(HookRequest(**asked, min_nodes=nodes, num_tasks=whole(item, "tasks") or 1))
    return first_gpus(given, None if wanted is None else AskedGpus(wanted.gpus, wanted.type))


def _label(item: Item, array: int | None, task: int | None) -> str:
    if array is not None and task is not None:
        return f"{array}_{task}"
    het = whole(item, "het_job_id")
    return f"{het}+{whole(item, 'het_job_offset') or 0}" if het else str(item["job_id"])


def _stdout(item: Item, array: int | None, task: int | None, names: tuple[str, ...]) -> str:
    unnamed = "slurm-%j.out" if array is None else "slurm-%A_%a.out"
    values = {
        "A": str(item["job_id"] if array is None else array),
        "j": str(item["job_id"]),
        "a": "" if task is None else str(task),
        "N": names[0].partition(".")[0] if names else "",
        "u": item.get("user_name") or "",
        "x": item.get("name") or "",
    }
    directory = item.get("current_working_directory") or ""
    pattern = item.get("standard_output") or (unnamed if whole(item, "batch_flag") else "")
    return printed_path(pattern, directory, values)
