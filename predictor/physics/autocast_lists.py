"""What torch.autocast runs in FP32 whatever its inputs, by torch's names of the functions.

The lists are those of torch 2.13 (ATen/autocast_mode.h for CUDA, autocast_mode.cpp for CPU; in
words at docs.pytorch.org/docs/stable/amp.html, "Autocast Op Reference"). What they do not name runs
in the widest format of its inputs, in place in the format of its target.
"""

from __future__ import annotations

from profiles.gpus import CPU, Gpu

STORED = "stored"  # origin of weights, inputs and buffers: FP32 under every mixed policy

# Their inputs are cast by a kernel of its own.
CUDA_CAST = frozenset(
    {
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "pow",
        "reciprocal",
        "rsqrt",
        "sinh",
        "softplus",
        "tan",
        "layer_norm",
        "native_layer_norm",
        "rms_norm",
        "group_norm",
        "cdist",
        "cosine_similarity",
        "dist",
        "frobenius_norm",
        "logsumexp",
        "nuclear_norm",
        "pdist",
        "renorm",
        "binary_cross_entropy_with_logits",
        "cosine_embedding_loss",
        "hinge_embedding_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "nll_loss",
        "nll_loss2d",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "_upsample_bicubic2d_aa",
        "_upsample_bilinear2d_aa",
        "_upsample_nearest_exact1d",
        "_upsample_nearest_exact2d",
        "_upsample_nearest_exact3d",
        "upsample_bicubic2d",
        "upsample_bilinear2d",
        "upsample_linear1d",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_trilinear3d",
    }
)
# Their kernel reads the lower format and writes FP32.
CUDA_WIDEN = frozenset(
    {
        "cumprod",
        "cumsum",
        "linalg_matrix_norm",
        "linalg_vector_norm",
        "log_softmax",
        "norm",
        "prod",
        "softmax",
        "sum",
    }
)
CPU_CAST = frozenset(
    {
        "_lu_with_info",
        "adaptive_avg_pool3d",
        "adaptive_max_pool3d",
        "avg_pool3d",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cdist",
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "cosine_embedding_loss",
        "cross_entropy_loss",
        "ctc_loss",
        "fake_quantize_per_tensor_affine",
        "fft_fft",
        "fft_fft2",
        "fft_fftn",
        "fft_hfft",
        "fft_ifft",
        "fft_ifft2",
        "fft_ifftn",
        "fft_ihfft",
        "fft_irfft",
        "fft_irfft2",
        "fft_irfftn",
        "fft_rfft",
        "fft_rfft2",
        "fft_rfftn",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "geqrf",
        "grid_sampler",
        "grid_sampler_2d",
        "_grid_sampler_2d_cpu_fallback",
        "grid_sampler_3d",
        "hinge_embedding_loss",
        "huber_loss",
        "inverse",
        "kl_div",
        "l1_loss",
        "linalg_cholesky",
        "linalg_cholesky_ex",
        "linalg_cond",
        "linalg_eig",
        "linalg_eigh",
        "linalg_eigvals",
        "linalg_eigvalsh",
        "linalg_householder_product",
        "linalg_inv",
        "linalg_inv_ex",
        "linalg_lstsq",
        "linalg_matrix_rank",
        "linalg_qr",
        "linalg_solve",
        "linalg_svd",
        "linalg_svdvals",
        "linalg_tensorinv",
        "linalg_tensorsolve",
        "lu_solve",
        "margin_ranking_loss",
        "max_pool3d",
        "max_unpool2d",
        "max_unpool3d",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_margin_loss_forward",
        "nanquantile",
        "nll_loss",
        "nll_loss2d",
        "orgqr",
        "ormqr",
        "pinverse",
        "poisson_nll_loss",
        "polar",
        "prod",
        "qr",
        "quantile",
        "reflection_pad1d",
        "reflection_pad2d",
        "replication_pad1d",
        "replication_pad2d",
        "replication_pad3d",
        "smooth_l1_loss",
        "soft_margin_loss",
        "stft",
        "svd",
        "trace",
        "triangular_solve",
        "triplet_margin_loss",
        "view_as_complex",
    }
)
# What a trace sees of a listed function that calls others of its own.
_SEEN_AS = {
    "_cdist_forward": "cdist",
    "_pdist_forward": "pdist",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_fused_rms_norm": "rms_norm",
    "whole_rms_norm": "rms_norm",
    "native_group_norm": "group_norm",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss2d",
    "multilabel_margin_loss_forward": "multilabel_margin_loss",
    "max_pool3d_with_indices": "max_pool3d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "cross_entropy": "cross_entropy_loss",
}
_CUDA_WIDE = CUDA_CAST | CUDA_WIDEN | {STORED}
_CPU_WIDE = CPU_CAST | {STORED}
_LISTED = CUDA_CAST | CUDA_WIDEN | CPU_CAST


def listed_name(name: str) -> str | None:
    """The name under which a list has a function that a trace saw; None where no list has it."""
    plain = _SEEN_AS.get(name, name)
    return plain if plain in _LISTED else None


def widening(gpu: Gpu) -> frozenset[str]:
    """The functions that read the lower format and write FP32 on this device."""
    return frozenset() if gpu.kind == CPU else CUDA_WIDEN


def wide_origins(gpu: Gpu) -> frozenset[str]:
    """The origins whose results are FP32 on this device."""
    return _CPU_WIDE if gpu.kind == CPU else _CUDA_WIDE
