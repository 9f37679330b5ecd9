"""What we write on a job at submit: AdminComment, the join of prediction and outcome.

Slurm gives the hook no job id, so the decision travels with the job: accounting keeps the
AdminComment, the modify hook and ``watch`` read it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

PREFIX = "precision-time"
MARK_HEAD = f"{PREFIX} v=1"
MAX_CHARS = 1000
JOB_HEAD = " job: "
_PAIR = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMark:
    """One decision.

    ``limit`` is the time limit we set in minutes, None where the user's own or the default
    stands; ``first`` what it was at submit, where ``watch`` has moved it since. ``soft`` is the
    limit that backfill plans with, or what it has grown to, up to ``cap`` (inf for no end).
    ``p50_s`` and ``hi_s`` are the median and the ``q`` quantile of all steps in seconds, on the
    slowest GPU the job may get. ``version`` is the predictor's, ``job`` the job as stated.

    ``expected_s``, ``mean_s`` and ``upper_s`` are of the estimate of the whole run: its median, its
    mean (an older mark tells it as expected) and its 95 % quantile. ``own`` is the user's limit in
    minutes as the hook saw it: ``none`` where there was none, ``inf`` for UNLIMITED. ``cpus``,
    ``mem`` (MiB), ``script`` and ``command`` (signatures) are what similar runs are found by,
    ``steps_s`` are times of all steps that are alike likely. ``later`` marks a job that was not
    decided at submit: the id of the decision to come, or ``hook`` where the daemon was not reached.
    """

    later: str | None = None
    own: str | None = None
    limit: int | None = None
    first: int | None = None
    soft: int | None = None
    cap: float | None = None
    expected_s: float | None = None
    upper_s: float | None = None
    mean_s: float | None = None
    cpus: int | None = None
    mem: int | None = None
    script: str | None = None
    command: str | None = None
    p50_s: float | None = None
    hi_s: float | None = None
    q: float | None = None
    steps_s: tuple[float, ...] | None = None
    step_s: float | None = None
    gpu: str | None = None
    gpus: int | None = None
    tier: str | None = None
    version: str | None = None
    job: str = ""

    @property
    def own_min(self) -> float | None:
        """The user's own limit in minutes, None where there was none."""
        return float(self.own) if self.own not in (None, "none") else None

    @property
    def ends_s(self) -> tuple[float, float] | None:
        """Mean and 95 % quantile of the run, None where there is no estimate."""
        mean_s = self.mean_s or self.expected_s
        return (mean_s, self.upper_s) if mean_s and self.upper_s else None

    def text(self) -> str:
        """The AdminComment; a job too long for it is dropped whole: half would mislead."""
        stated = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "job")
        pairs = [f"{name}={_written(value)}" for name, value in stated if value is not None]
        head = " ".join([MARK_HEAD, *pairs]) + JOB_HEAD
        return head + self.job if len(head) + len(self.job) <= MAX_CHARS else head


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{each:.5g}" for each in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_OF: dict[str, Callable[[str], Any]] = {
    "int | None": int,
    "float | None": float,
    "tuple[float, ...] | None": lambda text: tuple(map(float, text.split(","))),
}
_KINDS: dict[str, Callable[[str], Any]] = {
    f.name: _OF.get(str(f.type), str) for f in fields(JobMark) if f.name != "job"
}


def parse_mark(text: str | None) -> JobMark | None:
    """The decision an AdminComment holds, None where it is not ours or not whole.

    One in quotes counts: ``scontrol`` keeps those that hold words of its input together.
    """
    text = (text or "").strip('"')
    if not text.startswith(PREFIX + " "):
        return None
    head, _, job = text.partition(JOB_HEAD)
    found = dict(_PAIR.findall(head))
    if found.get("v") != "1":
        return None
    try:
        known = {name: kind(found[name]) for name, kind in _KINDS.items() if name in found}
        return JobMark(**known, job=job)
    except ValueError:
        return None
