"""Phases as one value of the grammar: ``steps=7038,seq_len=128;steps=1563,seq_len=512``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import JobError
from ..job.phases import PHASE_FIELDS, Phase
from ..job.precision import parse_precision
from .keys import FIELD_OF, MAX_TEXT, key_of, read_share, read_value

MAX_PHASES = 16


def parse_phases(text: str) -> tuple[Phase, ...]:
    """The phases of a text, ``;`` between them and ``,`` between their pairs; raises JobError."""
    parts = [part for part in text.split(";") if part.strip()]
    if not 1 <= len(parts) <= MAX_PHASES:
        raise JobError("phases", text[:MAX_TEXT], f"expected 1 to {MAX_PHASES} phases")
    return tuple(map(_phase, parts))


def phases_text(phases: Sequence[Phase]) -> str:
    """The text that reads back as these phases."""
    return ";".join(map(_text, phases))


def _phase(text: str) -> Phase:
    stated: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        name = _FIELD_OF.get(key_of(key))
        if name is None or not equals:
            accepted = f"expected key=value, keys are {', '.join(PHASE_FIELDS)}"
            raise JobError("phases", pair.strip()[:MAX_TEXT], accepted)
        read = _READERS.get(name)
        stated[name] = read(value) if read is not None else read_value(name, value)
    if len(size := stated.get("image_size", ())) == 1:
        stated["image_size"] = size * 2
    return Phase(**stated)


def _text(phase: Phase) -> str:
    stated = ((name, getattr(phase, name)) for name in PHASE_FIELDS)
    return ",".join(f"{name}={_value(value)}" for name, value in stated if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


_FIELD_OF: Mapping[str, str] = {
    "share": "share",
    **{key: name for key, name in FIELD_OF.items() if name in PHASE_FIELDS},
    **dict.fromkeys(("precision", "dtype"), "precision"),
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "share": read_share,
    "precision": lambda said: parse_precision(said.strip()[:MAX_TEXT]),
}
