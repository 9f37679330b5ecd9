"""The autocast pass of a CPU follows torch.autocast("cpu")."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from predictor.graphs.operator import Kind
from predictor.physics.autocast import FULL_PRECISION_CPU, LOWER_PRECISION

X, W = torch.rand(8, 16), torch.rand(16, 16)
Q = X[None, None]
LABELS = torch.zeros(8, dtype=torch.long)
LOW = torch.bfloat16

CALLS: dict[Kind, Callable[[], torch.Tensor]] = {
    Kind.GEMM: lambda: functional.linear(X, W),
    Kind.BATCHED_GEMM: lambda: torch.bmm(X[None], W[None]),
    Kind.CONV: lambda: functional.conv1d(X[None], torch.rand(4, 8, 3)),
    Kind.ATTENTION: lambda: functional.scaled_dot_product_attention(Q, Q, Q),
    Kind.SOFTMAX: lambda: torch.softmax(X.to(LOW), 1),
    Kind.LAYER_NORM: lambda: functional.layer_norm(X.to(LOW), (16,)),
    Kind.GROUP_NORM: lambda: functional.group_norm(X.to(LOW), 4),
    Kind.BATCH_NORM: lambda: functional.batch_norm(X.to(LOW), None, None, training=True),
    Kind.LOSS: lambda: functional.cross_entropy(X.to(LOW), LABELS),
    Kind.EMBEDDING: lambda: functional.embedding(LABELS, W),
}


@pytest.mark.parametrize("kind", CALLS, ids=str)
def test_the_format_of_a_result_is_that_of_torch(kind: Kind) -> None:
    with torch.autocast("cpu", dtype=LOW):
        real = CALLS[kind]().dtype
    assert (real is torch.float32) == (kind in FULL_PRECISION_CPU)
    if kind in LOWER_PRECISION:
        assert real is LOW
