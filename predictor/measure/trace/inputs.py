"""What a network is fed with: shapes in which ``B`` and ``S`` stand for batch and sequence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import JobError

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dims>[\dS,x ]*)(?::(?P<dtype>\w+))?")
_ACCEPTED = (
    "[NAME=]SIZES[:DTYPE] of one sample, such as 3,224,224 or input_ids=S:int64, where S is the"
    " sequence length"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One argument of ``forward``: sizes with the batch first; 'B' and 'S' are symbols."""

    sizes: tuple[int | str, ...]
    dtype: str = "float32"
    name: str | None = None

    def shape(self, batch: int, seq_len: int) -> tuple[int, ...]:
        """The sizes for one batch size and sequence length."""
        symbols = {"B": batch, "S": seq_len}
        return tuple(symbols[s] if isinstance(s, str) else s for s in self.sizes)

    def once(self, seq_len: int) -> Input:
        """The same input with the first axis alone of those that follow the sequence length."""
        first = self.sizes.index("S") if "S" in self.sizes else len(self.sizes)
        rest = (seq_len if size == "S" else size for size in self.sizes[first + 1 :])
        return replace(self, sizes=(*self.sizes[: first + 1], *rest))


def parsed(spec: str, dtype: str) -> Input:
    """An input as the command line states it; raises JobError."""
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise JobError("input", spec, _ACCEPTED)
    words = [w for w in re.split(r"[,x ]+", match["dims"]) if w]
    sizes = tuple("S" if word == "S" else int(word) for word in words)
    if 0 in sizes:
        raise JobError("input", spec, "sizes are at least 1")
    given = match["dtype"] or dtype
    if given not in DTYPES:
        raise JobError("dtype", given, f"one of {', '.join(DTYPES)}")
    return Input(sizes=("B", *sizes), dtype=given, name=match["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Inputs, and the batch size they came with.

    ``once`` are the same with one axis each for the sequence, where another is as long by chance.
    """

    inputs: tuple[Input, ...]
    once: tuple[Input, ...]
    batch_size: int


def of_examples(examples: object, seq_len: int | None) -> Examples:
    """Inputs like these tensors, batch first; sizes equal to ``seq_len`` are the sequence.

    Raises JobError where they have no batch size in common, or no size that is ``seq_len``.
    """
    named: Iterable[tuple[str | None, Any]]
    if isinstance(examples, Mapping):
        named = [(str(name), tensor) for name, tensor in examples.items()]
    else:
        several = examples if isinstance(examples, list | tuple) else (examples,)
        named = [(None, tensor) for tensor in several]
    found = tuple(_of_example(name, tensor, seq_len) for name, tensor in named)
    batches = sorted({batch for _, batch in found})
    if len(batches) != 1:
        raise JobError("example_inputs", batches, "tensors of one batch size, the first of each")
    inputs = tuple(i for i, _ in found)
    if seq_len and not any("S" in one.sizes for one in inputs):
        raise JobError("seq_len", seq_len, "a size of one of the example_inputs")
    once = tuple(one.once(seq_len or 0) for one in inputs)
    return Examples(inputs=inputs, once=once, batch_size=batches[0])


def _of_example(name: str | None, tensor: Any, seq_len: int | None) -> tuple[Input, int]:
    shape = tuple(getattr(tensor, "shape", ()))
    if not shape:
        raise JobError("example_inputs", type(tensor).__name__, "tensors with the batch first")
    rest = tuple("S" if seq_len and size == seq_len else int(size) for size in shape[1:])
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Input(sizes=("B", *rest), dtype=dtype, name=name), int(shape[0])


def image_size_of(inputs: Sequence[Input]) -> tuple[int, ...] | None:
    """Pixels of the first input that is a feature map of two or three axes."""
    for one in inputs:
        axes = one.sizes[2:]
        if one.dtype.startswith(("float", "bfloat")) and len(axes) in (2, 3) and "S" not in axes:
            return tuple(int(a) for a in axes)
    return None
