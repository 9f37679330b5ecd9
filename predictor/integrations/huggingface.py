"""The callback of Hugging Face's Trainer, also under DeepSpeed and FSDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..optional import needs_package

with needs_package("transformers"):
    from transformers import TrainerCallback

from .follower import TrainingFollower
from .trainer_settings import TrainerSettings, float32_here, launched, name_of, zero_stage


class PrecisionTimeCallback(TrainerCallback):
    """``Trainer(..., callbacks=[PrecisionTimeCallback()])``.

    ``job`` are fields of TrainingJob that the trainer does not know (``seq_len``, ``gpu`` ...) or
    has wrong; ``model`` is the name in the model's configuration where it is not given.
    """

    def __init__(
        self, model: str | None = None, *, directory: Path | None = None, **job: Any
    ) -> None:
        given = job if model is None else {"model": model, **job}
        self._follower = TrainingFollower(given, directory=directory)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Predict."""
        self._follower.begin(lambda: settings_of(args, state, kwargs.get("model")))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count an optimizer step."""
        self._follower.step()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The time since the last step was that of an evaluation, or of a checkpoint, too."""
        self._follower.pause()

    on_save = on_evaluate

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report and record."""
        self._follower.end()


def settings_of(args: Any, state: Any, model: Any) -> TrainerSettings:
    """What TrainingArguments and TrainerState say."""
    return TrainerSettings(
        model=name_of(model),
        precision=precision_of(args),
        batch_size=args.per_device_train_batch_size,
        grad_accum=args.gradient_accumulation_steps,
        gpus=args.world_size * max(1, args.n_gpu),
        gpus_per_node=launched("LOCAL_WORLD_SIZE"),
        sharding=_sharding(args),
        total_steps=state.max_steps if state.max_steps > 0 else None,
        first_step=state.global_step,
        leader=state.is_world_process_zero,
    )


def precision_of(args: Any) -> str:
    """The policy that ``fp16``, ``bf16`` and ``tf32`` ask for."""
    if args.fp16 or args.bf16:
        return "amp_fp16" if args.fp16 else "amp_bf16"
    return "tf32" if args.tf32 else float32_here()


def _sharding(args: Any) -> str | None:
    config = getattr(args, "hf_deepspeed_config", None)
    if config is not None:
        return zero_stage(config.get_value("zero_optimization.stage", 0))
    return "fsdp" if getattr(args, "fsdp", None) else None
