"""Does a job fit the memory of its GPU, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import JobError
from ..graphs.catalog import entry_of
from ..job.phases import parts_of
from ..job.training_job import TrainingJob
from ..physics.memory import Memory, memory_of

# Share of the memory left free by default: what the model does not know (fragmentation of the
# allocator, convolution workspace, uneven batches) and what a GPU reports below its nominal size.
MARGIN = 0.1
# Networks that are often trained by adapters.
ADAPTED = frozenset({"gpt", "transformer"})
# More GPUs than this factor are not proposed.
MOST_TIMES_GPUS = 64


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that makes a job fit: what to do, the job changed so, and what it needs then."""

    text: str
    changes: tuple[tuple[str, Any], ...]
    need_bytes: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job fits: ``need_bytes`` with margin against ``have_bytes``, both per GPU.

    ``need_bytes`` is what tensors take, and ``have_bytes`` the memory of the GPU without what the
    framework takes.
    """

    job: TrainingJob
    ok: bool
    need_bytes: float
    have_bytes: float
    memory: Memory
    margin: float

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What would make it fit, each checked; empty where it does. Takes a few milliseconds."""
        return () if self.ok else _advised(self.job, self.have_bytes * (1 - self.margin))

    @property
    def share(self) -> float:
        """Part of the available memory that tensors take."""
        return self.need_bytes / self.have_bytes if self.have_bytes > 0 else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; bytes."""
        return {
            "fits": self.ok,
            "need_bytes": self.need_bytes,
            "have_bytes": self.have_bytes,
            "margin": self.margin,
            "parts": self.memory.as_dict(),
            "advice": [a.text for a in self.advice],
        }


@lru_cache(maxsize=4096)
def fits(job: TrainingJob, margin: float = MARGIN, *, have_bytes: float | None = None) -> Fit:
    """Whether a job fits its GPU with a share ``margin`` of the memory left free.

    ``have_bytes`` is the memory to fit into, framework included, where it is not the whole GPU
    (a MIG slice). A job in phases fits where its largest phase does. Raises GraphError where the
    model has no graph, JobError for a margin outside [0, 1).
    """
    if not 0 <= margin < 1:
        raise JobError("margin", margin, "expected a share from 0 to below 1")
    if parts := parts_of(job):
        return max((fits(p, margin, have_bytes=have_bytes) for p in parts), key=lambda f: f.share)
    memory = memory_of(job)
    size = job.hardware.memory_bytes if have_bytes is None else have_bytes
    have = size - memory.framework_bytes
    ok = memory.allocated_bytes <= have * (1 - margin)
    return Fit(job, ok, memory.allocated_bytes, have, memory, margin)


def largest_batch(
    job: TrainingJob, margin: float = MARGIN, *, have_bytes: float | None = None
) -> int:
    """The largest micro-batch per GPU that fits, 0 where not even one sample does."""
    size = job.hardware.memory_bytes if have_bytes is None else have_bytes
    limit = (size - memory_of(job).framework_bytes) * (1 - margin)
    return _largest(lambda n: _need(_with_batch(job, n)) <= limit, job.micro_batch_size)


@lru_cache(maxsize=4096)
def _advised(job: TrainingJob, limit: float) -> tuple[Advice, ...]:
    return tuple(_advice(job, limit))


def _advice(job: TrainingJob, limit: float) -> Iterator[Advice]:
    """Every single change that makes a job fit, those that change least first; else pairs."""
    found = [a for change in _CHANGES if (a := change(job, limit)) is not None]
    if not found and (leaner := _leanest(job)) is not job:
        words = "activation checkpointing and full sharding"
        found = [
            Advice(f"{words}, {a.text}", (*_differences(job, leaner), *a.changes), a.need_bytes)
            for change in (_smaller_batch, _more_gpus)
            if (a := change(leaner, limit)) is not None
        ]
        if (need := _need(leaner)) <= limit:
            found.insert(0, Advice(words, _differences(job, leaner), need))
    yield from found
    yield from (a for change in _LEANER_STATE if (a := change(job, limit)) is not None)


def _smaller_batch(job: TrainingJob, limit: float) -> Advice | None:
    batch = job.micro_batch_size
    fitting = _largest(lambda n: _need(_with_batch(job, n)) <= limit, batch, most=batch - 1)
    if not fitting:
        return None
    smaller = _with_batch(job, fitting)
    return Advice(f"a batch of {fitting} per GPU", (("batch_size", fitting),), _need(smaller))


def _checkpointing(job: TrainingJob, limit: float) -> Advice | None:
    if job.software.recompute == "layers":
        return None
    return _if_fits(job, _with_option(job, "act_ckpt", "full"), limit, "activation checkpointing")


def _sharding(job: TrainingJob, limit: float) -> Advice | None:
    if job.data_parallel == 1 or job.sharding in ("zero3", "fsdp"):
        return None
    for sharding in ("zero1", "zero2", "fsdp"):
        if sharding != job.sharding:
            advice = _if_fits(job, job.but(sharding=sharding), limit, f"sharding {sharding}")
            if advice:
                return advice
    return None


def _more_gpus(job: TrainingJob, limit: float) -> Advice | None:
    """More GPUs, where a share of the state moves to them."""
    if job.sharding == "ddp" or job.global_batch_size is not None:
        return None
    times = 2
    while times <= MOST_TIMES_GPUS:
        more = job.but(gpus=job.gpus * times)
        if _need(more) <= limit:
            return Advice(f"{more.gpus} GPUs", (("gpus", more.gpus),), _need(more))
        times *= 2
    return None


def _small_optimizer(job: TrainingJob, limit: float) -> Advice | None:
    """Adam's moments in 8 bits."""
    usual = job.optimizer or entry_of(job.model).optimizer
    if not usual.removeprefix("fused").startswith("adam"):
        return None
    return _if_fits(job, job.but(optimizer="adam8bit"), limit, "an 8-bit optimizer")


