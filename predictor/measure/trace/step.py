"""One training step on fake tensors: forward, loss and backward; nothing is computed."""

from __future__ import annotations

import copy
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from profiles.storage import shipped_yaml

from ...errors import GraphError, JobError, PrecisionTimeError
from ...graphs.families.stored import Update
from .calls import TracedCall
from .layers import WholeLayers
from .optimizers import Factory, traced_update
from .recording import CallRecording
from .request import Input

Loss = Callable[[Any], torch.Tensor]

# What an error is called and says -> advice; the first that matches.
_ADVICE = tuple(
    (re.compile(one["says"], re.IGNORECASE), one["advice"])
    for one in shipped_yaml("advice.yaml", __file__)
)
_OTHER = "forward must run on tensors without data: try it on real inputs first"
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)


@contextmanager
def explained(module: torch.nn.Module) -> Iterator[None]:
    """Turn torch's error into one that names the module, the operator, and what to do."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the error itself says what it would say
    try:
        yield
    except (PrecisionTimeError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise GraphError(_message(module, error)) from error
    finally:
        log.setLevel(level)


def _message(module: torch.nn.Module, error: Exception) -> str:
    """Names the innermost module, and the innermost line that is neither torch's nor ours."""
    said = str(error).strip().split("\n")[0] or type(error).__name__
    text = f"{type(error).__name__} {error}"
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(text)), _OTHER)
    said = said.replace("aten._local_scalar_dense.default", "a value is asked for, as by .item()")
    names = {id(part): name for name, part in module.named_modules()}
    place, at = type(module).__name__, ""
    for frame, line in walk_tb(error.__traceback__):
        owner = next(iter(frame.f_locals.values()), None)  # the first argument, self by custom
        if isinstance(owner, torch.nn.Module) and names.get(id(owner)):
            place = f"{names[id(owner)]} ({type(owner).__name__})"
        if not frame.f_code.co_filename.startswith((_TORCH, _OURS)):
            at = f" at {Path(frame.f_code.co_filename).name}:{line}"
    return f"cannot trace {place}{at}: {said[:300]}; {advice}"


class FakeNetwork:
    """A network whose parameters hold no data."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.module = _faked(module, self._mode).train()
        # Fake tensors cannot be sparse: tables with a sparse gradient are traced dense.
        tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        sparse = [p for p in self.module.modules() if isinstance(p, tables) and p.sparse]
        for part in sparse:
            part.sparse = False
        self._sparse = [part.weight for part in sparse]

    @property
    def weights(self) -> dict[str, int]:
        """Counts of its parameters in the fields of a Graph; what is tied is counted once."""
        every = list(self.module.parameters())
        trained = [p for p in every if p.requires_grad]
        return {
            "parameters": sum(p.numel() for p in every),
            "trainable_parameters": sum(p.numel() for p in trained),
            "parameter_tensors": len(trained),
            "sparse_parameters": sum(p.numel() for p in self._sparse),
        }

    def step(
        self, inputs: Sequence[Input], loss: Loss, batch: int, seq_len: int
    ) -> tuple[TracedCall, ...]:
        """The operator calls of one step; raises GraphError where torch cannot trace it."""
        recording = CallRecording(self._sparse)
        recording.weights(self.module.parameters())
        self.module.zero_grad(set_to_none=True)
        with explained(self.module), self._mode, _norms_marked(self.module, recording):
            given = [
                (i.name, torch.empty(i.shape(batch, seq_len), dtype=getattr(torch, i.dtype)))
                for i in inputs
            ]
            unnamed = [tensor for name, tensor in given if name is None]
            named = {name: tensor for name, tensor in given if name}
            with recording, WholeLayers(recording), _not_packed():
                total = loss(self.module(*unnamed, **named))
                if not isinstance(total, torch.Tensor) or total.numel() != 1:
                    raise GraphError("the loss must be a tensor of one element")
                total.backward()  # type: ignore[no-untyped-call]
        return tuple(recording.calls)

    def update(self, factory: Factory) -> Update:
        """What a step of the optimizer ``factory(parameters)`` costs; raises GraphError."""
        trained = [p for p in self.module.parameters() if p.requires_grad]
        with explained(self.module), self._mode:
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
            found = traced_update(factory, trained)
        self.module.zero_grad(set_to_none=True)
        return found


def built(factory: Callable[[], Any]) -> torch.nn.Module:
    """The network a factory makes, without the memory of its weights where that is possible."""
    try:
        with torch.device("meta"):
            module = factory()
    except (NotImplementedError, RuntimeError):
        module = factory()  # a constructor that looks at values
    if not isinstance(module, torch.nn.Module):
        raise GraphError(f"the factory returned {type(module).__name__}, not a torch.nn.Module")
    return module


def _faked(module: torch.nn.Module, mode: FakeTensorMode) -> torch.nn.Module:
    """A copy with fake tensors in the place of all its tensors."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers, vars(part)):
            for tensor in held.values():
                if isinstance(tensor, torch.Tensor) and id(tensor) not in memo:
                    with mode:
                        made = torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
                    if isinstance(tensor, torch.nn.Parameter):
                        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
                    memo[id(tensor)] = made
    try:
        return copy.deepcopy(module, memo)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise GraphError(
            f"the network cannot be copied ({error}); give a function that builds it"
        ) from error


