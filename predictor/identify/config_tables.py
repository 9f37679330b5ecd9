"""Configurations that are read by a table of their own: DeepSpeed's, and Accelerate's file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from .config_values import settings_of
from .draft import Draft
from .flags import flags
from .keys import OFF, ON
from .shell import UNKNOWN
from .stated import Stated

MAX_DOCUMENT = 32 * 1024
_SWITCHES = ("fp16", "bf16")
_BATCHES = ("batch_size", "global_batch_size")


def deepspeed_stated(document: str, origin: str) -> Stated | None:
    """What a text says if it is a DeepSpeed configuration, or None."""
    if "{" not in document or len(document) > MAX_DOCUMENT:
        return None
    try:
        config = json.loads(document.replace(UNKNOWN, "null"))
    except (ValueError, RecursionError):
        return None
    settings = settings_of("ds.json", json.dumps(config)) if isinstance(config, dict) else None
    return None if settings is None else _stated(settings, flags().deepspeed, origin)


def accelerate_stated(settings: Mapping[str, str], origin: str) -> Stated | None:
    """What the file of ``accelerate launch --config_file`` says, or None."""
    return _stated(settings, flags().accelerate, origin)


def _stated(settings: Mapping[str, str], table: Mapping[str, str], origin: str) -> Stated | None:
    draft = Draft(origin)
    for name, key in table.items():
        text = settings.get(name, "").strip()
        if key in _SWITCHES:
            if text.lower() in ON:
                draft.signal(key, "on")
        elif key == "mixed_precision":
            if text and text.lower() not in OFF:
                draft.signal(key, text)
        elif text.lower() not in ("", "auto", "null"):
            draft.say("global_batch_size" if key == "total_batch" else key, text[:40])
    return draft.stated() if draft.texts or draft.signals else None


def completed(command: Stated, config: Stated) -> Stated:
    """A command over the configuration that completes it: both batch sizes hold together."""
    joined = command.over(config)
    batches = {
        name: config.values[name]
        for name in _BATCHES
        if name in config.values and name not in joined.values
    }
    return replace(
        joined,
        values={**joined.values, **batches},
        origins={**joined.origins, **{name: config.origins[name] for name in batches}},
    )
