"""Does a job fit the memory of its GPU, and what would make it fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import JobError
from ..graphs.catalog import entry_of
from ..job.phases import of_any_length, parts_of
from ..job.training_job import TrainingJob
from ..physics.memory import Memory, as_it_fits, as_it_runs, memory_of

# Share of the memory left free by default: what the model does not know (fragmentation of the
# allocator, convolution workspace, uneven batches) and what a GPU reports below its nominal size.
MARGIN = 0.1
# Networks that are often trained by adapters.
ADAPTED = frozenset({"gpt", "transformer"})
TIMES_GPUS = (2, 4, 8, 16, 32, 64)  # that are proposed
RECOMPUTE = ("act_ckpt", "full")

Changes = Iterator[tuple[str, TrainingJob]]  # what to do, and the job changed so


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that makes a job fit: what to do, and the fields of the job that change."""

    text: str
    changes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job fits: ``need_bytes`` with margin against ``have_bytes``, both per GPU.

    ``need_bytes`` is what tensors take, ``have_bytes`` what the framework leaves of the memory.
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
    (a MIG slice). A job in phases fits where its largest phase does; memory is that of the job as
    it is priced, checkpointing where that is assumed. Raises GraphError where the model has no
    graph, JobError for a margin outside [0, 1). One that may be too large as it is priced, but
    leaves open what would make it fit, fits: its trainer is left to do it.
    """
    if not 0 <= margin < 1:
        raise JobError("margin", margin, "expected a share from 0 to below 1")
    if parts := parts_of(job):
        found = (fits(part, margin, have_bytes=have_bytes) for part in parts)
        return max(found, key=lambda one: (not one.ok, one.share))
    job = of_any_length(job)
    memory, whole = memory_of(as_it_runs(job)), job.hardware.memory_bytes
    have = (whole if have_bytes is None else have_bytes) - memory.framework_bytes
    limit = have * (1 - margin)
    leaner = as_it_fits(job, (limit + memory.framework_bytes) / whole)
    ok = min(memory.allocated_bytes, memory_of(leaner).allocated_bytes) <= limit
    return Fit(job, ok, memory.allocated_bytes, have, memory, margin)


def on_a_card_that_holds_it(job: TrainingJob) -> TrainingJob:
    """The job on one that holds it of the cards, alike but for more memory, its GPU may mean."""
    if not job.other_gpus or fits(job).share <= 1 - MARGIN:
        return job
    cards, kind = {job.gpu, *job.other_gpus}, job.gpu.rpartition("-")[0]
    alike = (
        job.but(gpu=one, other_gpus=tuple(sorted(cards - {one})))
        for one in job.other_gpus
        if one.rpartition("-")[0] == kind
    )
    larger = (one for one in alike if one.hardware.memory_bytes > job.hardware.memory_bytes)
    return next((one for one in larger if fits(one).share <= 1 - MARGIN), job)


@lru_cache(maxsize=4096)
def _advised(job: TrainingJob, limit: float) -> tuple[Advice, ...]:
    """Every single change that makes a job fit, those that change least first; else pairs.

    What is assumed of the job stays, and is among the changes.
    """
    runs = as_it_runs(job)
    changes = (_smaller_batch, _sharding, _checkpointing, _more_gpus)
    found = [next(_fitting(job, change(runs, limit), limit), None) for change in changes]
    if not any(found):
        words, leaner = "activation checkpointing and full sharding", _with_option(runs, *RECOMPUTE)
        leaner = leaner.but(sharding="fsdp")
        found = [next(_fitting(job, iter([(words, leaner)]), limit), None)]
        for change in (_smaller_batch, _more_gpus):
            further = ((f"{words}, {text}", one) for text, one in change(leaner, limit))
            found.append(next(_fitting(job, further, limit), None))
    found.extend(_fitting(job, _leaner_state(runs), limit))
    found.append(next(_fitting(job, _adapters(runs), limit), None))
    return tuple(filter(None, found))


def _fitting(job: TrainingJob, changed: Changes, limit: float) -> Iterator[Advice]:
    names = ("sharding", "options", "optimizer", "gpus", "batch_size", "grad_accum")
    for text, one in changed:
        if _need(one) <= limit:
            values = ((name, getattr(one, name)) for name in names)
            yield Advice(text, tuple((k, v) for k, v in values if getattr(job, k) != v))


def _smaller_batch(job: TrainingJob, limit: float) -> Changes:
    if job.global_batch_size is not None:  # which stays
        for one in job.accumulating_more():
            batch = one.micro_batch_size
            yield f"{one.micro_steps} micro-steps with a batch of {batch} per GPU", one
        return
    smaller = range(1, job.micro_batch_size)
    fitting = bisect_left(smaller, x=True, key=lambda n: _need(_with_batch(job, n)) > limit)
    if fitting:
        yield f"a batch of {fitting} per GPU", _with_batch(job, fitting)


def _checkpointing(job: TrainingJob, _limit: float) -> Changes:
    if job.software.recompute != "layers":
        yield "activation checkpointing", _with_option(job, *RECOMPUTE)


def _sharding(job: TrainingJob, _limit: float) -> Changes:
    if job.data_parallel > 1 and job.shards not in ("zero3", "fsdp"):
        for sharding in ("zero1", "zero2", "fsdp"):
            if sharding != job.shards:
                yield f"sharding {sharding}", job.but(sharding=sharding)


def _more_gpus(job: TrainingJob, _limit: float) -> Changes:
    """More GPUs, where a share of the state moves to them."""
    if job.shards != "ddp" and job.global_batch_size is None:
        for times in TIMES_GPUS:
            yield f"{job.gpus * times} GPUs", job.but(gpus=job.gpus * times)


def _leaner_state(job: TrainingJob) -> Changes:
    """Adam's moments in 8 bits or in host memory."""
    if (job.optimizer or entry_of(job.model).optimizer).removeprefix("fused").startswith("adam"):
        yield "an 8-bit optimizer", job.but(optimizer="adam8bit")
    yield "the optimizer's state in host memory", _with_option(job, "offload_optimizer", "on")


def _adapters(job: TrainingJob) -> Changes:
    """Adapters, where training them is usual; if need be beside a base in 4 bits."""
    if entry_of(job.model).group in ADAPTED and not job.software.trains_adapters:
        words, lora = "training adapters (LoRA)", _with_option(job, "lora", "on")
        yield words, lora
        again = _with_option(lora, *RECOMPUTE)
        yield f"{words} with activation checkpointing", again
        words = "training adapters on a base in 4 bits (QLoRA) with activation checkpointing"
        yield words, _with_option(again, "quantized_base", "4bit")


def _with_option(job: TrainingJob, key: str, value: str) -> TrainingJob:
    return job.but(options=tuple(sorted({**dict(job.options), key: value}.items())))


def _with_batch(job: TrainingJob, batch: int) -> TrainingJob:
    return job.but(batch_size=batch, global_batch_size=None, grad_accum=job.micro_steps)


def _need(job: TrainingJob) -> float:
    return memory_of(job).allocated_bytes
