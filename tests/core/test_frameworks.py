"""Frameworks and their era, from the ways sources write them."""

from __future__ import annotations

import pytest

from predictor.job.frameworks import parse_framework


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pytorch", "pytorch"),
        ("PyTorch 1.7", "pytorch"),
        ("deepspeed", "pytorch"),
        ("tensorflow-1.15", "tensorflow1"),
        ("tensorflow 2.4", "tensorflow2"),
        ("mxnet", "mxnet"),
        ("paddle", "paddlepaddle"),
        ("nemo (pytorch)", "nemo"),
        ("megatron-lm pytorch", "megatron"),
        ("llm-foundry", "llm-foundry"),
        ("jax/flax", "jax"),
        ("", "pytorch"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert parse_framework(text).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("resnet50", "mxnet"),
        ("unet3d-mlperf", "mxnet"),
        ("dlrm-dcnv2", "hugectr"),
        ("bert-large", "pytorch"),
        ("gpt3-175b", "nemo"),
    ],
)
def test_one_submission_of_several_frameworks_is_told_apart_by_the_network(
    model: str, name: str
) -> None:
    assert parse_framework("mlperf: mxnet, pytorch, hugectr", model=model).name == name


def test_container_release_is_a_date() -> None:
    assert parse_framework("pytorch 21.06").date == pytest.approx(2021.5)
    assert parse_framework("pytorch", "container=nvcr.io/nvidia/pytorch:19.03-py3").date == (
        pytest.approx(2019.25)
    )


def test_the_container_decides_over_the_version() -> None:
    assert parse_framework("torch 1.0", "container=22.01").date == pytest.approx(2022 + 1 / 12)


def test_later_versions_are_later_dates() -> None:
    dates = [parse_framework(f"torch {v}").date for v in ("1.4", "1.9", "1.13", "2.1")]
    assert None not in dates
    assert dates == sorted(set(dates), key=float)  # type: ignore[arg-type]


def test_a_library_s_version_is_a_date_and_the_latest_named_counts() -> None:
    assert parse_framework("transformers 4.12").date == pytest.approx(2021.8)
    assert parse_framework("deepspeed 0.3, torch 2.1").date == pytest.approx(2023.75)


@pytest.mark.parametrize("text", ["pytorch", "", "tensorflow", "batch 19.33", "lr=20.13"])
def test_no_release_no_date(text: str) -> None:
    assert parse_framework(text).date is None
