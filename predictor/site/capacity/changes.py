"""What a job could have been sent as instead: in mixed precision, elsewhere, on fewer GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from ...errors import PrecisionTimeError
from ...job.precision import Precision
from ...job.training_job import TrainingJob
from ...planning.plans import fitting_job

FULL_PRECISION = (Precision.FP32, Precision.TF32)
# Options that name the precision a second time.
_PRECISION_OPTIONS = ("amp", "tf32")


def in_mixed_precision(job: TrainingJob) -> TrainingJob | None:
    """The job in bf16 mixed precision, fp16 where the GPU has no bf16; None where nothing gains."""
    peaks = job.hardware.peak_flops
    if job.precision not in FULL_PRECISION or "fp16_tensor" not in peaks:
        return None
    bf16 = "bf16_tensor" in peaks
    precision = Precision.MIXED_BF16_FP32 if bf16 else Precision.MIXED_FP16_FP32
    options = tuple(pair for pair in job.options if pair[0] not in _PRECISION_OPTIONS)
    return _possible(lambda: job.but(precision=precision, options=options))


def on(gpu_type: str, job: TrainingJob) -> TrainingJob | None:
    """The same job, batch and number of GPUs on another type; None where it does not fit."""
    return _possible(lambda: job.but(gpu=gpu_type))


def elsewhere(job: TrainingJob, gpu_types: Sequence[str]) -> Iterator[TrainingJob]:
    """The job on each other type that it fits."""
    for name in gpu_types:
        moved = on(name, job)
        if moved is not None and moved.gpu != job.gpu:
            yield moved


def with_fewer_gpus(job: TrainingJob) -> Iterator[TrainingJob]:
    """The same steps, of the same global batch, on half the GPUs, a quarter ... as far as fits."""
    gpus = job.gpus
    while gpus % 2 == 0 and (gpus // 2) % job.split == 0:
        gpus //= 2
        smaller = _possible(lambda gpus=gpus: _on_gpus(job, gpus))  # type: ignore[misc]
        if smaller is None:
            return
        yield smaller


def _on_gpus(job: TrainingJob, gpus: int) -> TrainingJob:
    return job.but(
        gpus=gpus,
        gpus_per_node=min(gpus, job.gpus_per_node),
        batch_size=None,
        global_batch_size=job.step_samples,
        grad_accum=job.micro_steps,
    )


def _possible(make: Callable[[], TrainingJob]) -> TrainingJob | None:
    try:
        return _fitting(make())
    except PrecisionTimeError:
        return None


@lru_cache(maxsize=8192)
def _fitting(job: TrainingJob) -> TrainingJob | None:
    """The job as it fits; cached, for candidates are listed once to price and once to compare."""
    try:
        return fitting_job(job)
    except PrecisionTimeError:
        return None
