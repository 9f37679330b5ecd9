"""A DeepSpeed engine that a script steps itself.

Uses ``global_steps``, ``global_rank``, ``world_size``, ``train_micro_batch_size_per_gpu()``,
``gradient_accumulation_steps()``, ``fp16_enabled()``, ``bfloat16_enabled()``,
``torch_autocast_enabled()``, ``torch_autocast_dtype()`` and ``zero_optimization_stage()`` of
DeepSpeedEngine (deepspeed/runtime/engine.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from .follower import Guard, TrainingFollower
from .trainer_settings import TrainerSettings, float32_here, launched, name_of, whole, zero_stage


def follow(engine: Any, *, directory: Path | None = None, **job: Any) -> TrainingFollower:
    """Follow an engine from here on: its steps, and its checkpoints as pauses.

    ``job`` are fields of TrainingJob: ``model``, and ``steps``, which the engine does not know.
    Call ``end()`` of what it returns after the last step to have the run recorded. Never raises.
    """
    follower = TrainingFollower(job, directory=directory)
    follower.begin(lambda: settings_of(engine, whole(job.get("steps"))))
    guard = Guard()
    guard.run("following the engine", lambda: _attach(engine, follower, guard))
    return follower


def settings_of(engine: Any, steps: int | None) -> TrainerSettings:
    """What an engine says."""
    return TrainerSettings(
        model=name_of(engine),
        precision=precision_of(engine),
        batch_size=engine.train_micro_batch_size_per_gpu(),
        grad_accum=engine.gradient_accumulation_steps(),
        gpus=engine.world_size,
        gpus_per_node=launched("LOCAL_WORLD_SIZE"),
        sharding=zero_stage(engine.zero_optimization_stage()),
        total_steps=steps,
        first_step=engine.global_steps,
        leader=engine.global_rank == 0,
    )


def precision_of(engine: Any) -> str:
    """The policy of the configuration: 16-bit parameters over FP32 master weights, or FP32.

    Its own ``torch_autocast``, of DeepSpeed 0.17 and later, keeps FP32 parameters.
    """
    if engine.fp16_enabled() or engine.bfloat16_enabled():
        return "amp_fp16" if engine.fp16_enabled() else "amp_bf16"
    autocast = getattr(engine, "torch_autocast_enabled", None)
    if autocast is not None and autocast():
        return "amp_bf16" if "bfloat16" in str(engine.torch_autocast_dtype()) else "amp_fp16"
    return float32_here()


def _attach(engine: Any, follower: TrainingFollower, guard: Guard) -> None:
    seen = engine.global_steps

    def stepped() -> None:
        nonlocal seen
        if engine.global_steps != seen:
            seen = engine.global_steps
            follower.step()

    def followed(call: Callable[..., Any], after: Callable[[], None]) -> Callable[..., Any]:
        @wraps(call)
        def both(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            guard.run("following the engine", after)
            return result

        return both

    # A pipeline engine makes its steps in train_batch.
    steps = {"step": stepped, "train_batch": stepped, "save_checkpoint": follower.pause}
    for name, after in steps.items():
        if callable(getattr(engine, name, None)):
            setattr(engine, name, followed(getattr(engine, name), after))