def _offloading(job: TrainingJob, limit: float) -> Advice | None:
    offloaded = _with_option(job, "offload_optimizer", "on")
    return _if_fits(job, offloaded, limit, "the optimizer's state in host memory")


def _adapters(job: TrainingJob, limit: float) -> Advice | None:
    """Adapters, where training them instead of the whole network is usual."""
    if job.software.trains_adapters or entry_of(job.model).group not in ADAPTED:
        return None
    return _if_fits(job, _with_option(job, "lora", "on"), limit, "training adapters (LoRA)")


_LEANER_STATE = (_small_optimizer, _offloading, _adapters)
_CHANGES = (_smaller_batch, _sharding, _checkpointing, _more_gpus)


def _leanest(job: TrainingJob) -> TrainingJob:
    leaner = _with_option(job, "act_ckpt", "full")
    return leaner.but(sharding="fsdp")


def _if_fits(job: TrainingJob, changed: TrainingJob, limit: float, text: str) -> Advice | None:
    need = _need(changed)
    return Advice(text, _differences(job, changed), need) if need <= limit else None


def _differences(job: TrainingJob, changed: TrainingJob) -> tuple[tuple[str, Any], ...]:
    names = ("sharding", "options", "optimizer", "gpus", "batch_size")
    pairs = ((name, getattr(changed, name)) for name in names)
    return tuple((name, value) for name, value in pairs if getattr(job, name) != value)


def _with_option(job: TrainingJob, key: str, value: str) -> TrainingJob:
    return job.but(options=tuple(sorted({**dict(job.options), key: value}.items())))


def _with_batch(job: TrainingJob, batch: int) -> TrainingJob:
    return job.but(batch_size=batch, global_batch_size=None, grad_accum=job.micro_steps)


def _need(job: TrainingJob) -> float:
    return memory_of(job).allocated_bytes


def _largest(fitting: Callable[[int], bool], start: int, most: int | None = None) -> int:
    """The largest number up to ``most`` that is fitting, 0 where 1 is not; by doubling, halving."""
    low, high = 0, min(start, most) if most is not None else start
    while high and fitting(high) and (most is None or high < most):
        low, high = high, high * 2 if most is None else min(high * 2, most)
    while high and not fitting(high) and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fitting(middle) else (low, middle)
    return high if high and fitting(high) else low
