"""Whether FP32 products of CUDA run in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tf32(wanted: bool) -> Iterator[None]:
    """Let products and convolutions use TF32 or not, and put it back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