@contextmanager
def _not_packed() -> Iterator[None]:
    """Keep Transformers from looking for packed samples.

    Where values cannot be looked at, it masks as if there were some: attention is causal no more.
    """
    masks = sys.modules.get("transformers.masking_utils")
    search = getattr(masks, "find_packed_sequence_indices", None)
    if search is None:
        yield
        return
    vars(masks)[search.__name__] = lambda _: None
    try:
        yield
    finally:
        vars(masks)[search.__name__] = search


@contextmanager
def _norms_marked(module: torch.nn.Module, recording: CallRecording) -> Iterator[None]:
    """Mark the calls of modules that spell out an RMS norm in pointwise operators."""
    hooks = []
    count = 0

    def enter(*_: object) -> None:
        nonlocal count
        count += 1
        recording.norm = count

    def leave(*_: object) -> None:
        recording.norm = None

    for part in module.modules():
        if type(part).__name__.endswith("RMSNorm") and not isinstance(part, torch.nn.RMSNorm):
            hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def logits(output: Any) -> tuple[torch.Tensor, ...]:
    """What a loss is computed on: outputs that name themselves logits, else the first one."""
    if isinstance(output, Mapping):
        found = trained(v for k, v in output.items() if "logits" in str(k))
        if found:
            return tuple(found)
    first = trained([output])[:1]
    if not first:
        raise GraphError("the network returns no tensor with a gradient; give a loss of its own")
    return tuple(first)


def trained(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors with a gradient among these values, and in lists and mappings of them."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found += [value] if value.is_floating_point() and value.requires_grad else []
        elif isinstance(value, Mapping):
            found += trained(value.values())
        elif isinstance(value, list | tuple):
            found += trained(value)
    return found


def cross_entropy(every: Iterable[torch.Tensor]) -> torch.Tensor:
    """Over the classes of every output: the last axis of two or three, else the second."""
    return torch.stack([_one_cross_entropy(t) for t in every]).sum()


def _one_cross_entropy(scores: torch.Tensor) -> torch.Tensor:
    if scores.dim() < 2:
        return torch.nn.functional.mse_loss(scores, torch.zeros_like(scores))
    if scores.dim() == 3:
        scores = scores.reshape(-1, scores.shape[-1])
    shape = (scores.shape[0], *scores.shape[2:])
    target = torch.empty(shape, dtype=torch.long, device=scores.device)
    return torch.nn.functional.cross_entropy(scores, target)


def _own(output: Any) -> torch.Tensor | None:
    """The loss that a network returns itself."""
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    if loss is None and isinstance(output, torch.Tensor) and output.dim() == 0:
        loss = output
    return loss if isinstance(loss, torch.Tensor) and loss.requires_grad else None


def _output(output: Any) -> torch.Tensor:
    own = _own(output)
    if own is None:
        raise GraphError("loss 'output' needs a network that returns its loss")
    return own


def _auto(output: Any) -> torch.Tensor:
    own = _own(output)
    return cross_entropy(logits(output)) if own is None else own


def _elementwise(loss: Callable[..., torch.Tensor]) -> Loss:
    """A loss of the first output and a target of its shape."""
    return lambda output: loss(first := logits(output)[0], torch.empty_like(first))


_LOSSES: Mapping[str, Loss] = {
    "auto": _auto,
    "cross_entropy": lambda output: cross_entropy(logits(output)),
    "mse": _elementwise(torch.nn.functional.mse_loss),
    "bce": _elementwise(torch.nn.functional.binary_cross_entropy_with_logits),
    "output": _output,
    "sum": lambda output: torch.stack([t.sum() for t in logits(output)]).sum(),
}


def loss_named(name: str) -> Loss:
    """The loss of a name; raises JobError."""
    if name not in _LOSSES:
        known = ", ".join(_LOSSES)
        raise JobError("loss", name, f"expected {known}, or a function as package.module:name")
    return _LOSSES[name]
