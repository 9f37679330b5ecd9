"""Nodes, partitions, queue and settings from pyslurm (25.11 and its like).

pyslurm 25.11 tells no MaxWall of a QOS and keys accounting records by job id, so wall limits and
ended jobs come from the commands' text. It fills in the path of a job's output itself: with
"(null)" for the node while there is none, and in spite of a backslash, other than Slurm does.
libslurm ends the process it is loaded in where it finds plugins of another version: only
``open_pyslurm`` loads it, after trying it in a child process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from predictor.site.ended_job import EndedJob

from ..cluster import GpuGres, Node, Partition, QueuedJob, Settings, WallLimits
from ..errors import SourceError
from .gres import Gpus, typed
from .raw_job import RawJob, in_order
from .text_form import TextForm
from .words import node_states

_TRIAL = "import pyslurm; pyslurm.Nodes.load(); pyslurm.slurmctld.Config.load()"
_TRIAL_S = 30.0
_NO_TASK = "4294967294"  # NO_VAL, which pyslurm puts into paths of pending array tasks


class PyslurmForm:
    """Reads through ``api``, the module pyslurm, and accounting through ``text``."""

    name = "pyslurm"

    def __init__(self, api: Any, text: TextForm) -> None:
        self._api = api
        self._text = text

    def settings(self) -> Settings:
        """What of slurm.conf matters here."""
        config = _load(self._api.slurmctld.Config)
        enforced = config.enforce_partition_limits
        return Settings(
            version=config.version,
            cluster_name=config.cluster_name or "",
            slurm_user=config.slurm_user_name or "",
            slurm_conf=config.slurm_conf_path or "",
            enforce_part_limits=str(enforced or "NO").upper(),
            job_submit_plugins=tuple(config.job_submit_plugins or ()),
        )

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by name."""
        found = (_node(node) for node in _load(self._api.Nodes).values())
        return tuple(sorted(found, key=lambda node: node.name))

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, by name."""
        found = (_partition(part) for part in _load(self._api.Partitions).values())
        return tuple(sorted(found, key=lambda partition: partition.name))

    def queue(self) -> tuple[QueuedJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return in_order(_raw_job(job) for job in _load(self._api.Jobs).values())

    def wall_limits(self) -> WallLimits:
        """MaxWall of QOS and associations, from text."""
        return self._text.wall_limits()

    def ended(self, since_s: float, until_s: float | None = None) -> Iterator[EndedJob]:
        """Jobs that ended in a period of Unix seconds, oldest first, from text."""
        return self._text.ended(since_s, until_s)


def open_pyslurm(slurm_version: str, text: TextForm) -> PyslurmForm:
    """The form for a Slurm of this version; raises SourceError saying why it cannot be used."""
    if importlib.util.find_spec("pyslurm") is None:
        raise SourceError("pyslurm is not installed")
    own = importlib.metadata.version("pyslurm")
    if _release(own) != _release(slurm_version):
        raise SourceError(
            f"pyslurm {own} is built for Slurm {_release(own)}, "
            f"this cluster runs {_release(slurm_version)}"
        )
    _try_in_child()
    return PyslurmForm(importlib.import_module("pyslurm"), text)


def _release(version: str) -> str:
    return ".".join(part.zfill(2) for part in version.split(".")[:2])


def _try_in_child() -> None:
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"pyslurm gave no answer within {_TRIAL_S:g} s") from None
    if tried.returncode:
        lines = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
        raise SourceError(f"pyslurm does not work here: {lines[-1].strip()}")


def _load(kind: Any) -> Any:
    try:
        return kind.load()
    except Exception as error:  # pyslurm raises its own and Cython's
        raise SourceError(f"pyslurm {kind.__name__}.load() failed: {error}") from error


def _node(node: Any) -> Node:
    return Node(
        name=node.name,
        partitions=tuple(sorted(node.partitions or ())),
        features=frozenset(node.active_features or ()),
        gpus=_gres(node.configured_gres or {}),
        gpus_used=_by_type(node.allocated_gres or {}).count,
        states=node_states([node.state]),
    )


def _gres(counts: Mapping[str, int]) -> tuple[GpuGres, ...]:
    """``{"gpu:a100": 4}``; the key of untyped ones is ``gpu``."""
    parts = ((name.partition(":"), count) for name, count in counts.items())
    return tuple(GpuGres(kind or None, count) for (name, _, kind), count in parts if name == "gpu")


def _by_type(counts: Mapping[str, int]) -> Gpus:
    return typed({gres.type: gres.count for gres in _gres(counts)})


def _partition(partition: Any) -> Partition:
    return Partition(
        name=partition.name,
        default=bool(partition.is_default),
        default_min=_minutes(partition.default_time),
        max_min=_minutes(partition.max_time),
        qos=partition.qos or None,
        up=partition.state == "UP",
    )


def _minutes(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _raw_job(job: Any) -> RawJob:
    task = _task(job)
    per_node = {k.removeprefix("gres/"): v for k, v in (job.gres_per_node or {}).items()}
    nodes = int(job.num_nodes or 1)
    return RawJob(
        job_id=job.id,
        array_id=job.array_id,
        task=task,
        tasks=job.array_tasks_waiting or "",
        het_id=job.heterogeneous_id,
        het_offset=job.heterogeneous_offset or 0,
        user=job.user_name or "",
        name=job.name or "",
        states=(job.state,),
        reason=job.state_reason or "",
        partitions=tuple((job.partition or "").split(",")),
        account=job.account or "",
        qos=job.qos or "",
        tres=_by_type({name: gpu.count for name, gpu in (job.gpus or {}).items()}),
        asked=_by_type(per_node).times(nodes),
        node_count=nodes,
        nodes=job.allocated_nodes or "",
        features=",".join(job.constraints or ()),
        priority=job.priority or 0,
        submit_s=float(job.submit_time or 0),
        start_s=float(job.start_time or 0) or None,
        limit_min=_minutes(job.time_limit),
        comment=job.comment or "",
        admin_comment=job.admin_comment or "",
        work_dir=job.working_directory or "",
        stdout=_stdout(job, task),
        batch=bool(job.is_batch_job),
    )


def _task(job: Any) -> int | None:
    """The number of an array's task, which pyslurm tells unless it is 0."""
    alone = job.array_id is not None and not job.array_tasks_waiting
    return 0 if alone and job.array_task_id is None else job.array_task_id


def _stdout(job: Any, task: int | None) -> str:
    path = job.standard_output or ""
    waiting = task is None and job.array_id is not None
    return path.replace(_NO_TASK, "%a") if waiting else path
