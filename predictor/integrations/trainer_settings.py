"""What a trainer tells of its run, and the job that follows from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import JobError
from ..job.phases import lasting, phases_of, with_first
from ..job.training_job import JOB_FIELDS, TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """The settings of a trainer; None where it does not say.

    ``batch_size`` is in samples per GPU and micro-step, ``total_steps`` in optimizer steps of the
    whole training, of which ``first_step`` were made before this run. ``leader`` is the one
    process that speaks for all.
    """

    model: str | None = None
    precision: str | None = None
    batch_size: int | None = None
    grad_accum: int = 1
    gpus: int | None = None
    gpus_per_node: int | None = None
    sharding: str | None = None
    total_steps: int | None = None
    first_step: int = 0
    leader: bool = True


def job_of(trainer: TrainerSettings, given: Mapping[str, Any]) -> TrainingJob:
    """The job of this run: what the user gave, else what the trainer says.

    The length is the trainer's where it has one. Raises JobError for a missing or impossible field.
    """
    from ..identify.keys import resolve_model

    for name in given:
        if name not in JOB_FIELDS:
            raise JobError(name, given[name], f"fields are {', '.join(JOB_FIELDS)}")
    said = {name: getattr(trainer, name) for name in _TOLD}
    said["gpu"] = None if "gpu" in given else gpu_here()
    said["batch_size"] = None if "global_batch_size" in given else trainer.batch_size
    fields = {name: value for name, value in said.items() if value is not None} | dict(given)
    phases = phases_of(given.get("phases", ()))
    fields = with_first(fields | {"phases": phases})
    if lasting(phases) or trainer.total_steps is not None:
        fields = {k: v for k, v in fields.items() if k not in ("steps", "epochs")}
    if trainer.total_steps is not None and not lasting(phases):
        fields["steps"] = max(1, trainer.total_steps - trainer.first_step)
    for name, accepted in _NEEDED.items():
        if fields.get(name) is None:
            raise JobError(name, None, accepted)
    return TrainingJob(**{**fields, "model": resolve_model(fields["model"])})


_TOLD = ("model", "precision", "grad_accum", "gpus", "gpus_per_node", "sharding")
_NEEDED = {
    "model": 'name the network, such as model="resnet50"',
    "gpu": 'no GPU that the tables know is here: name one, such as gpu="a100-sxm4-80gb"',
    "precision": 'name it, such as precision="bf16-mixed"',
}


def gpu_here() -> str | None:
    """The GPU of this process as the tables name it, None without one that they know."""
    from profiles.gpus import known_gpu

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    gpu = known_gpu(torch.cuda.get_device_name())
    return None if gpu is None else gpu.name


def float32_here() -> str:
    """``tf32`` where torch is set to compute FP32 matrices in it, else ``fp32``."""
    torch = sys.modules.get("torch")
    if torch is None or torch.get_float32_matmul_precision() == "highest":
        return "fp32"
    return "tf32"


def rank_here() -> int:
    """The rank of this process: torch.distributed's, else that of the launcher, else 0."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_rank())
    return next((int(os.environ[n]) for n in _RANKS if os.environ.get(n, "").isdecimal()), 0)


def gpus_here() -> int:
    """Processes of the training, each with one GPU."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_world_size())
    return launched("WORLD_SIZE") or 1


def launched(variable: str) -> int | None:
    """A number above 0 that the launcher sets, such as LOCAL_WORLD_SIZE, else None."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def name_of(network: Any) -> str | None:
    """The name of a network in its Hugging Face or timm configuration, None without one."""
    for part in (network, *(getattr(network, name, None) for name in ("module", "model", "net"))):
        named = getattr(getattr(part, "config", None), "_name_or_path", None)
        timm = getattr(part, "default_cfg", None)
        named = named or (timm.get("architecture") if isinstance(timm, Mapping) else None)
        if isinstance(named, str) and named:
            return named
    return None


def zero_stage(stage: int | None) -> str | None:
    """The sharding of a stage of ZeRO, None for none."""
    return f"zero{stage}" if stage else None


def whole(steps: object) -> int | None:
    """A number of steps that a user gave, None where it is none."""
    return steps if isinstance(steps, int) and steps > 0 else None


_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def _distributed() -> Any:
    distributed = sys.modules.get("torch.distributed")
    there = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if there else None
