"""Precision words: what people write means one policy, and a wrong word is told what is right."""

from __future__ import annotations

import pytest

from predictor.errors import JobError
from predictor.job.precision import ALIASES, Dtype, Precision, parse_precision


@pytest.mark.parametrize("precision", Precision)
def test_every_policy_is_called_by_its_own_name(precision: Precision) -> None:
    for text in (precision.value, precision.value.upper(), precision.value.replace("_", "-")):
        assert parse_precision(f" {text} ") is precision


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("amp", Precision.MIXED_FP16_FP32),
        ("--fp16", Precision.MIXED_FP16_FP32),
        ("16-mixed", Precision.MIXED_FP16_FP32),
        ("O1", Precision.MIXED_FP16_FP32),
        ("--bf16", Precision.MIXED_BF16_FP32),
        ("bf16-mixed", Precision.MIXED_BF16_FP32),
        ("fp16", Precision.FP16),
        ("bf16", Precision.BF16),
        ("half", Precision.FP16),
        ("O0", Precision.FP32),
        ("float32", Precision.FP32),
        ("fp8", Precision.MIXED_FP8_BF16),
    ],
)
def test_flags_of_training_scripts(text: str, policy: Precision) -> None:
    assert parse_precision(text) is policy


def test_aliases_are_written_as_they_are_compared() -> None:
    assert all(parse_precision(alias) is policy for alias, policy in ALIASES.items())
    assert not {p.value for p in Precision} & ALIASES.keys()


@pytest.mark.parametrize(("text", "near"), [("mxpf8", "mxfp8"), ("flaot16", "float16")])
def test_a_misspelt_word_is_told_the_nearest(text: str, near: str) -> None:
    with pytest.raises(JobError, match=f"expected one of {near}, "):
        parse_precision(text)


@pytest.mark.parametrize("text", ["", "fp64", "fp", "mixed_fp16_bf16", "1.6"])
def test_unknown_word_names_field_value_and_what_is_accepted(text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_precision(text)
    error = caught.value
    assert (error.field, error.value) == ("precision", text)
    accepted = error.expected.removeprefix("expected one of ").split(", ")
    assert {parse_precision(word) for word in accepted} >= set(Precision) - {
        Precision.MIXED_FP8_FP16
    }


def test_formats_of_the_policies() -> None:
    assert Precision.TF32.matmul_dtype is Dtype.TF32
    assert Precision.TF32.activation_dtype is Dtype.FP32
    assert Precision.MIXED_FP8_BF16.matmul_dtype is Dtype.FP8
    assert Precision.MIXED_FP8_BF16.activation_dtype is Dtype.BF16
    assert not Precision.BF16.mixed
    assert {p for p in Precision if p.mixed} == {p for p in Precision if "mixed" in p.value}


def test_bytes_of_one_element() -> None:
    assert {d: d.bytes for d in Dtype} == {
        Dtype.FP32: 4,
        Dtype.TF32: 4,
        Dtype.FP16: 2,
        Dtype.BF16: 2,
        Dtype.FP8: 1,
        Dtype.FP4: 1,  # two copies of half a byte
    }
