"""Which way to read Slurm: pyslurm, or the text of its commands."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from predictor.site.history.cells import asked_gpus

from ..cluster import SlurmJob, SlurmNode
from ..config import Slurm
from ..errors import SourceError
from .commands import Commands
from .text import FIELDS_OF, SlurmSource, queued_jobs, words
from .words import node_gres, node_states

_TRIAL = "import pyslurm; pyslurm.Nodes.load()"
_TRIAL_S = 30.0
_NO_TASK = "4294967294"  # NO_VAL, which pyslurm puts into paths of pending array tasks


class PyslurmSource(SlurmSource):
    """Reads nodes and queue through ``api``, the module pyslurm."""

    name = "pyslurm"

    def __init__(self, api: Any, commands: Commands) -> None:
        super().__init__(commands)
        self._api = api

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, by name."""
        found = (_node(node) for node in _load(self._api.Nodes))
        return tuple(sorted(found, key=lambda node: node.name))

    def queue(self) -> tuple[SlurmJob, ...]:
        """Jobs that are pending, running or suspended, array tasks and het components each."""
        return queued_jobs(_job_item(job) for job in _load(self._api.Jobs))


def open_pyslurm(slurm_version: str, commands: Commands) -> PyslurmSource:
    """The source for a Slurm of this version; raises SourceError saying why it cannot be used."""
    if importlib.util.find_spec("pyslurm") is None:
        raise SourceError("pyslurm is not installed")
    own = importlib.metadata.version("pyslurm")
    if _release(own) != _release(slurm_version):
        raise SourceError(
            f"pyslurm {own} is built for Slurm {_release(own)}, "
            f"this cluster runs {_release(slurm_version)}"
        )
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
    return PyslurmSource(importlib.import_module("pyslurm"), commands)


def _release(version: str) -> str:
    return ".".join(part.zfill(2) for part in version.split(".")[:2])


def _load(kind: Any) -> list[Any]:
    try:
        return list(kind.load().values())
    except Exception as error:  # pyslurm raises its own and Cython's
        raise SourceError(f"pyslurm {kind.__name__}.load() failed: {error}") from error


def _node(node: Any) -> SlurmNode:
    # of all types beside each of them
    used = asked_gpus(_texts(node.allocated_gres, "gres/", "="))
    return SlurmNode(
        name=node.name,
        partitions=tuple(sorted(node.partitions or ())),
        features=frozenset(words(node.active_features)),
        gpus=node_gres(_texts(node.configured_gres, "", ":")),
        gpus_used=used.count if used else 0,
        states=node_states(words(node.state)),
    )


def _job_item(job: Any) -> Mapping[str, Any]:
    item = {key: getattr(job, name) for key, name in FIELDS_OF["pyslurm"].items()}
    alone = job.array_id is not None and not job.array_tasks_waiting
    # pyslurm tells the number of an array's task unless it is 0
    task = 0 if alone and job.array_task_id is None else job.array_task_id
    path = job.standard_output or ""
    waiting = task is None and job.array_id is not None
    counts = {name: gpus.count for name, gpus in (job.gpus or {}).items()}
    return item | {
        "array_task_id": task,
        "features": ",".join(job.constraints or ()),
        "standard_output": path.replace(_NO_TASK, "%a") if waiting else path,
        "tres_alloc_str": _texts(counts, "gres/", "="),
        "tres_per_node": _texts(job.gres_per_node, "", "="),
    }


def _texts(counts: Mapping[str, int] | None, prefix: str, mark: str) -> str:
    """``{"gpu:a100": 4}`` as Slurm writes it."""
    return ",".join(f"{prefix}{name}{mark}{count}" for name, count in (counts or {}).items())


_log = logging.getLogger(__name__)


def open_source(policy: Slurm) -> SlurmSource:
    """What a policy names: pyslurm, where it is of this Slurm's release, or the commands' text.

    Logs which one and why. Raises SourceError where slurmctld does not answer, and where pyslurm
    is named and does not work, saying why. ``json`` counts as text, which tells all that it does.
    """
    commands = Commands.of(policy)
    source = SlurmSource(commands)
    version = source.settings().version
    because = ""
    if policy.source in ("auto", "pyslurm"):
        try:
            source = open_pyslurm(version, commands)
        except SourceError as error:
            if policy.source == "pyslurm":
                raise
            because = f": {error}"
    _log.info("reading Slurm %s with %s%s", version, source.name, because)
    return source
