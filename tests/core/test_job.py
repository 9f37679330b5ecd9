"""A training job: complete when made, or an error that names field, value and what is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob


def job(**changes: Any) -> TrainingJob:
    fields: dict[str, Any] = {
        "model": "resnet50",
        "precision": Precision.FP32,
        "gpu": "a100-sxm4-80gb",
        "batch_size": 32,
    }
    return TrainingJob(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": -8}, "gpus"),
        ({"gpus": 1.5}, "gpus"),
        ({"gpus": True}, "gpus"),
        ({"gpus": None}, "gpus"),
        ({"gpus": float("nan")}, "gpus"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": "32"}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"global_batch_size": 40}, "global_batch_size"),
        ({"global_batch_size": 64, "grad_accum": 3}, "grad_accum"),
        ({"grad_accum": 0}, "grad_accum"),
        ({"seq_len": -1}, "seq_len"),
        ({"steps": 0}, "steps"),
        ({"steps": 10, "epochs": 1.0}, "steps"),
        ({"epochs": 0.0}, "epochs"),
        ({"epochs": float("inf")}, "epochs"),
        ({"epochs": float("nan")}, "epochs"),
        ({"dataset_size": 0}, "dataset_size"),
        ({"image_size": 0}, "image_size"),
        ({"image_size": (224, -1)}, "image_size"),
        ({"image_size": (1, 2, 3, 4)}, "image_size"),
        ({"image_size": ()}, "image_size"),
        ({"sharding": "zero4"}, "sharding"),
        ({"precision": "fp64"}, "precision"),
        ({"gpu": "a1000000"}, "gpu"),
        ({"gpus": 6, "tensor_parallel": 4}, "gpus"),
        ({"gpus": 8, "tensor_parallel": 4, "pipeline_parallel": 4}, "gpus"),
        ({"batch_size": None, "global_batch_size": 100, "gpus": 8}, "global_batch_size"),
        ({"batch_size": None, "global_batch_size": 16, "grad_accum": 3}, "global_batch_size"),
    ],
)
def test_impossible_field_is_named_with_its_value(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(JobError) as caught:
        job(**changes)
    error = caught.value
    assert error.field == field
    assert repr(error.value) == repr(changes.get(field, 32))
    assert error.expected
    said = f"no {field}" if error.value is None else f"invalid {field}={error.value!r}"
    assert str(error).startswith(f"{said}; {error.expected}")


def test_unknown_gpu_is_told_the_nearest() -> None:
    with pytest.raises(JobError, match="h100-sxm5-80gb"):
        job(gpu="h100-sxm5-81gb")


@pytest.mark.parametrize(
    ("gpu", "runs"), [("v100", False), ("a100", False), ("h100", True), ("rtx4090", True)]
)
def test_fp8_needs_fp8_tensor_cores(gpu: str, runs: bool) -> None:
    if runs:
        assert job(gpu=gpu, precision="fp8").precision is Precision.MIXED_FP8_BF16
    else:
        with pytest.raises(JobError, match="no FP8 tensor cores"):
            job(gpu=gpu, precision="fp8")


def test_spellings_of_one_job_are_one_job() -> None:
    plain = job(
        precision="amp",
        gpu="A100-SXM4-80GB",
        image_size=224,
        gpus=8.0,
        options="xla;channels_last=true",
        variant={"layers": 6},
    )
    exact = job(
        precision=Precision.MIXED_FP16_FP32,
        gpu="a100-sxm4-80gb",
        image_size=(224, 224),
        gpus=8,
        options={"channels_last": "on", "XLA": True},
        variant="layers=6",
    )
    assert plain == exact
    assert hash(plain) == hash(exact)
    assert plain.software == exact.software
    assert plain.software.compiled


def test_a_changed_job_is_validated_again() -> None:
    with pytest.raises(JobError, match="FP8"):
        job().but(precision=Precision.MIXED_FP8_BF16)
    assert job(gpus=8).but(gpus=16, gpus_per_node=8).nodes == 2


def test_nodes_are_filled() -> None:
    assert [job(gpus=n, gpus_per_node=8).nodes for n in (1, 8, 9, 16)] == [1, 1, 2, 2]
    assert job(gpus=2, gpus_per_node=8).gpus_per_node == 2


SPLITS = st.sampled_from((1, 2, 4))


@given(
    batch=st.integers(1, 512),
    ranks=st.integers(1, 64),
    accum=st.integers(1, 8),
    tensor=SPLITS,
    pipeline=SPLITS,
)
def test_a_batch_per_gpu_and_the_global_batch_it_makes_are_one_job(
    batch: int, ranks: int, accum: int, tensor: int, pipeline: int
) -> None:
    split: dict[str, Any] = {
        "gpus": ranks * tensor * pipeline,
        "grad_accum": accum,
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
    }
    own = job(batch_size=batch, **split)
    whole = job(batch_size=None, global_batch_size=own.step_samples, **split)
    both = {**split, "grad_accum": None, "global_batch_size": own.step_samples}
    assert job(batch_size=batch, **both) == own
    assert own.data_parallel == whole.data_parallel == ranks
    assert own.step_samples == whole.step_samples == batch * ranks * accum
    assert own.micro_batch_size == whole.micro_batch_size == batch
