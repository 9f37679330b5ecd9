"""Where a network comes from: a function of the user's, or a config of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ..errors import JobError, NotInstalledError
from .inputs import Input
from .request import current_directory_first
from .step import built

TASKS: Mapping[str, str] = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "pretraining": "AutoModelForPreTraining",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
}


def imported(place: str, field: str) -> Callable[..., Any]:
    """The callable at ``package.module:name``; the current directory is looked in too."""
    module_name, _, name = place.partition(":")
    if not name:
        raise JobError(field, place, "package.module:name")
    current_directory_first()
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise JobError(field, place, f"a module that can be imported ({error})") from error
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
        return built(found)
    except TypeError as error:
        raise JobError("factory", place, f"callable without arguments ({error})") from error


def of_config(path: str, task: str | None) -> torch.nn.Module:
    """The network of a transformers config, without weights; raises JobError."""
    try:
        import transformers
    except ImportError as error:
        raise NotInstalledError(
            "--hf-config needs transformers: pip install transformers"
        ) from error
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        model_type = raw.pop("model_type")
        config = transformers.AutoConfig.for_model(model_type, **raw)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise JobError("hf_config", path, f"a config.json with a model_type ({error})") from error
    config.use_cache = False
    return built(lambda: _network(transformers, config, raw.get("architectures") or (), task, path))


def _network(
    transformers: Any, config: Any, architectures: Any, task: str | None, path: str
) -> torch.nn.Module:
    if task is not None:
        if task not in TASKS:
            raise JobError("hf_task", task, f"one of {', '.join(TASKS)}")
        module: torch.nn.Module = getattr(transformers, TASKS[task]).from_config(config)
        return module
    named = next(
        (getattr(transformers, a) for a in architectures if hasattr(transformers, a)), None
    )
    if named is None:
        raise JobError(
            "hf_task", None, f"one of {', '.join(TASKS)}, as {path} names no architecture"
        )
    of_class: torch.nn.Module = named(config)
    return of_class


def config_inputs(module: torch.nn.Module) -> tuple[Input, ...]:
    """What a transformers network takes: tokens, or images of the size its config states."""
    config: Any = module.config
    if getattr(module, "main_input_name", "") == "pixel_values":
        side = config.image_size
        sides = tuple(side) if isinstance(side, list | tuple) else (side, side)
        return (Input(sizes=("B", config.num_channels, *sides), name="pixel_values"),)
    tokens = Input(sizes=("B", "S"), dtype="int64", name="input_ids")
    if getattr(config, "is_encoder_decoder", False):
        return tokens, Input(sizes=("B", "S"), dtype="int64", name="decoder_input_ids")
    return (tokens,)
