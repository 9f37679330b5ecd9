"""What the residual model sees of a job: categories, numbers and options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from ...graphs.catalog import entry_of, overrides
from ...job.precision import Precision
from ...job.software import is_dated
from ...job.training_job import TrainingJob
from ...physics.step import StepTime

CATEGORIES = (
    *("source", "model", "variant", "group", "framework"),
    *("architecture", "gpu", "precision", "optimizer", "task"),
)
NUMBERS = (
    *("batch", "gpus", "nodes", "accum", "seq", "date", "host", "tensor"),
    *("matmul", "memory", "recurrent", "exposed", "update", "split"),
)
# A missing number is its own point, far from every known one; missing values equal each other.
MISSING = 1e3
# An option column needs this many rows to say anything.
MIN_OPTION_ROWS = 5
# A key beside the categories: whether a job runs on several GPUs.
MANY = "many"


@dataclass(frozen=True, slots=True)
class Features:
    """One job: ``categories`` and ``numbers`` in the order of CATEGORIES and NUMBERS."""

    categories: tuple[str, ...]
    numbers: tuple[float, ...]
    options: frozenset[str]


def features(job: TrainingJob, step: StepTime) -> Features:
    """Features of a job whose physical step time is known. Numbers are natural logs or shares."""
    entry = entry_of(job.model)
    gpu = job.hardware
    variant = dict(overrides(entry, job.variant))
    task = variant.pop("head", "")
    busy = step.compute_s + step.host_s
    categories = (
        job.source,
        entry.name,
        ";".join(f"{k}={v}" for k, v in sorted(variant.items())),
        entry.group,
        job.framework,
        gpu.architecture,
        gpu.name,
        _computed_in(job, step).value,
        job.optimizer or entry.optimizer,
        task,
    )
    numbers = (
        log(job.micro_batch_size),
        log(job.gpus),
        log(job.nodes),
        log(job.micro_steps),
        log(job.seq_len or entry.seq_len or 1),
        job.software.date if is_dated(job.framework_date, job.source) else MISSING,
        step.host_s / busy,
        step.tensor_core_s / busy,
        step.matmul_s / busy,
        step.memory_s / busy,
        step.recurrent_s / busy,
        step.exposed_s / step.step_s,
        step.optimizer_s / step.step_s,
        log(job.split),
    )
    options = frozenset(f"{k}={v}" for k, v in job.options if k != "build")  # known to physics
    return Features(categories, numbers, options)


def _computed_in(job: TrainingJob, step: StepTime) -> Precision:
    """The precision of most products: jobs in FP32 and in TF32 may well run the same kernels."""
    if job.precision not in (Precision.FP32, Precision.TF32):
        return job.precision
    return Precision.TF32 if step.tensor_core_s > step.matmul_s else Precision.FP32


_OF_PRECISION = ("amp", "precision", "dtype", "fp8", "loss_scal", "tf32", "build")


def without_precision(job: TrainingJob) -> TrainingJob:
    """The job as a precision-blind predictor sees it."""
    return job.but(
        precision=Precision.FP32,
        options=(
            *((k, v) for k, v in job.options if not any(word in k for word in _OF_PRECISION)),
            ("tf32", "off"),
        ),
    )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Codes of category values and option columns, frozen when a residual is fitted."""

    values: tuple[Mapping[str, int], ...]
    options: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources in the order of their codes."""
        return tuple(self.values[CATEGORIES.index("source")])

    @classmethod
    def of(cls, rows: Sequence[Features]) -> Vocabulary:
        """Codes for every value seen; options seen at least MIN_OPTION_ROWS times."""
        values = tuple(
            {v: i for i, v in enumerate(dict.fromkeys(r.categories[c] for r in rows))}
            for c in range(len(CATEGORIES))
        )
        counts = Counter(o for r in rows for o in r.options)
        kept = sorted(o for o, n in counts.items() if n >= MIN_OPTION_ROWS)
        return cls(values, tuple(kept))

    def extended(self, rows: Sequence[Features]) -> Vocabulary:
        """With codes for the new values of ``rows`` too, so that they equal each other."""
        values = tuple(
            {**known, **{v: i for i, v in enumerate(new, start=len(known))}}
            for c, known in enumerate(self.values)
            for new in [
                dict.fromkeys(r.categories[c] for r in rows if r.categories[c] not in known)
            ]
        )
        return Vocabulary(values, self.options)

    def encode(self, rows: Sequence[Features]) -> EncodedRows:
        """Rows as arrays; a value never seen has the code -1 and equals nothing."""
        codes = np.array(
            [[v.get(x, -1) for v, x in zip(self.values, r.categories, strict=True)] for r in rows],
            dtype=np.int32,
        ).reshape(len(rows), len(CATEGORIES))
        options = np.array(
            [[o in r.options for o in self.options] for r in rows], dtype=np.float32
        ).reshape(len(rows), len(self.options))
        numbers = np.array([r.numbers for r in rows], dtype=np.float64)
        return EncodedRows(codes, numbers.reshape(len(rows), len(NUMBERS)), options)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Encoded rows: ``codes`` (n, categories), ``numbers`` (n, numbers), ``options`` (n, m)."""

    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    options: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: NDArray[np.intp]) -> EncodedRows:
        """The rows at these positions."""
        return EncodedRows(self.codes[rows], self.numbers[rows], self.options[rows])

    def column(self, category: str) -> NDArray[np.int32]:
        """The codes of one category, (n,); of MANY, 1 for several GPUs and 0 for one."""
        if category == MANY:
            return (self.numbers[:, NUMBERS.index("gpus")] > 0).astype(np.int32)
        return self.codes[:, CATEGORIES.index(category)]

    def on_one_gpu(self) -> EncodedRows:
        """The same jobs with one of their GPUs, as the residual sees them."""
        numbers = self.numbers.copy()
        numbers[:, [NUMBERS.index(name) for name in ("gpus", "nodes", "exposed")]] = 0.0
        return EncodedRows(self.codes, numbers, self.options)

    def option_distance(self, other: EncodedRows) -> NDArray[np.float32]:
        """Number of options in which rows differ, (n, other n)."""
        a, b = self.options, other.options
        distance: NDArray[np.float32] = a.sum(1)[:, None] + b.sum(1)[None, :] - 2 * (a @ b.T)
        return distance

    def code(self, categories: Sequence[str]) -> NDArray[np.int64]:
        """One integer per row for a combination of categories; -1 where a value is unknown."""
        combined = np.zeros(len(self), dtype=np.int64)
        unknown = np.zeros(len(self), dtype=bool)
        for name in categories:
            column = self.column(name).astype(np.int64)
            combined = combined * 65_537 + column + 1
            unknown |= column < 0
        return np.where(unknown, -1, combined)
