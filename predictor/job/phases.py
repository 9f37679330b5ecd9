"""Phases of a training that changes on its way: its precision, its samples or its batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import JobError
from .precision import Precision, parse_precision

if TYPE_CHECKING:
    from .training_job import TrainingJob

LENGTHS = ("share", "steps", "epochs")
# Shares are typed by people: a third is 0.333.
SHARES_WITHIN = 2e-3
_BATCHES = ("batch_size", "global_batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """How long one phase lasts, and what it changes of its job; None leaves that as it is.

    The length is a ``share`` above 0 of the length of the job, or ``steps`` or ``epochs`` of its
    own. ``batch_size`` and ``global_batch_size`` replace either of the job's.

    Raises JobError for a length that is missing, twice stated or invalid; the other values
    are checked with the job they belong to.
    """

    share: float | None = None
    steps: int | None = None
    epochs: float | None = None
    precision: Precision | None = None
    batch_size: int | None = None
    global_batch_size: int | None = None
    grad_accum: int | None = None
    seq_len: int | None = None
    mean_seq_len: int | None = None
    image_size: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        stated = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(stated) != 1:
            shown = ", ".join(f"{name}={getattr(self, name)}" for name in stated) or None
            raise JobError("phases", shown, "expected one of share, steps and epochs in each")
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if self.share is not None and not (number and 0 < self.share <= 1):
            raise JobError("phases", f"share={self.share}", "expected a share from 0 to 1")
        set_ = object.__setattr__
        if self.precision is not None and not isinstance(self.precision, Precision):
            set_(self, "precision", parse_precision(str(self.precision)))
        if isinstance(self.image_size, list):
            set_(self, "image_size", tuple(self.image_size))

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the job that hold in this phase."""
        stated = {n: v for n in CHANGED if (v := getattr(self, n)) is not None}
        if named := stated.keys() & set(_BATCHES):  # both say how often it accumulates
            reset = _BATCHES if len(named) == 1 else (*_BATCHES, "grad_accum")
            return dict.fromkeys(reset) | stated
        return stated


Job = TypeVar("Job", bound="TrainingJob")
PHASE_FIELDS = tuple(f.name for f in fields(Phase))
CHANGED = tuple(name for name in PHASE_FIELDS if name not in LENGTHS)


def phases_of(stated: Iterable[Phase | Mapping[str, Any]]) -> tuple[Phase, ...]:
    """Phases, or mappings with their fields, as phases; raises JobError."""
    if isinstance(stated, str | Mapping):
        raise JobError("phases", stated, "expected a list of phases")
    return tuple(one if isinstance(one, Phase) else _phase(one) for one in stated)


def lasting(phases: Iterable[Phase]) -> bool:
    """Whether phases state their own length, and so that of the job."""
    return any(phase.share is None for phase in phases)


def with_first(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job, where they name no precision or no batch with those of its first phase."""
    phases: tuple[Phase, ...] = stated.get("phases", ())
    found = dict(stated)
    if not phases:
        return found
    first = phases[0]
    if found.get("precision") is None and first.precision is not None:
        found["precision"] = first.precision
    if all(found.get(name) is None for name in _BATCHES):
        names = (*_BATCHES, "grad_accum")
        found |= {n: v for n in names if (v := getattr(first, n)) is not None}
    return found


@lru_cache(maxsize=256)
def of_any_length(job: Job) -> Job:
    """The job without its length, on which neither its step nor its memory rests."""
    return job if job.phases else job.but(steps=None, epochs=None)


def parts_of(job: Job) -> tuple[Job, ...]:
    """The jobs that the phases of a job are, one after the other; empty where it has none.

    They have a length each, or none where the job states shares and no length. Raises JobError,
    naming the phase.
    """
    if not job.phases:
        return ()
    lengths = _own_lengths(job) if lasting(job.phases) else _shared_lengths(job)
    parts = []
    for number, (phase, length) in enumerate(zip(job.phases, lengths, strict=True), start=1):
        try:
            parts.append(job.but(phases=(), **phase.changes | length))
        except JobError as error:
            raise JobError(error.field, error.value, f"phase {number}: {error.expected}") from None
    return tuple(parts)


def _own_lengths(job: TrainingJob) -> list[dict[str, Any]]:
    if any(phase.share is not None for phase in job.phases):
        raise JobError("phases", "share", "expected a share in all phases or in none")
    for name in ("steps", "epochs"):
        if getattr(job, name) is not None:
            raise JobError(name, getattr(job, name), "leave it out: the phases state their length")
    return [{"steps": phase.steps, "epochs": phase.epochs} for phase in job.phases]


def _shared_lengths(job: TrainingJob) -> list[dict[str, Any]]:
    """Each phase's part of the steps, so rounded that their sum is the job's, or of the epochs."""
    shares = [phase.share or 0.0 for phase in job.phases]
    total = math.fsum(shares)
    if abs(total - 1) > SHARES_WITHIN:
        raise JobError("phases", f"shares of {total:g}", "expected shares that add up to 1")
    if job.steps is None:
        epochs = [None if job.epochs is None else job.epochs * s / total for s in shares]
        return [{"epochs": one} for one in epochs]
    ends = [round(job.steps * math.fsum(shares[: i + 1]) / total) for i in range(len(shares))]
    return [{"steps": end - start} for start, end in zip([0, *ends], ends, strict=False)]


def _phase(stated: Mapping[str, Any]) -> Phase:
    if not isinstance(stated, Mapping):
        raise JobError("phases", stated, "each is a mapping of fields to values")
    for name in stated:
        if name not in PHASE_FIELDS:
            raise JobError("phases", name, f"fields of a phase are {', '.join(PHASE_FIELDS)}")
    return Phase(**stated)
