"""The tracer: a network, its inputs and its loss -> an entry of the user's catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any

from profiles.storage import shipped_yaml

from ...errors import GraphError, JobError, PrecisionTimeError
from ...graphs.families.stored import Stored, SymbolicOperator, TracedModel, store
from ...graphs.operator import Kind
from ...optional import needs, needs_package
from .request import (
    Input,
    TraceRequest,
    current_directory_first,
    free_name,
    image_size_of,
    of_examples,
)

with needs("trace"):
    import torch

    from .laws import SeenSizes, solved
    from .mapping import mapped
    from .optimizers import Factory
    from .step import FakeNetwork, Loss, built, loss_named

TASKS: Mapping[str, str] = shipped_yaml("tasks.yaml", __file__)
# Layers and steps that are dropped by chance: a trace runs all of them.
_BY_CHANCE = {
    **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop"), 0.0),
    **dict.fromkeys(("apply_spec_augment", "use_cache"), False),
}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length")


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
    inputs, batch = of_examples(example_inputs, seq_len)
    module = network if isinstance(network, torch.nn.Module) else built(network)
    return _traced(
        module,
        inputs,
        _loss(loss),
        name=free_name(name),
        batch=batch,
        seq_len=seq_len,
        optimizer=optimizer,
        key="",
        source=f"traced from {type(module).__name__}",
    )


def trace_request(request: TraceRequest) -> Stored:
    """Trace what a request names, and store it; raises GraphError, JobError or ArtifactError."""
    name, optimizer = free_name(request.name), request.optimizer
    if request.hf_config is not None:
        module = of_config(request.hf_config, request.task)
        inputs = request.inputs or config_inputs(module)
        _check_length(module, request.seq_len or 0)
        source = f"traced from {request.hf_config}"
    else:
        module = of_factory(str(request.factory))
        inputs = request.inputs
        source = f"traced from {request.factory}"
    if not inputs:
        raise JobError("input", None, "expected sizes of one sample, as --input 3,224,224")
    if request.seq_len is None and any("S" in i.sizes for i in inputs):
        raise JobError("seq_len", None, "expected a number: this network reads tokens")
    return _traced(
        module,
        inputs,
        _loss(request.loss),
        name=name,
        batch=request.batch_size,
        seq_len=request.seq_len,
        optimizer=imported(optimizer, "optimizer") if ":" in optimizer else optimizer,
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
        every = (one for call in calls for one in (call, *call.gradients))
        tensors = (tensor for one in every for tensor in (*one.inputs, *one.outputs))
        sizes = frozenset(size for tensor in tensors for size in tensor.shape)
        return SeenSizes(operators=found.operators, sizes=sizes)

    found = solved(run, batch, seq_len)
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
            input_elements=tuple(
                (
                    float(prod(size for size in one.sizes if not isinstance(size, str))),
                    one.sizes.count("B"),
                    one.sizes.count("S"),
                )
                for one in inputs
            ),
            operators=found.operators,
            **network.weights,
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


def _loss(loss: str | Callable[[Any], torch.Tensor]) -> Loss:
    if callable(loss):
        return loss
    return imported(loss, "loss") if ":" in loss else loss_named(loss)


def imported(place: str, field: str) -> Callable[..., Any]:
    """The callable at ``package.module:name``; the current directory is looked in too."""
    module_name, _, name = place.partition(":")
    if not name:
        raise JobError(field, place, "expected package.module:name")
    current_directory_first()
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever the user's module does
        said = f"{type(error).__name__}: {error}"
        raise JobError(field, place, f"expected a module that can be imported ({said})") from error
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise JobError(field, place, f"{module_name} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise JobError(field, place, f"expected a function or class, not {type(found).__name__}")
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
        raise JobError("factory", place, f"expected a call without arguments ({error})") from error
    try:
        return built(found)
    except PrecisionTimeError:
        raise
    except Exception as error:  # whatever the user's function does
        raise GraphError(f"{place} fails: {type(error).__name__}: {error}") from error


def of_config(path: str, task: str | None) -> torch.nn.Module:
    """The network of a transformers config, without weights; raises JobError."""
    with needs_package("transformers"):
        transformers: Any = import_module("transformers")
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError("hf_config", path, f"expected a config.json ({error})") from error
    if not isinstance(raw, dict):
        raise JobError("hf_config", path, "expected config.json of transformers, an object")
    model_type = raw.pop("model_type", None)
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if model_type not in known:
        raise JobError("model_type", model_type, f"expected one that transformers has, in {path}")
    try:
        config = transformers.AutoConfig.for_model(model_type, **raw)
    except (TypeError, ValueError, AttributeError) as error:
        said = " ".join(str(error).split())[:300]
        raise JobError("hf_config", path, f"expected fields of {model_type} ({said})") from error
    for name, value in _BY_CHANCE.items():
        if hasattr(config, name):
            setattr(config, name, value)
    if task is not None:
        if task not in TASKS:
            raise JobError("hf_task", task, f"expected one of {', '.join(TASKS)}")
        auto = getattr(transformers, TASKS[task])
        if type(config) not in auto._model_mapping:
            raise JobError("hf_task", task, f"expected a task that {model_type} has a head for")
        network = auto.from_config
    else:
        named = [name for name in raw.get("architectures") or () if hasattr(transformers, name)]
        if not named:
            known = f"{', '.join(TASKS)}, as {path} names no architecture of transformers"
            raise JobError("hf_task", None, f"expected one of {known}")
        network = getattr(transformers, named[0])
    made = built(lambda: network(config))
    # Grouped products of experts exist in this format alone; sizes are the same in any.
    experts = ("num_experts", "num_local_experts", "n_routed_experts")
    some = any(getattr(config.get_text_config(), name, None) for name in experts)
    return made.to(torch.bfloat16) if some else made


def config_inputs(module: torch.nn.Module) -> tuple[Input, ...]:
    """What a network of transformers takes: tokens, images or audio of the sizes it states.

    Raises JobError where it states none.
    """
    config: Any = module.config
    takes = str(getattr(module, "main_input_name", "input_ids"))
    if takes not in _TAKES:
        raise JobError("input", None, f"expected the sizes of one sample, as {takes}=SIZES")
    found = _TAKES[takes](config)
    if takes == "input_ids" and getattr(config, "vision_config", None) is not None:
        found = (*found, *_pixels(config.vision_config))
    if takes != "input_ids" and getattr(config, "text_config", None) is not None:
        found = (*_tokens(config), *found)
    if getattr(config, "is_encoder_decoder", False):
        found = (*found, Input(sizes=("B", "S"), dtype="int64", name="decoder_input_ids"))
    return found


def _check_length(module: Any, seq_len: int) -> None:
    """Raise JobError where a sequence is longer than the network's positions."""
    text = module.config.get_text_config()
    limit = next((n for name in _LENGTHS if (n := getattr(text, name, None))), None)
    takes = getattr(module, "main_input_name", "input_ids")
    if isinstance(limit, int) and 0 < limit < seq_len and takes == "input_ids":
        raise JobError("seq_len", seq_len, f"expected at most {limit}, the positions of the config")


