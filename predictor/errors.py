"""The exceptions of precision-time, all of them PrecisionTimeError."""

from __future__ import annotations

from collections.abc import Sequence


class PrecisionTimeError(Exception):
    """Root of every error this package raises on purpose."""


def reason_of(error: Exception) -> str:
    """Why a file cannot be read or written, without its name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class JobError(PrecisionTimeError):
    """A field of a job is invalid: names it and its value; ``expected`` says what to write.

    The value is None where there is none, and ``...`` where it is stated and cannot be told.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        wrong = f"invalid {field}={value!r}"
        if value is None or value is ...:
            wrong = f"{'no' if value is None else 'unclear'} {field}"
        super().__init__(f"{wrong}; {expected}")
        self.field = field
        self.value = value
        self.expected = expected


class UnknownModelError(JobError):
    """The catalog has no such model; ``nearest`` holds the closest names."""

    def __init__(self, name: str, nearest: Sequence[str], reason: str = "") -> None:
        hint = ", ".join(nearest) if nearest else "see `precision-time catalog list`"
        said = reason or "not in the catalog (your own: `precision-time trace`)"
        super().__init__("model", name, f"{said}; nearest names: {hint}")
        self.nearest = tuple(nearest)


class ProfileError(PrecisionTimeError):
    """A data file under ``profiles/`` is missing, malformed or contradicts physics."""


class ProfilerError(PrecisionTimeError):
    """A device cannot be measured, or its tables cannot be written; the message says why."""


class MeasurementError(PrecisionTimeError):
    """A measurement row cannot be turned into a step time; the message is the reason."""


class RulesError(PrecisionTimeError):
    """A file of site rules is wrong; the message names file, rule, field and what is expected."""


class PriceError(PrecisionTimeError):
    """A price file cannot be used; the message names file, field, value and what is expected."""


class SweepError(PrecisionTimeError):
    """A file of a search is wrong; the message names file, field, value and what is expected."""


class GraphError(PrecisionTimeError):
    """A model has no operator graph, or the graph cannot be built for these arguments."""


class StepReportError(PrecisionTimeError):
    """What a running job says of its steps cannot be used; the message is the reason."""


class TraceError(PrecisionTimeError):
    """A trace of jobs cannot be read or replayed; names the field, the job and what is expected."""


class HistoryError(PrecisionTimeError):
    """A history cannot be opened, read or written; the message says which one and why."""


class ReportError(PrecisionTimeError):
    """A capacity report cannot be made or sent; the message says why."""


class NotInstalledError(PrecisionTimeError):
    """Something that is needed is not installed; the message says what installs it."""


class ArtifactError(PrecisionTimeError):
    """A fitted predictor is missing, has a wrong hash, or is owned by someone else."""
