"""The queue from ``squeue``'s text."""

from __future__ import annotations

from collections.abc import Mapping

from ..cluster import QueuedJob
from .commands import Commands
from .gres import asked_gpus, tres_gpus
from .marked import new_mark, rows
from .raw_job import RawJob, in_order
from .words import listed, minutes, stated, unix_s

FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "UserName",
    "State",
    "Reason",
    "Partition",
    "Account",
    "QOS",
    "tres-alloc",
    "tres-per-job",
    "tres-per-node",
    "tres-per-task",
    "tres-per-socket",
    "NumNodes",
    "NumTasks",
    "NodeList",
    "Feature",
    "PriorityLong",
    "SubmitTime",
    "StartTime",
    "TimeLimit",
    "BatchFlag",
    "Name",
    "Comment",
    "admin_comment",
    "WorkDir",
    "STDOUT",
)


def read(commands: Commands) -> tuple[QueuedJob, ...]:
    """All jobs of the queue, by id."""
    mark = new_mark()
    # width 0 prints a field in full
    layout = ",".join(f"{field}:0{mark}" for field in FIELDS)
    output = commands.stream("squeue", "-h", "-a", "-r", "-O", layout)
    return in_order(_raw(row) for row in rows(output, mark, FIELDS))


def _raw(row: Mapping[str, str]) -> RawJob:
    nodes, tasks = _number(row["NumNodes"]) or 1, _number(row["NumTasks"]) or 1
    task = _number(row["ArrayTaskID"])
    return RawJob(
        job_id=int(row["JobID"]),
        array_id=None if task is None else int(row["ArrayJobID"]),
        task=task,
        tasks="",
        het_id=_number(row["HetJobID"]),
        het_offset=_number(row["HetJobOffset"]) or 0,
        user=row["UserName"],
        name=row["Name"],
        states=(row["State"],),
        reason=row["Reason"],
        partitions=listed(row["Partition"]),
        account=stated(row["Account"]),
        qos=stated(row["QOS"]),
        tres=tres_gpus(row["tres-alloc"]),
        asked=asked_gpus(
            per_job=row["tres-per-job"],
            per_node=row["tres-per-node"],
            per_task=row["tres-per-task"],
            per_socket=row["tres-per-socket"],
            nodes=nodes,
            tasks=tasks,
        ),
        node_count=nodes,
        nodes=stated(row["NodeList"]),
        features=stated(row["Feature"]),
        priority=_number(row["PriorityLong"]) or 0,
        submit_s=unix_s(row["SubmitTime"]) or 0.0,
        start_s=unix_s(row["StartTime"]),
        limit_min=minutes(row["TimeLimit"]),
        comment=stated(row["Comment"]),
        admin_comment=stated(row["admin_comment"]),
        work_dir=stated(row["WorkDir"]),
        stdout=stated(row["STDOUT"]),
        batch=row["BatchFlag"] == "1",
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
