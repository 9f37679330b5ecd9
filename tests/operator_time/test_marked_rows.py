"""Rows a profiler marks are kinds of their own on a GPU, and teach nothing to those they name."""

from __future__ import annotations

import pytest

from predictor.graphs.operator import Kind
from predictor.physics.operator_time.samples import samples_of
from predictor.physics.operator_time.work import KINDS
from profiles.gpus import gpus
from profiles.storage import OPERATOR_COLUMNS
from profiles.tables import operator_table

V100, H100 = "v100-sxm2-16gb", "h100-sxm5-80gb"


def seconds(format: str, params: str, time_us: str) -> list[float]:
    """Of a product, beside one so small that it tells what a launch takes."""
    row = ("trtllm", "gemm", "fwd", format, "4096 4096 8192 1", params, time_us, "")
    least = ("trtllm", "gemm", "fwd", "bf16", "1 128 128 1", "b_t=T", "2", "")
    rows = (("r", "s", "p", *row), ("l", "s", "p", *least))
    columns = dict(zip(OPERATOR_COLUMNS, zip(*rows, strict=True), strict=True))
    table = operator_table([H100, H100], columns)
    return [float(s) for s in samples_of(table, {H100: gpus()[H100]}).seconds]


def test_what_a_linear_layer_casts_is_no_part_of_its_product() -> None:
    layer, h100 = "b_t=T;source_dtype=fp8;kernel=torch_flow", gpus()[H100]
    cast_s = 2 * 5e-6 + 2 * 4096 * 8192 / (3.0 * h100.sms * h100.boost_clock_hz)
    (alone,), (timed,) = seconds("fp8", "b_t=T", "400"), seconds("fp8", layer, "400")
    assert alone - timed == pytest.approx(cast_s)
    assert seconds("bf16", layer, "400") == [alone]
    assert seconds("fp8", layer, str(1.4 * cast_s * 1e6)) == [2e-6]  # mostly the cast: left out


def kind_of(op: str, shape: str, params: str) -> Kind:
    row = ("r", "s", "p", "torch", op, "fwd", "fp32", shape, params, "3", "")
    columns = {name: [cell] for name, cell in zip(OPERATOR_COLUMNS, row, strict=True)}
    (kind,) = samples_of(operator_table([V100], columns), {V100: gpus()[V100]}).work.kind
    return KINDS[int(kind)]


@pytest.mark.parametrize(
    ("op", "shape", "params", "kind"),
    [
        ("batchnorm", "8 64 16 16 nan", "train;layout=nchw", Kind.BATCH_NORM),
        ("batchnorm", "8 64 16 16 nan", "kind=groupnorm;groups=8", Kind.GROUP_NORM),
        ("softmax", "65536 64 1024", "", Kind.SOFTMAX),
        ("softmax", "65536 64 1024", "kind=log_softmax", Kind.LOSS),
        ("elementwise", "65536 nan nan", "func=mul;operands=1", Kind.ELEMENTWISE),
        ("elementwise", "65536 nan nan", "func=foreach_mul;operands=1;tensors=4", Kind.OPTIMIZER),
        ("elementwise", "65536 nan nan", "func=fused_adamw;operands=6;tensors=4", Kind.OPTIMIZER),
    ],
)
def test_a_mark_decides_the_kind(op: str, shape: str, params: str, kind: Kind) -> None:
    assert kind_of(op, shape, params) == kind
