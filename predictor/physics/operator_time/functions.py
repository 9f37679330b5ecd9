"""Element-wise functions by number, in classes that a CPU computes at quite different speeds."""

from __future__ import annotations

PLAIN, MATH, RANDOM, REDUCTION, LARGEST = range(5)
CLASS_NAMES = ("", "math", "random", "reduction", "largest")

# Any other function moves data and computes little.
_BY_CLASS = {
    PLAIN: ("", "add", "mul", "copy", "relu", "foreach", "fused"),
    MATH: (
        "gelu",
        "tanh",
        "sigmoid",
        "silu",
        "acos",
        "asin",
        "atan",
        "celu",
        "cos",
        "elu",
        "erf",
        "exp",
        "expm1",
        "glu",
        "log",
        "log1p",
        "log2",
        "log_sigmoid",
        "logit",
        "mish",
        "pow",
        "rsqrt",
        "sin",
        "softplus",
        "sqrt",
        "tan",
    ),
    RANDOM: (
        "dropout",
        "bernoulli",
        "exponential",
        "feature_dropout",
        "normal",
        "rand",
        "randint",
        "randn",
        "random",
        "randperm",
        "uniform",
    ),
    REDUCTION: (
        "sum",
        "all",
        "amax",
        "amin",
        "any",
        "linalg_vector_norm",
        "max",
        "mean",
        "min",
        "norm",
    ),
    LARGEST: ("max_pool",),  # the largest value of a window, ten times slower than the average
}
_ALIASES = {
    "to_copy": "copy",
    "clone": "copy",
    "cat": "copy",
    "contiguous": "copy",
    "sub": "add",
    "div": "mul",
    "threshold": "relu",
    "native_dropout": "dropout",
    "swish": "silu",
    "log_sigmoid_forward": "log_sigmoid",
    "rand_like": "rand",
    "randn_like": "randn",
}
FUNCTIONS = tuple(name for names in _BY_CLASS.values() for name in names)
CLASS_OF = tuple(number for number, names in _BY_CLASS.items() for _ in names)
_NUMBER = {name: number for number, name in enumerate(FUNCTIONS)}


def function_number(name: str, *, backward: bool = False) -> int:
    """Index into ``FUNCTIONS`` of a function as torch or a table names it, 0 for any other.

    The gradient of a random function multiplies by what was drawn before.
    """
    plain = name.removesuffix("_").removesuffix("_backward").removeprefix("_")
    kernel, _, inner = plain.partition("_")
    if kernel in ("foreach", "fused"):
        plain = "sqrt" if inner == "sqrt" else kernel
    if plain.startswith("max_pool"):
        plain = "max_pool"
    number = _NUMBER.get(_ALIASES.get(plain, plain), 0)
    return _NUMBER["mul"] if backward and CLASS_OF[number] == RANDOM else number
