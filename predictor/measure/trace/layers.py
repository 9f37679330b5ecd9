"""Layers that torch runs as one GPU kernel but takes apart elsewhere: noted whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import prod
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from .recording import CallRecording

Shapes = Sequence[tuple[int, ...]]
Whole = Callable[..., Any]


class _Whole(torch.autograd.Function):
    """Outputs of the stated shapes; notes itself, and the gradients of its inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        recording: CallRecording,
        name: str,
        facts: tuple[object, ...],
        shapes: Shapes,
        *tensors: torch.Tensor,
    ) -> Any:
        outputs = tuple(tensors[0].new_empty(shape) for shape in shapes)
        ctx.call = recording.note(name, (*tensors, *facts), outputs)
        ctx.shapes = [tuple(t.shape) for t in tensors]
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.call.reached = True
        made = (
            grads[0].new_empty(shape) if needed else None
            for shape, needed in zip(ctx.shapes, ctx.needs_input_grad[4:], strict=True)
        )
        return (None, None, None, None, *made)


class WholeLayers(TorchFunctionMode):
    """Attention, dropout, recurrent layers, their cells and two norms: one call each."""

    def __init__(self, recording: CallRecording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function, or note the layer it is."""
        name = getattr(func, "__name__", "")
        handler, given = _HANDLERS.get(name), (*args, *(kwargs or {}).values())
        if handler is None or not (given and isinstance(given[0], torch.Tensor)):
            with ExitStack() as inside:
                inside.enter_context(self._recording.origins.apart(name))
                for called in _CALLS.get(name, ()):
                    whole = partial(_HANDLERS[called], self._whole)
                    inside.enter_context(patch.object(torch.nn.functional, called, whole))
                return func(*args, **(kwargs or {}))
        return handler(self._whole, *args, **(kwargs or {}))

    def _whole(
        self, name: str, facts: tuple[object, ...], shapes: Shapes, *tensors: torch.Tensor
    ) -> Any:
        return _Whole.apply(self._recording, name, facts, shapes, *tensors)  # type: ignore[no-untyped-call]


def _attention(
    whole: Whole,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: Any,  # scale, enable_gqa
) -> Any:
    shape = (*query.shape[:-1], value.shape[-1])
    return whole("whole_attention", (int(is_causal),), (shape,), query, key, value)[0]


def _dropout(
    whole: Whole, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training or not p:
        return input
    return whole("whole_dropout", (), (tuple(input.shape),), input)[0]


def _instance_norm(whole: Whole, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    affine = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.nn.Parameter)]
    return whole("whole_instance_norm", (), (tuple(input.shape),), input, *affine)[0]


def _rms_norm(
    whole: Whole, input: torch.Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    affine, width = () if weight is None else (weight,), prod(map(int, normalized_shape))
    return whole("whole_rms_norm", (width,), (tuple(input.shape),), input, *affine)[0]


def _recurrent(gates: int) -> Whole:
    def run(
        whole: Whole,
        input: torch.Tensor,
        hx: Any,
        weights: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> Any:
        states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        batch, steps = input.shape[:2] if batch_first else input.shape[1::-1]
        directions, hidden = 2 if bidirectional else 1, weights[1].shape[1]
        drops = int(bool(dropout and train))
        kind = (gates, num_layers, int(has_biases), directions)
        facts = (*kind, steps, batch, hidden, drops)
        width = states[0].shape[-1]
        shapes = ((*input.shape[:-1], directions * width), *(tuple(s.shape) for s in states))
        return whole("whole_rnn", facts, shapes, input, *states, *weights)

    return run


def _cell(
    whole: Whole,
    input: torch.Tensor,
    hx: Any,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Any = None,
    b_hh: Any = None,
) -> Any:
    """Two products, and one kernel for all that is pointwise."""
    states = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
    gates = torch.nn.functional.linear(input, w_ih), torch.nn.functional.linear(states[0], w_hh)
    biases = [b for b in (b_ih, b_hh) if b is not None]
    shapes = [tuple(state.shape) for state in states]
    made = whole("whole_cell", (), shapes, *gates, states[-1], *biases)
    return made if len(states) > 1 else made[0]


# Functions that call others of torch.nn.functional, where torch hides those from this mode.
_CALLS: Mapping[str, Sequence[str]] = {
    "multi_head_attention_forward": ("scaled_dot_product_attention", "dropout")
}
_HANDLERS: Mapping[str, Whole] = {
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "instance_norm": _instance_norm,
    "rms_norm": _rms_norm,
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    "lstm_cell": _cell,
    "gru_cell": _cell,
}
