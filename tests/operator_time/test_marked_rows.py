"""Rows a profiler marks are kinds of their own on a GPU, and teach nothing to those they name."""

from __future__ import annotations

import pytest

from predictor.graphs.operator import Kind
from predictor.physics.operator_time.samples import samples_of
from predictor.physics.operator_time.work import KINDS
from profiles.gpus import gpus
from profiles.storage import OPERATOR_COLUMNS
from profiles.tables import operator_table

V100 = "v100-sxm2-16gb"


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
