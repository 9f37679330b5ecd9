"""A ``config.json`` of transformers -> its network without weights, and what that takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ...errors import JobError
from ...optional import needs_package
from .inputs import Input
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
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "audio-classification": "AutoModelForAudioClassification",
    "ctc": "AutoModelForCTC",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
    "base": "AutoModel",
}
# Layers and steps that are dropped by chance: a trace runs all of them.
_BY_CHANCE = {
    "layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "apply_spec_augment": False,
    "use_cache": False,
}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length")


def of_config(path: str, task: str | None) -> torch.nn.Module:
    """The network of a transformers config, without weights; raises JobError."""
    with needs_package("transformers"):
        transformers: Any = import_module("transformers")
    raw = _read(path)
    model_type = raw.pop("model_type", None)
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if model_type not in known:
        raise JobError("model_type", model_type, f"one that transformers has, in {path}")
    try:
        config = transformers.AutoConfig.for_model(model_type, **raw)
    except (TypeError, ValueError, AttributeError) as error:
        raise JobError("hf_config", path, f"fields of {model_type} ({_short(error)})") from error
    for name, value in _BY_CHANCE.items():
        if hasattr(config, name):
            setattr(config, name, value)
    network = _class_of(transformers, raw.get("architectures") or (), task, path)
    made = built(lambda: network(config))
    # Grouped products of experts exist in this format alone; sizes are the same in any.
    return made.to(torch.bfloat16) if _has_experts(config) else made


def _has_experts(config: Any) -> bool:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return any(getattr(config.get_text_config(), name, None) for name in names)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _read(path: str) -> dict[str, Any]:
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError("hf_config", path, f"a config.json of transformers ({error})") from error
    if not isinstance(raw, dict):
        raise JobError("hf_config", path, "a config.json of transformers: an object of fields")
    return raw


def _class_of(transformers: Any, architectures: Any, task: str | None, path: str) -> Any:
    if task is not None:
        if task not in TASKS:
            raise JobError("hf_task", task, f"one of {', '.join(TASKS)}")
        auto = getattr(transformers, TASKS[task])

        def of_task(config: Any) -> Any:
            if type(config) not in auto._model_mapping:
                raise JobError("hf_task", task, f"a task that {config.model_type} has a head for")
            return auto.from_config(config)

        return of_task
    for name in architectures:
        if hasattr(transformers, name):
            return getattr(transformers, name)
    accepted = f"one of {', '.join(TASKS)}, as {path} names no architecture of transformers"
    raise JobError("hf_task", None, accepted)


def config_inputs(module: torch.nn.Module) -> tuple[Input, ...]:
    """What a network of transformers takes: tokens, images or audio of the sizes it states.

    Raises JobError where it states none.
    """
    config: Any = module.config
    takes = str(getattr(module, "main_input_name", "input_ids"))
    if takes not in _TAKES:
        raise JobError("input", None, f"the sizes of one sample, as {takes}=SIZES")
    found = _TAKES[takes](config)
    if takes == "input_ids" and getattr(config, "vision_config", None) is not None:
        found = (*found, *_pixels(config.vision_config))
    if takes != "input_ids" and getattr(config, "text_config", None) is not None:
        found = (*_tokens(config), *found)
    if getattr(config, "is_encoder_decoder", False):
        found = (*found, Input(sizes=("B", "S"), dtype="int64", name="decoder_input_ids"))
    return found


def check_length(module: torch.nn.Module, seq_len: int | None) -> None:
    """Raise JobError where a sequence is longer than the network's positions."""
    config: Any = module.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    limit = next((n for name in _LENGTHS if (n := getattr(text, name, None))), None)
    if isinstance(limit, int) and 0 < limit < (seq_len or 0) and _reads_tokens(module):
        raise JobError("seq_len", seq_len, f"at most {limit}, the positions of the config")


def _reads_tokens(module: torch.nn.Module) -> bool:
    return getattr(module, "main_input_name", "input_ids") == "input_ids"


def _tokens(config: Any) -> tuple[Input, ...]:
    return (Input(sizes=("B", "S"), dtype="int64", name="input_ids"),)


def _pixels(config: Any) -> tuple[Input, ...]:
    config = getattr(config, "vision_config", None) or config
    side = getattr(config, "image_size", None)
    if side is None:
        raise JobError("input", None, "pixel_values=3,HEIGHT,WIDTH: the config has no image_size")
    sides = tuple(side) if isinstance(side, list | tuple) else (side, side)
    return (Input(sizes=("B", config.num_channels, *sides), name="pixel_values"),)


def _mel_frames(config: Any) -> tuple[Input, ...]:
    bins = getattr(config, "num_mel_bins", None)
    frames = getattr(config, "max_source_positions", None)
    if bins is None or frames is None:
        raise JobError("input", None, "input_features=SIZES of one sample")
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
