"""Whether a job fits, and advice that holds."""

from __future__ import annotations

import timeit
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.estimate.fits import MARGIN, Fit, fits
from predictor.estimate.fitting import Fitted
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.memory import as_it_runs, memory_of

GIB = 2**30


def job(model: str = "resnet50", **fields: Any) -> TrainingJob:
    stated: dict[str, Any] = {
        "precision": Precision.FP32,
        "gpu": "v100-sxm2-16gb",
        "batch_size": 256,
    }
    return TrainingJob(model=model, **(stated | fields))


def after(advised: TrainingJob, fit: Fit) -> list[TrainingJob]:
    return [advised.but(**{"global_batch_size": None} | dict(a.changes)) for a in fit.advice]


def test_mixed_precision_fits_a_batch_that_fp32_does_not() -> None:
    """NVIDIA trains ResNet-50 on a 16 GB V100 with 256 images in mixed precision, 128 in FP32."""
    assert fits(job(precision=Precision.MIXED_FP16_FP32)).ok
    assert fits(job(batch_size=128)).ok
    assert not fits(job()).ok


TIGHT = job("llama3-70b", gpu="h100", gpus=64, batch_size=1, seq_len=8192, sharding="fsdp").but(
    precision=Precision.MIXED_BF16_FP32
)


@pytest.mark.parametrize(
    ("other", "again"),
    [
        ({}, True),
        ({"options": "act_ckpt=off"}, False),
        ({"options": "act_ckpt=selective"}, False),
        ({"framework": "megatron-lm"}, False),  # keeps less than the rules of memory say
        ({"options": "flash_attention=off"}, False),
        ({"seq_len": 1024}, False),
        ({"model": "t5-3b", "batch_size": 64, "options": "flash_attention=on"}, True),
        ({"model": "resnet50", "batch_size": 4096, "seq_len": None}, False),  # no switch does it
    ],
)
def test_a_transformer_without_room_for_its_activations_computes_them_again(
    other: dict[str, Any], again: bool
) -> None:
    asked = TIGHT.but(**other)
    runs = as_it_runs(asked)
    assert (runs != asked) == again
    assert not again or runs.software.recompute == "layers"
    assert not again or memory_of(runs).total_bytes < memory_of(asked).total_bytes


@pytest.mark.parametrize("model", ["deepseek-v3", "glm-4.5", "t5-11b", "qwen3-235b-a22b"])
def test_of_unequal_layers_no_more_is_gathered_than_one_of_each_kind(model: str) -> None:
    """Three dense layers stand before 58 with experts, or an encoder before a decoder."""
    asked = job(model, gpu="h100-sxm5-80gb", gpus=512, batch_size=1, seq_len=4096)
    found = memory_of(asked.but(sharding="fsdp", precision=Precision.BF16))
    whole = memory_of(asked.but(sharding="zero2", precision=Precision.BF16))
    assert found.buffers_bytes < 0.2 * whole.weights_bytes


@pytest.mark.parametrize(
    ("other", "sharding"),
    [
        ({}, "fsdp"),
        ({"sharding": "ddp"}, "ddp"),
        ({"options": "zero=0"}, "ddp"),
        ({"options": "zero=1"}, "zero1"),
        ({"gpus": 1, "gpus_per_node": 1}, None),
        ({"framework": "megatron-lm"}, "zero1"),
        ({"framework": "megatron-lm", "model": "gpt2"}, None),
        ({"framework": "nemo", "model": "gpt2"}, "zero1"),
        ({"framework": "nemo", "sharding": "ddp"}, "ddp"),
        ({"model": "gpt2"}, None),
        (
            {"model": "resnet50", "seq_len": None, "batch_size": 4096},
            None,
        ),  # its images are too much
    ],
)
def test_states_that_are_too_much_for_a_gpu_are_sharded_unless_stated(
    other: dict[str, Any], sharding: str | None
) -> None:
    fields = {"gpu": "h100-sxm5-80gb", "gpus": 64, "batch_size": 1, "seq_len": 4096}
    asked = job("mixtral-8x7b", **fields, precision=Precision.MIXED_BF16_FP32).but(**other)
    assert as_it_runs(asked).sharding == sharding


def test_what_is_sharded_unasked_is_told_and_fits_as_if_asked(fitted: Fitted) -> None:
    fields = {"gpu": "h100-sxm5-80gb", "gpus": 64, "batch_size": 1, "seq_len": 4096}
    asked = job("mixtral-8x7b", **fields, precision=Precision.MIXED_BF16_FP32)
    found, stated = (fitted.predictor.predict(one) for one in (asked, asked.but(sharding="fsdp")))
    assert found.step_s == stated.step_s
    assert found.memory.need_bytes == stated.memory.need_bytes
    told = {one.field: one.value for one in found.assumptions}
    assert told["sharding"] == "fsdp"
    assert "sharding" not in {one.field for one in stated.assumptions}