def _tokens(config: Any) -> tuple[Input, ...]:
    return (Input(sizes=("B", "S"), dtype="int64", name="input_ids"),)


def _pixels(config: Any) -> tuple[Input, ...]:
    config = getattr(config, "vision_config", None) or config
    side = getattr(config, "image_size", None)
    if side is None:
        raise JobError("input", None, "expected pixel_values=3,HEIGHT,WIDTH, as no size is known")
    sides = tuple(side) if isinstance(side, list | tuple) else (side, side)
    return (Input(sizes=("B", config.num_channels, *sides), name="pixel_values"),)


def _mel_frames(config: Any) -> tuple[Input, ...]:
    bins = getattr(config, "num_mel_bins", None)
    frames = getattr(config, "max_source_positions", None)
    if bins is None or frames is None:
        raise JobError("input", None, "expected input_features=SIZES of one sample")
    return (Input(sizes=("B", bins, 2 * frames), name="input_features"),)


def _samples(config: Any) -> tuple[Input, ...]:
    """Sound as samples, or as a spectrogram of stated size."""
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        return (Input(sizes=("B", config.max_length, config.num_mel_bins), name="input_values"),)
    return (Input(sizes=("B", "S"), name="input_values"),)


_TAKES = {
    "input_ids": _tokens,
    "pixel_values": _pixels,
    "input_features": _mel_frames,
    "input_values": _samples,
}
