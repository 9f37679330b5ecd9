"""Operators of torch that move data and compute little: priced by what they read and write."""

from __future__ import annotations

# Beside all that torch marks as pointwise. In-place forms (``add_``) are the same operator.
LITERAL = frozenset(
    {
        # copies and changes of layout
        "_to_copy", "cat", "clone", "constant_pad_nd", "contiguous", "copy", "flip", "repeat",
        "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "roll", "stack", "tril",
        "triu", "pixel_shuffle", "pixel_unshuffle", "im2col", "col2im", "split_with_sizes_copy",
        "repeat_interleave", "slice_scatter", "select_scatter", "slice_backward",
        "select_backward", "_assert_async", "_local_scalar_dense", "_fused_dropout",
        # fills and random numbers
        "arange", "bernoulli", "fill", "full", "full_like", "linspace", "new_full", "new_ones",
        "new_zeros", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randn",
        "randn_like", "random", "randperm", "scalar_tensor", "uniform", "zero", "zeros",
        "zeros_like", "eye", "exponential",
        # gathers and scatters
        "gather", "index", "index_add", "index_copy", "index_put", "index_select", "masked_fill",
        "masked_scatter", "scatter", "scatter_add", "scatter_reduce", "take", "embedding_renorm",
        "_index_put_impl", "_unsafe_index", "_unsafe_masked_index", "grid_sampler_2d",
        # reductions
        "all", "amax", "amin", "any", "argmax", "argmin", "cumprod", "cumsum", "logsumexp", "max",
        "min", "norm", "linalg_vector_norm", "prod", "std", "std_mean", "sum", "var", "var_mean",
        "topk", "sort", "argsort", "logcumsumexp", "count_nonzero", "aminmax", "max_dim",
        # resampling
        "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d",
        "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d",
        "_upsample_bilinear2d_aa", "_upsample_nearest_exact2d",
        # recurrent cells, activations that torch does not mark
        "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "glu", "log_sigmoid_forward", "prelu",
        "_prelu_kernel", "rrelu_with_noise", "hardswish", "hardsigmoid", "hardtanh", "celu",
        "cdist", "_cdist_forward", "_conj_physical", "bucketize", "searchsorted",
        "floor_divide", "histc", "bincount", "_weight_norm_interface",
    }
)  # fmt: skip

# Counted by the log-softmax in front of them.
PART_OF_LOSS = frozenset({"nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss2d"})