def test_what_nemo_shares_is_told_as_its_own(fitted: Fitted) -> None:
    asked = job("gpt2", gpus=8, seq_len=1024, precision=Precision.MIXED_BF16_FP32)
    (told,) = (
        one
        for one in fitted.predictor.predict(asked.but(framework="nemo")).assumptions
        if one.field == "sharding"
    )
    assert told.value == "zero1"
    assert "NeMo" in told.reason


def test_what_is_computed_again_unasked_is_told(fitted: Fitted) -> None:
    found, asked = (fitted.predictor.predict(TIGHT.but(options=o)) for o in ((), "act_ckpt=full"))
    assert found.step_s == pytest.approx(asked.step_s, rel=0.1)
    assert "act_ckpt" in [one.field for one in found.assumptions]
    assert "act_ckpt" not in [one.field for one in asked.assumptions]
    assert found.memory.need_bytes == asked.memory.need_bytes


@pytest.mark.parametrize(
    "tight",
    [
        job(),
        job(
            "bert-large", batch_size=12, seq_len=512, gpus=8, sharding="ddp", options="act_ckpt=off"
        ),
        job(
            "llama2-7b",
            gpu="a100-sxm4-80gb",
            gpus=8,
            batch_size=1,
            seq_len=4096,
            precision=Precision.MIXED_BF16_FP32,
            sharding="ddp",
        ),
        job("gpt2", batch_size=16, seq_len=1024, gpus=4, gpu="t4-16gb"),
        # FSDP is assumed of it, and is not enough.
        job(
            "llama3-8b",
            gpu="h100-sxm5-80gb",
            gpus=8,
            batch_size=1,
            seq_len=8192,
            precision=Precision.MIXED_BF16_FP32,
            options="act_ckpt=off",
        ),
        TIGHT.but(batch_size=4),  # checkpointing is assumed of it
    ],
)
def test_every_advice_makes_the_job_fit(tight: TrainingJob) -> None:
    found = fits(tight)
    assert not found.ok
    assert found.advice
    for changed in after(tight, found):
        assert fits(changed).ok


@pytest.mark.parametrize(
    "asked",
    [
        job("bert-large", batch_size=32, seq_len=512, gpus=8, precision="amp"),
        job("gemma-2b", batch_size=8, grad_accum=2, seq_len=512, options="lora=on", gpus=8),
        job("bert-large", batch_size=None, global_batch_size=8192, seq_len=128, gpus=8),
        job("llama2-7b", batch_size=4, seq_len=2048, gpus=8, precision="bf16"),
        job("stable-diffusion-v1", batch_size=8, gpus=4),
    ],
)
def test_what_fits_fits_on_every_card_of_more_memory(asked: TrainingJob) -> None:
    """Also in the doubt between what is surely too much and what surely fits."""
    cards = ("v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm4-40gb", "l40s", "a100-sxm4-80gb")
    ok = [fits(asked.but(gpu=one)).ok for one in cards]
    assert ok == sorted(ok)
    assert ok[-1]


def test_what_may_not_fit_as_it_is_priced_is_told(fitted: Fitted) -> None:
    asked = job("bert-large", batch_size=32, seq_len=512, gpus=8, gpu="v100-sxm2-32gb")
    found = fitted.predictor.predict(asked.but(precision="amp"))
    assert found.memory.ok
    assert found.memory.need_bytes > (1 - MARGIN) * found.memory.have_bytes
    (told,) = (one for one in found.assumptions if one.field == "act_ckpt")
    assert told.value == "off"
    assert "memory may be too small" in told.reason
    asked = asked.but(precision="amp", options="act_ckpt=off")
    (told,) = (o for o in fitted.predictor.predict(asked).assumptions if o.field == "sharding")
    assert told.value == "ddp"
    assert "memory may be too small" in told.reason
    assert not fitted.predictor.predict(asked.but(sharding="ddp")).memory.ok


def tuned(model: str = "llama3-8b", **fields: Any) -> TrainingJob:
    stated = {"precision": "bf16", "gpu": "rtx4090", "batch_size": 2, "seq_len": 2048}
    return job(model, **(stated | fields))


