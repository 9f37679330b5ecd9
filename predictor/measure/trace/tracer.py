"""The tracer: a network, its inputs and its loss -> an entry of the user's catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

import torch

from ...errors import GraphError, JobError, PrecisionTimeError
from ...graphs.operator import Kind
from ...graphs.traced import Law, Stored, SymbolicOperator, TracedModel, store
from .calls import sizes_of
from .hf_config import check_length, config_inputs, of_config
from .inputs import Examples, Input, image_size_of, of_examples
from .losses import Loss, loss_named
from .mapping import mapped
from .optimizers import Factory
from .request import TraceRequest, current_directory_first, free_name
from .solve import SeenSizes, solved
from .step import FakeNetwork, built

_TOKENS = "the tokens of one sample, as this network reads tokens"


def trace(
    network: torch.nn.Module | Callable[[], torch.nn.Module],
    example_inputs: Any,
    *,
    name: str,
    loss: str | Callable[[Any], torch.Tensor] = "auto",
    seq_len: int | None = None,
    optimizer: str | Factory = "adamw",
) -> Stored:
    """Trace a network, or the function that builds it, and store it as catalog entry ``name``.

    ``example_inputs`` are tensors with the batch first, one, several or by name; they are looked at
    for shape and type only. Sizes equal to ``seq_len`` follow the sequence length of a job.
    ``loss`` takes what the network returns. ``optimizer`` is a name, or takes the parameters and
    gives a torch optimizer whose step is traced. Raises GraphError where torch cannot trace it,
    JobError for a wrong argument.
    """
    examples = of_examples(example_inputs, seq_len)
    module = network if isinstance(network, torch.nn.Module) else built(network)
    spelt = _loss(loss)
    return _traced(
        module,
        _fitting(module, examples, spelt, seq_len),
        spelt,
        name=free_name(name),
        batch=examples.batch_size,
        seq_len=seq_len,
        optimizer=optimizer,
        key="",
        source=f"traced from {type(module).__name__}",
    )


def _fitting(
    module: torch.nn.Module, examples: Examples, loss: Loss, seq_len: int | None
) -> Sequence[Input]:
    """The inputs, an axis that is as long as the sequence by chance told from it by trying."""
    if examples.inputs == examples.once or seq_len is None:
        return examples.inputs
    try:
        FakeNetwork(module).step(examples.inputs, loss, examples.batch_size, seq_len - 1 or 2)
    except GraphError:
        return examples.once
    return examples.inputs


def trace_request(request: TraceRequest) -> Stored:
    """Trace what a request names, and store it; raises GraphError, JobError or ArtifactError."""
    name = free_name(request.name)
    if request.hf_config is not None:
        module = of_config(request.hf_config, request.task)
        inputs = request.inputs or config_inputs(module)
        check_length(module, request.seq_len)
        source = f"traced from {request.hf_config}"
    else:
        module = of_factory(str(request.factory))
        inputs = request.inputs
        source = f"traced from {request.factory}"
    if not inputs:
        raise JobError("input", None, "the sizes of one sample, such as --input 3,224,224")
    if request.seq_len is None and any("S" in i.sizes for i in inputs):
        raise JobError("seq_len", None, _TOKENS)
    return _traced(
        module,
        inputs,
        _loss(request.loss),
        name=name,
        batch=request.batch_size,
        seq_len=request.seq_len,
        optimizer=_optimizer(request.optimizer),
        key=request.key,
        source=source,
    )


def _traced(
    module: torch.nn.Module,
    inputs: Sequence[Input],
    loss: Loss,
    *,
    name: str,
    batch: int,
    seq_len: int | None,
    optimizer: str | Factory,
    key: str,
    source: str,
) -> Stored:
    network = FakeNetwork(module)
    unknown: dict[str, int] = {}

    def run(batch: int, seq_len: int) -> SeenSizes:
        calls = network.step(inputs, loss, batch, seq_len)
        found = mapped(calls)
        unknown.update(found.unknown)
        return SeenSizes(operators=found.operators, sizes=sizes_of(calls))

    found = solved(run, batch, seq_len)
    weights = network.weights
    update = network.update(optimizer) if callable(optimizer) else None
    return store(
        TracedModel(
            name=name,
            key=key,
            group=_group(found.operators, seq_len),
            batch_size=batch,
            any_batch=found.any_batch,
            seq_len=seq_len,
            any_seq_len=found.any_seq_len,
            image_size=image_size_of(inputs),
            optimizer=getattr(optimizer, "__name__", "custom") if update else str(optimizer),
            update=update,
            parameters=weights.parameters,
            trainable_parameters=weights.trainable,
            parameter_tensors=weights.tensors,
            sparse_parameters=weights.sparse,
            input_elements=_elements(inputs),
            operators=found.operators,
            unknown=tuple(f"{n} x{times}" for n, times in sorted(unknown.items())),
            source=f"{source} with torch {torch.__version__}",
        )
    )


def _group(operators: Sequence[SymbolicOperator], seq_len: int | None) -> str:
    """The kind of network, in the words of the catalog."""
    kinds = {operator.kind for operator in operators}
    if Kind.RNN in kinds:
        return "rnn"
    if kinds & {Kind.ATTENTION, Kind.BATCHED_GEMM}:
        return "transformer" if seq_len else "vision-transformer"
    return "cnn" if Kind.CONV in kinds else "other"


def _elements(inputs: Sequence[Input]) -> Law:
    """Elements the host sends for a micro-batch."""
    terms = []
    for one in inputs:
        number = 1.0
        for size in one.sizes:
            number *= 1 if isinstance(size, str) else size
        terms.append((number, one.sizes.count("B"), one.sizes.count("S")))
    return tuple(terms)


def _loss(loss: str | Callable[[Any], torch.Tensor]) -> Loss:
    if callable(loss):
        return loss
    return imported(loss, "loss") if ":" in loss else loss_named(loss)


def _optimizer(optimizer: str) -> str | Factory:
    return imported(optimizer, "optimizer") if ":" in optimizer else optimizer


def imported(place: str, field: str) -> Callable[..., Any]:
    """The callable at ``package.module:name``; the current directory is looked in too."""
    module_name, _, name = place.partition(":")
    if not name:
        raise JobError(field, place, "package.module:name")
    current_directory_first()
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever the user's module does
        said = f"{type(error).__name__}: {error}"
        raise JobError(field, place, f"a module that can be imported ({said})") from error
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise JobError(field, place, f"{module_name} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise JobError(field, place, f"a function or class, not {type(found).__name__}")
    called: Callable[..., Any] = found
    return called


def of_factory(place: str) -> torch.nn.Module:
    """The network that a function, a class or a module object gives."""
    found = imported(place, "factory")
    if isinstance(found, torch.nn.Module):
        return found
    try:
        signature(found).bind()
    except TypeError as error:
        raise JobError("factory", place, f"callable without arguments ({error})") from error
    try:
        return built(found)
    except PrecisionTimeError:
        raise
    except Exception as error:  # whatever the user's function does
        raise GraphError(f"{place} fails: {type(error).__name__}: {error}") from error
