"""Functions that move memory in a trace: of a result of lower format, and an FP32 weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from autocast_runs import SIDE, Function  # noqa: E402

F = torch.nn.functional


def _image(h: Any) -> Any:
    return h.view(1, 1, SIDE, SIDE)


def _volume(h: Any) -> Any:
    return h.view(1, 1, 4, 4, 4)


def _of_one(name: str) -> Function:
    return lambda h, w: getattr(torch, name)(h)


UNARY = """acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan"""
POINTWISE: Mapping[str, Function] = {
    **{name: _of_one(name) for name in UNARY.split()},
    "pow": lambda h, w: torch.pow(h, 3),
    "pow_tensor": lambda h, w: torch.pow(h, h),
    "pow_scalar": lambda h, w: torch.pow(2.0, h),
    "softplus": lambda h, w: F.softplus(h),
}
WIDENING: Mapping[str, Function] = {
    "sum": lambda h, w: h.sum(),
    "sum_dim": lambda h, w: h.sum(-1),
    "prod": lambda h, w: h.prod(1),
    "cumsum": lambda h, w: h.cumsum(1),
    "cumprod": lambda h, w: h.cumprod(1),
    "norm": lambda h, w: torch.linalg.vector_norm(h, dim=1),
    "norm_p": lambda h, w: h.norm(2, 1),
    "norm_all": lambda h, w: h.norm(),
}
OTHERS: Mapping[str, Function] = {
    "resampled": lambda h, w: F.interpolate(_image(h), scale_factor=2),
    "bilinear": lambda h, w: F.interpolate(_image(h), scale_factor=2.0, mode="bilinear"),
    "logsumexp": lambda h, w: torch.logsumexp(h, 1),
    "cdist": lambda h, w: torch.cdist(h, h),
    "cosine_similarity": lambda h, w: F.cosine_similarity(h, h),
    "soft_margin": lambda h, w: F.soft_margin_loss(h, w.detach()),
    "kl_div": lambda h, w: F.kl_div(h, h, reduction="batchmean"),
    "poisson_nll": lambda h, w: F.poisson_nll_loss(h, h),
    "margin_ranking": lambda h, w: F.margin_ranking_loss(h, h, h),
    "triplet": lambda h, w: F.triplet_margin_loss(h, h, h),
    "mse": lambda h, w: F.mse_loss(h, h),
    "huber": lambda h, w: F.huber_loss(h, h),
    "softmax": lambda h, w: F.softmax(h, 1),
    "layer_norm": lambda h, w: F.layer_norm(h, (SIDE,)),
    "group_norm": lambda h, w: F.group_norm(h.view(2, 4, SIDE), 2),
    "cross_entropy": lambda h, w: F.cross_entropy(
        h, torch.zeros(SIDE, dtype=torch.long, device=h.device)
    ),
    # in the format of their inputs
    "relu": lambda h, w: F.relu(h),
    "gelu": lambda h, w: F.gelu(h),
    "tanh": lambda h, w: h.tanh(),
    "silu": lambda h, w: F.silu(h),
    "mean": lambda h, w: h.mean(1),
    "sqrt": lambda h, w: h.sqrt(),
    "var": lambda h, w: h.var(1),
    "amax": lambda h, w: h.amax(1),
    "scaled": lambda h, w: 2 * h,
    "elu": lambda h, w: F.elu(h),
    "erf": lambda h, w: torch.erf(h),
    "flip": lambda h, w: h.flip(0),
    "dropout": lambda h, w: F.dropout(h),
    "where": lambda h, w: torch.where(h > 0, h, 0.0),
    "masked_fill": lambda h, w: h.masked_fill(h > 0, -1.0),
    "sigmoid": lambda h, w: h.sigmoid(),
    "max_pool2d": lambda h, w: F.max_pool2d(_image(h), 2),
    "sin": lambda h, w: h.sin(),
    "batch_norm": lambda h, w: F.batch_norm(h, None, None, w.diag(), w.diag(), training=True),
    "prelu": lambda h, w: F.prelu(h, w.diag()),
    "prelu_stored": lambda h, w: F.prelu(w, w.diag()),
    # promoted to the widest
    "add_weight": lambda h, w: h + w,
    "scaled_weight": lambda h, w: h * w.mean(),
    "cat": lambda h, w: torch.cat([h, w]),
    "cat_low": lambda h, w: torch.cat([h, h]),
    "stack": lambda h, w: torch.stack([h, w]),
    "addcmul": lambda h, w: torch.addcmul(h, w, h),
    "addcmul_low": lambda h, w: torch.addcmul(h, h, h),
    "atan2": lambda h, w: torch.atan2(h, w),
    "addcdiv": lambda h, w: torch.addcdiv(h, h, w),
    "lerp": lambda h, w: torch.lerp(h, h, 0.5),
    "cross": lambda h, w: torch.cross(h.narrow(1, 0, 3), w.narrow(1, 0, 3), dim=1),
    "cross_low": lambda h, w: torch.cross(h.narrow(1, 0, 3), h.narrow(1, 0, 3), dim=1),
    "index_put": lambda h, w: torch.index_put(h, [_rows(h)], h),
    "scatter_add": lambda h, w: torch.scatter_add(w, 0, _zeros(h), h),
    "scatter_add_low": lambda h, w: torch.scatter_add(h, 0, _zeros(h), h),
    "grid_sample": lambda h, w: F.grid_sample(
        _image(h), h.view(1, 4, SIDE, 2), align_corners=False
    ),
    "grid_sample_weight": lambda h, w: F.grid_sample(
        _image(h), w.view(1, 4, SIDE, 2), align_corners=False
    ),
    # in place: the format of the target
    "relu_in_place": lambda h, w: torch.relu_(h + 0),
    "add_in_place": lambda h, w: (h + 0).add_(w),
    "exp_in_place": lambda h, w: (h + 0).exp_(),
    # chains
    "behind_pow": lambda h, w: torch.tanh(1 + h.pow(3)) * h,
    "behind_pow_pow": lambda h, w: h.pow(2).pow(2),
    "view_of_exp": lambda h, w: h.exp().t() + h,
    "product_behind_exp": lambda h, w: torch.relu(h.exp() @ w),
    "norm_then_add": lambda h, w: F.layer_norm(h, (SIDE,)) + h,
    # on the list of the CPU alone
    "avg_pool3d": lambda h, w: F.avg_pool3d(_volume(h), 2),
    "max_pool3d": lambda h, w: F.max_pool3d(_volume(h), 2),
    "adaptive_avg_pool3d": lambda h, w: F.adaptive_avg_pool3d(_volume(h), 2),
    "reflection": lambda h, w: F.pad(_image(h), (1, 1, 1, 1), mode="reflect"),
    "replication": lambda h, w: F.pad(_image(h), (1, 1, 1, 1), mode="replicate"),
}
EVERY: Mapping[str, Function] = {**POINTWISE, **WIDENING, **OTHERS}


def _zeros(h: Any) -> Any:
    return torch.zeros(SIDE, SIDE, dtype=torch.long, device=h.device)


def _rows(h: Any) -> Any:
    return torch.zeros(SIDE, dtype=torch.long, device=h.device)