LORA = "lora=on;act_ckpt=full;"
EIGHT: dict[str, Any] = {"gpu": "a100-sxm4-80gb", "gpus": 8, "sharding": "fsdp"}
LARGE: dict[str, Any] = {"model": "llama3-70b", **EIGHT}


@pytest.mark.parametrize(
    ("asked", "gib", "error"),
    [  # torchtune's README of September 2024: micro-batch 2, 2,048 tokens, peak of a GPU
        (tuned(options=LORA + "compile=on"), 16.2, 0.25),
        (tuned(options=LORA + "quantized_base=4bit;act_cpu_offload=on;compile=on"), 7.4, 0.1),
        (tuned(gpu="a6000", optimizer="paged_adamw_8bit", options="act_ckpt=full"), 37.4, 0.05),
        (tuned(gpu="a6000", options="lora=on;act_ckpt=off;compile=on"), 30.3, 0.25),
        (tuned(**LARGE, options=LORA + "lora_rank=16;compile=on"), 27.6, 0.1),
        (tuned(**LARGE, options="act_ckpt=full;offload_param=cpu"), 13.9, 0.1),
    ],
)
def test_fine_tuning_takes_what_its_public_record_says(
    asked: TrainingJob, gib: float, error: float
) -> None:
    found = fits(asked)
    assert found.ok
    assert found.need_bytes / GIB == pytest.approx(gib, rel=error)


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        (tuned("llama2-7b", batch_size=1, seq_len=256, optimizer="galore_adamw_8bit"), False),
        (
            tuned("llama2-7b", batch_size=1, seq_len=256, optimizer="galore_adamw_8bit_layerwise"),
            True,  # arXiv 2403.03507: a 7B on 24 GB
        ),
        (
            tuned(
                "llama3-70b",
                gpus=2,
                batch_size=1,
                seq_len=512,
                sharding="fsdp",
                options=LORA + "quantized_base=4bit",
            ),
            True,  # axolotl's README: QLoRA and FSDP, two GPUs
        ),
        # peft's README: full fine-tuning of 7 and 12 billion in FP32 is out of memory, LoRA is not
        (tuned("bloom-7b1", gpu="a100-sxm4-80gb", precision="fp32", seq_len=64), False),
        (tuned("t5-11b", gpu="a100-sxm4-80gb", precision="fp32", seq_len=64), False),
        (
            tuned("bloom-7b1", gpu="a100-sxm4-80gb", precision="fp32", seq_len=64, options="lora"),
            True,
        ),
        (tuned("t5-11b", gpu="a100-sxm4-80gb", precision="fp32", seq_len=64, options="lora"), True),
    ],
)
def test_what_lowers_the_need_counts_before_a_job_is_called_impossible(
    asked: TrainingJob, runs: bool
) -> None:
    assert fits(asked).ok is runs


def test_a_full_training_of_seven_billion_on_one_gpu_is_told_of_adapters() -> None:
    told = [one.text for one in fits(tuned("llama2-7b", precision="amp")).advice]
    assert "training adapters on a base in 4 bits (QLoRA) with activation checkpointing" in told


def test_a_job_that_fits_needs_no_advice() -> None:
    assert fits(job(batch_size=8)).advice == ()


def test_a_smaller_batch_is_the_largest_that_fits() -> None:
    (batch,) = (dict(a.changes)["batch_size"] for a in fits(job()).advice if "a batch of" in a.text)
    assert fits(job(batch_size=batch)).ok
    assert not fits(job(batch_size=batch + 1)).ok


def test_a_slice_of_a_gpu_holds_less() -> None:
    small = job(gpu="a100-sxm4-80gb", batch_size=64)
    assert fits(small).ok
    assert not fits(small, have_bytes=5 * GIB).ok


@given(have=st.floats(2 * GIB, 200 * GIB), margin=st.floats(0, 0.9))
def test_need_is_compared_with_what_is_left_of_the_memory(have: float, margin: float) -> None:
    asked = job(batch_size=32)
    found = fits(asked, margin, have_bytes=have)
    memory = memory_of(asked)
    assert found.need_bytes == memory.allocated_bytes
    assert found.have_bytes == have - memory.framework_bytes
    assert found.ok == (found.need_bytes <= found.have_bytes * (1 - margin))


@pytest.mark.parametrize("margin", [-0.1, 1.0])
def test_a_margin_is_a_share(margin: float) -> None:
    with pytest.raises(JobError, match="margin"):
        fits(job(), margin)


def test_asking_again_takes_less_than_a_millisecond() -> None:
    asked = job(batch_size=64)
    fits(asked)
    assert min(timeit.repeat(lambda: fits(asked), number=10, repeat=5)) / 10 < 1e-3
