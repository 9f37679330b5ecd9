"""The keys people write, the field of TrainingJob each means, and how its value is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from profiles.errors import UnknownGpuError
from profiles.gpus import find_gpu, spelling, variants
from profiles.storage import shipped_yaml

from ..errors import JobError, UnknownModelError
from ..graphs.catalog import entry_of
from ..graphs.names import MAX_NAME, nearest
from ..job.datasets import dataset_named
from ..job.fabrics import fabric_of
from ..job.frameworks import Framework, framework_of, frameworks
from ..job.phases import PHASE_FIELDS, Phase
from ..job.precision import parse_precision, trainer_named
from ..job.software import Pairs, optimizer_named, read_options
from ..job.training_job import CONTAINER, MOST, MOST_EPOCHS, SHARDINGS
from ..job.words import accepted, key_of

_KEYS = {k: v for k, v in shipped_yaml("keys.yaml").items() if v.get("written", True)}
# Field of TrainingJob -> the other ways to write its key.
ALIASES: Mapping[str, tuple[str, ...]] = {
    name: tuple(entry.get("also", ())) for name, entry in _KEYS.items()
}
# Keys that together say the precision, as the flags of training scripts do.
AUTOCAST_KEYS = ("amp", "fp16", "bf16", "fp8", "tf32", "mixed_precision")
FIELD_OF: Mapping[str, str] = {
    **{name: name for name in ALIASES},
    **{alias: name for name, aliases in ALIASES.items() for alias in aliases},
    **dict.fromkeys(AUTOCAST_KEYS, "precision"),
}

MAX_PAIRS = 32
MAX_TEXT = 64
MAX_RAILS = 64
MAX_PHASES = 16
_YEARS = (2010.0, 2100.0, "a year such as 2024.5")
_EPOCHS = (math.ulp(0.0), MOST_EPOCHS, f"a number above 0, to {MOST_EPOCHS}")
_SUFFIXES = {"": 0, "k": 3, "m": 6, "b": 9}
_NUMBER = re.compile(r"(\d[\d_]{0,24}(?:\.\d{0,24})?(?:e[+-]?\d{1,3})?)([kmb]?)", re.A | re.I)
_GROUPED = re.compile(r"[1-9]\d{0,2}\.\d{3}", re.A)  # 1.000 is one to some, a thousand to others
_AXES = re.compile(r"\d{1,6}(?:[x×,]\d{1,6}){0,3}", re.A | re.I)
_FABRIC = re.compile(r"(?:(\d{1,3})-?x-?)?([a-z][a-z0-9-]*|\d[a-z0-9-]*)", re.A)
_PAIR_KEY = re.compile(r"[a-z][a-z0-9_.]{0,47}", re.A)
_PAIR_VALUE = re.compile(r"[A-Za-z0-9._+:/@*-]{1,64}", re.A)
_STAGE = re.compile(r"(?:deepspeed_)?(?:zero_?|stage_?)?([0-3])(?:_offload)?", re.A)
ON = frozenset(("on", "true", "yes", "1"))
OFF = frozenset(("off", "false", "no", "0", "none", ""))
_SHARDED: Mapping[str, str] = {**{name: name for name in SHARDINGS}, **_KEYS["sharding"]["words"]}
_MOST_AXIS = 2**14
_MOST_CHANNELS = 4
_LEAST_AXIS = 16


def resolve_model(name: str, prefix: str = "") -> str:
    """The canonical name of a model; ``prefix`` (``torchvision:``) is tried first.

    Takes catalog names and aliases, Hugging Face repositories, timm and torchvision names and
    paths that end in one. Raises UnknownModelError with the nearest names.
    """
    if len(name) > MAX_NAME:
        raise UnknownModelError(_short(name), nearest(_short(name)))
    return entry_of(name, prefix).name


def read_value(field: str, text: str) -> Any:
    """The value of a field from its text; raises JobError naming what is expected.

    ``image_size`` with one number stays one number until the model is known. Options and
    framework are read together elsewhere, precision in ``autocast``.
    """
    text = text.strip()
    return _count(field, text) if field in MOST else _READERS[field](text)


def _number(field: str, text: str) -> Decimal:
    if (match := _NUMBER.fullmatch(text)) is None or _GROUPED.fullmatch(text):
        raise JobError(field, _short(text), "expected a number such as 256, 90.5, 1e5 or 50k")
    return Decimal(match[1].replace("_", "")).scaleb(_SUFFIXES[match[2].lower()])


def _count(field: str, text: str) -> int:
    number = _number(field, text)
    if not 1 <= number <= MOST[field] or number != number.to_integral_value():
        raise JobError(field, _short(text), f"expected a whole number from 1 to {MOST[field]}")
    return int(number)


def _within(field: str, text: str, least: float, most: float, expected: str) -> float:
    number = float(_number(field, text))
    if not least <= number <= most:
        raise JobError(field, _short(text), f"expected {expected}")
    return number


def _share(text: str) -> float:
    """A share of the whole: ``0.9`` or ``90%``."""
    plain, whole = text.removesuffix("%"), 100 if text.endswith("%") else 1
    return _within("share", plain, math.ulp(0.0), whole, "a share such as 0.9 or 90%") / whole


def _image_size(text: str) -> tuple[int, ...]:
    plain = text.strip("()[]").lower()
    axes = tuple(map(int, re.split("[x×,]", plain))) if _AXES.fullmatch(plain) else ()
    if len(axes) > 1 and axes[0] <= _MOST_CHANNELS and min(axes[1:]) >= _LEAST_AXIS:
        axes = axes[1:]
    if not 1 <= len(axes) <= 3 or not 1 <= min(axes) <= max(axes) <= _MOST_AXIS:
        raise JobError("image_size", _short(text), "expected H, HxW or HxWxD in pixels")
    return axes


def _gpu(text: str) -> str:
    name = text[:MAX_TEXT]
    try:
        return spelling(name) if variants(name) else find_gpu(name).name
    except UnknownGpuError as error:
        raise JobError("gpu", _short(text), error.expected) from None


def _fabric(text: str) -> str:
    words = re.sub(r"[\s_]+", "-", text.lower())
    match = _FABRIC.fullmatch(words) if len(words) <= MAX_TEXT else None
    if match is None or not 1 <= int(match[1] or 1) <= MAX_RAILS:
        words = ""
    try:
        fabric_of(find_gpu("a100"), words)
    except JobError as error:
        raise JobError("fabric", _short(text), error.expected) from None
    return words


def read_sharding(key: str, text: str) -> str:
    """How state is sharded: by name, ``zero=2`` a stage, where 1 is no yes, ``fsdp=on`` or how."""
    word = key_of(text.split(" ")[0].split(",")[0])
    stage = None if key == "fsdp" and word in ON | OFF else _STAGE.fullmatch(word)
    if stage is not None:
        return f"zero{stage[1]}" if stage[1] != "0" else "ddp"
    if key == "zero" and word not in OFF:
        raise JobError("zero", _short(text), "expected a stage from 0 to 3")
    if word not in _SHARDED:
        raise JobError("sharding", _short(text), accepted(_short(text), SHARDINGS))
    return _SHARDED[word]


def _switch(text: str) -> bool:
    if key_of(text) in ON or key_of(text) in OFF:
        return key_of(text) in ON
    raise JobError("sequence_parallel", _short(text), "expected on or off")


def read_framework(text: str, options: Mapping[str, str]) -> Framework:
    """Name and date of a framework; a container among the options dates it, too."""
    if len(text) > MAX_TEXT:
        raise JobError("framework", _short(text), f"expected one of {', '.join(frameworks())}")
    return framework_of(text, options.get(CONTAINER, ""))


def read_pairs(field: str, text: str) -> Pairs:
    """``k=v;k=v`` with plain names and values as sorted pairs; a lone name is on."""
    found: dict[str, str] = {}
    for part in re.split("[;,]", text):
        if not part.strip():
            continue
        key, _, value = part.partition("=")
        key, value = key_of(key), value.strip() or "on"
        value = {"true": "on", "false": "off"}.get(value.lower(), value)
        if not _PAIR_KEY.fullmatch(key) or not _PAIR_VALUE.fullmatch(value):
            raise JobError(field, _short(part), 'key=value such as "xla=on;act_ckpt=off"')
        found[key] = value
    if not 1 <= len(found) <= MAX_PAIRS:
        raise JobError(field, _short(text), f"expected 1 to {MAX_PAIRS} pairs")
    dated = tuple((k, v) for k, v in found.items() if k == CONTAINER)
    pairs = tuple(pair for pair in found.items() if pair not in dated)
    return tuple(sorted((*dated, *(read_options(pairs) if field == "options" else pairs))))


def parse_phases(text: str) -> tuple[Phase, ...]:
    """The phases of a text, ``;`` between them and ``,`` between their pairs; raises JobError."""
    parts = [part for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MAX_PHASES:
        raise JobError("phases", text[:MAX_TEXT], f"expected 1 to {MAX_PHASES} phases")
    return tuple(map(_phase, parts))


def _phase(text: str) -> Phase:
    stated: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        name = _PHASE_FIELD_OF.get(key_of(key))
        if name is None or not equals:
            expected = f"expected key=value, keys are {', '.join(PHASE_FIELDS)}"
            raise JobError("phases", pair.strip()[:MAX_TEXT], expected)
        stated[name] = read_value(name, value)
    if len(size := stated.get("image_size", ())) == 1:
        stated["image_size"] = size * 2
    return Phase(**stated)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


_READERS: Mapping[str, Callable[[str], Any]] = {
    "model": resolve_model,
    "epochs": lambda text: _within("epochs", text, *_EPOCHS),
    "framework_date": lambda text: _within("framework_date", text, *_YEARS),
    "image_size": _image_size,
    "gpu": _gpu,
    "fabric": _fabric,
    "optimizer": lambda text: optimizer_named(_short(text)),
    "trainer": trainer_named,
    "dataset": lambda text: dataset_named(text[:MAX_TEXT]).name,
    "sharding": lambda text: read_sharding("sharding", text),
    "sequence_parallel": _switch,
    "share": _share,
    "precision": lambda text: parse_precision(text[:MAX_TEXT]),
    "phases": parse_phases,
}
_PHASE_FIELD_OF: Mapping[str, str] = {
    "share": "share",
    **{key: name for key, name in FIELD_OF.items() if name in PHASE_FIELDS},
}
