"""Jobs of the queue, from items with the keys of ``squeue --json``; every source makes such items.

Numbers are plain or digits; texts may be absent.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from predictor.site.history.cells import AskedGpus, asked_gpus

from ..cluster import SlurmJob
from ..protocol import HookRequest
from ..tres import FIELDS, gpu_request
from .words import expand, first_gpus, listed, queue_state

_PATTERN = re.compile(r"%(?P<width>\d{0,2})(?P<letter>[%AaJjNntux])")
_PLAIN, _ARRAY = "slurm-%j.out", "slurm-%A_%a.out"


def default_path(in_array: bool) -> str:
    """The name sbatch gives the file where the user gave none."""
    return _ARRAY if in_array else _PLAIN


def printed_path(pattern: str, work_dir: str, values: Mapping[str, str]) -> str:
    """The path of a pattern, below ``work_dir`` unless absolute; empty for an empty one.

    ``values`` are the texts of the letters A, a, j, N, u and x; a batch script is task 0 on node
    0. A backslash anywhere turns patterns off and is dropped; one without a value stays as it is.
    """
    if not pattern:
        return ""
    known = {"%": "%", "n": "0", "t": "0", "J": values.get("j", "")} | dict(values)

    def replacement(match: re.Match[str]) -> str:
        value = known.get(match["letter"], "")
        return value.zfill(int(match["width"] or 0)) if value else match[0]

    off = "\\" in pattern
    path = pattern.replace("\\", "") if off else _PATTERN.sub(replacement, pattern)
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
    unnamed = default_path(array is not None) if whole(item, "batch_flag") else ""
    values = {
        "A": str(item["job_id"] if array is None else array),
        "j": str(item["job_id"]),
        "a": "" if task is None else str(task),
        "N": names[0].partition(".")[0] if names else "",
        "u": item.get("user_name") or "",
        "x": item.get("name") or "",
    }
    directory = item.get("current_working_directory") or ""
    return printed_path(item.get("standard_output") or unnamed, directory, values)
