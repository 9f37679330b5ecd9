"""The loss at the end of a traced step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...errors import GraphError, JobError

Loss = Callable[[Any], torch.Tensor]
NAMES = ("auto", "cross_entropy", "mse", "bce", "output", "sum")


def loss_named(name: str) -> Loss:
    """The loss of a name; raises JobError."""
    if name not in NAMES:
        raise JobError("loss", name, f"{', '.join(NAMES)}, or a function as package.module:name")
    return _LOSSES[name]


def logits(output: Any) -> tuple[torch.Tensor, ...]:
    """What a loss is computed on: outputs that name themselves logits, else the first one."""
    if isinstance(output, Mapping):
        named = [v for k, v in output.items() if "logits" in str(k)]
        found = [t for t in _tensors(named) if _trained(t)]
        if found:
            return tuple(found)
    first = next((t for t in _tensors([output]) if _trained(t)), None)
    if first is None:
        raise GraphError("the network returns no tensor with a gradient; give a loss of its own")
    return (first,)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            yield from _tensors(value.values())
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _trained(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.requires_grad


def _cross_entropy(output: Any) -> torch.Tensor:
    """Over the classes of every output: the last axis of two or three, else the second."""
    return torch.stack([_one_cross_entropy(t) for t in logits(output)]).sum()


def every_cross_entropy(output: Any) -> torch.Tensor:
    """Over the classes of every output there is: those of auxiliary heads too."""
    found = [t for t in _tensors([output]) if _trained(t)]
    return torch.stack([_one_cross_entropy(t) for t in found]).sum()


def _one_cross_entropy(scores: torch.Tensor) -> torch.Tensor:
    if scores.dim() < 2:
        return torch.nn.functional.mse_loss(scores, torch.zeros_like(scores))
    if scores.dim() == 3:
        scores = scores.reshape(-1, scores.shape[-1])
    shape = (scores.shape[0], *scores.shape[2:])
    target = torch.empty(shape, dtype=torch.long, device=scores.device)
    return torch.nn.functional.cross_entropy(scores, target)


def _auto(output: Any) -> torch.Tensor:
    own = _own(output)
    return _cross_entropy(output) if own is None else own


def _output(output: Any) -> torch.Tensor:
    own = _own(output)
    if own is None:
        raise GraphError("loss 'output' needs a network that returns its loss")
    return own


def _own(output: Any) -> torch.Tensor | None:
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    if loss is None and isinstance(output, torch.Tensor) and output.dim() == 0:
        loss = output
    return loss if isinstance(loss, torch.Tensor) and loss.requires_grad else None


def _mse(output: Any) -> torch.Tensor:
    (first, *_) = logits(output)
    return torch.nn.functional.mse_loss(first, torch.empty_like(first))


def _bce(output: Any) -> torch.Tensor:
    (first, *_) = logits(output)
    return torch.nn.functional.binary_cross_entropy_with_logits(first, torch.empty_like(first))


def _sum(output: Any) -> torch.Tensor:
    return torch.stack([t.sum() for t in logits(output)]).sum()


_LOSSES: Mapping[str, Loss] = {
    "auto": _auto,
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "bce": _bce,
    "output": _output,
    "sum": _sum,
}
