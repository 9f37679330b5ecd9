"""Classes of element-wise functions: what a CPU computes at quite different speeds."""

from __future__ import annotations

PLAIN, MATH, RANDOM, REDUCTION = range(4)
CLASS_NAMES = ("", "math", "random", "reduction")

_MATH = frozenset(
    {
        "acos", "asin", "atan", "celu", "cos", "elu", "erf", "exp", "expm1", "gelu", "glu",
        "log", "log1p", "log2", "log_sigmoid", "log_sigmoid_forward", "logit", "mish", "pow",
        "rsqrt", "sigmoid", "silu", "sin", "softplus", "swish", "tan", "tanh",
    }
)  # fmt: skip
_RANDOM = frozenset(
    {
        "bernoulli", "dropout", "exponential", "feature_dropout", "native_dropout", "normal", "rand",
        "rand_like", "randint", "randn", "randn_like", "random", "randperm", "uniform",
    }
)  # fmt: skip
_REDUCTION = frozenset(
    {"all", "amax", "amin", "any", "linalg_vector_norm", "max", "mean", "min", "norm", "sum"}
)


def function_class(name: str, *, backward: bool = False) -> int:
    """Class of a function as torch or a table names it.

    The gradient of a random function multiplies by what was drawn before.
    """
    plain = name.removesuffix("_").removesuffix("_backward")
    if plain in _MATH:
        return MATH
    if plain in _RANDOM and not backward:
        return RANDOM
    return REDUCTION if plain in _REDUCTION else PLAIN
