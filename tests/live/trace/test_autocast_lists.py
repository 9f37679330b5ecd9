"""What the autocast pass decides for a kind of operator is what torch's own autocast does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from predictor.graphs.operator import Kind  # noqa: E402
from predictor.physics.autocast import (  # noqa: E402  # noqa: E402
    CPU_CAST,
    CUDA_CAST,
    CUDA_WIDEN,
    FULL_PRECISION,
    LOWER_PRECISION,
)

F = torch.nn.functional
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
# What torch's CUDA lists call the operators of a kind; layers of one GPU kernel by their function.
NAMES = {
    Kind.GEMM: ("mm", "addmm", "linear", "matmul"),
    Kind.BATCHED_GEMM: ("bmm", "baddbmm"),
    Kind.CONV: ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose2d"),
    Kind.ATTENTION: ("scaled_dot_product_attention",),
    Kind.RNN: ("lstm_cell", "gru_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
    Kind.LAYER_NORM: ("layer_norm", "native_layer_norm", "rms_norm"),
    Kind.GROUP_NORM: ("group_norm",),
    Kind.SOFTMAX: ("softmax",),
    Kind.LOSS: (
        "log_softmax",
        "nll_loss",
        "nll_loss2d",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "kl_div",
        "binary_cross_entropy_with_logits",
    ),
    Kind.BATCH_NORM: ("batch_norm", "native_batch_norm", "cudnn_batch_norm"),
    Kind.INSTANCE_NORM: ("instance_norm",),
    Kind.POOL: ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"),
    Kind.ELEMENTWISE: ("relu", "gelu", "silu", "tanh", "sigmoid", "add", "mul", "dropout", "cat"),
}
# Promoted to the widest of their inputs, as is all that no list names.
PROMOTED = {
    "cuda": """addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot
        vdot""",
    "cpu": "cat index_copy stack",
}
LOWER = """_addmm_activation _convolution _native_multi_head_attention
    _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell addbmm
    addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d convolution cudnn_convolution
    cudnn_convolution_transpose einsum gru_cell linalg_multi_dot linalg_vecdot linear
    lstm_cell matmul mkldnn_rnn_layer mm mv prelu rnn_relu_cell rnn_tanh_cell
    scaled_dot_product_attention"""
REFUSED = {"binary_cross_entropy"}  # by CUDA autocast, with an error
LISTED = [(kind, name) for kind, names in NAMES.items() for name in names]


def policies() -> dict[str, str]:
    """Operator -> ``lower`` or ``fp32``, read off the macros that make torch's CUDA lists."""
    found: dict[str, str] = {}
    macros = {"LOWER_PRECISION_FP": "lower", "FP32": "fp32", "FP32_SET_OPT_DTYPE": "fp32"}
    for macro, policy in macros.items():
        body = re.search(rf"define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*)", HEADER.read_text())
        assert body is not None
        found |= dict.fromkeys(re.findall(r"_\((\w+)", body[1]), policy)
    return found


@pytest.mark.parametrize(("kind", "name"), LISTED, ids=[f"{k}-{n}" for k, n in LISTED])
def test_a_kind_has_the_policy_of_torchs_cuda_lists(kind: Kind, name: str) -> None:
    ours = "lower" if kind in LOWER_PRECISION else "fp32" if kind in FULL_PRECISION else None
    assert policies().get(name) == ours


def registered(key: str) -> set[str]:
    """What torch itself has registered for autocast on a device, in its own words."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.partition("::")[2].partition(".")[0] for name in names}


def test_the_list_of_a_gpu_is_all_that_torch_runs_in_fp32_on_cuda() -> None:
    fp32 = {name for name, policy in policies().items() if policy == "fp32"} | {"norm"}
    assert fp32 == CUDA_CAST | CUDA_WIDEN
    others = {*LOWER.split(), *PROMOTED["cuda"].split()} | REFUSED
    assert registered("AutocastCUDA") - others == fp32


def test_the_list_of_a_cpu_is_all_that_torch_runs_in_fp32_there() -> None:
    others = {*LOWER.split(), *PROMOTED["cpu"].split()}
    assert registered("AutocastCPU") - others == CPU_CAST


def test_kinds_that_run_in_fp32_are_on_the_list() -> None:
    followed = {name for kind, names in NAMES.items() if kind in FULL_PRECISION for name in names}
    assert followed <= CUDA_CAST | CUDA_WIDEN


X, W, C = torch.ones(4, 8), torch.ones(8, 8), torch.ones(2, 8, 6, 6)
ON_CPU: list[tuple[Kind, Callable[[], Any]]] = [
    (Kind.GEMM, lambda: F.linear(X, W)),
    (Kind.BATCHED_GEMM, lambda: torch.bmm(X[None], W[None])),
    (Kind.CONV, lambda: F.conv2d(C, torch.ones(8, 8, 3, 3))),
    (Kind.ATTENTION, lambda: F.scaled_dot_product_attention(C, C, C)),
    (Kind.LOSS, lambda: F.mse_loss(X.bfloat16(), X.bfloat16())),
    (Kind.BATCH_NORM, lambda: F.batch_norm(C.bfloat16(), None, None, training=True)),
    (Kind.POOL, lambda: F.max_pool2d(C.bfloat16(), 2)),
    (Kind.ELEMENTWISE, lambda: F.gelu(X.bfloat16())),
    (Kind.EMBEDDING, lambda: F.embedding(torch.zeros(4, dtype=torch.long), W)),
]
KEPT = {Kind.EMBEDDING: torch.float32}  # on no list: the format of its table


@pytest.mark.parametrize(("kind", "run"), ON_CPU, ids=[k.value for k, _ in ON_CPU])
def test_a_kind_runs_in_the_format_that_torch_runs_it_in(
    kind: Kind, run: Callable[[], Any]
) -> None:
    """Other kinds keep the format of their input: here the lower one, FP32 of a table."""
    with torch.autocast("cpu", torch.bfloat16):
        dtype = run().dtype
    expected = torch.float32 if kind in FULL_PRECISION else KEPT.get(kind, torch.bfloat16)
    assert dtype == expected
