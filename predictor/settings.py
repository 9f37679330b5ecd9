"""Settings files of the adapters: YAML, checked field by field, every error readable.

Needs pydantic, which the extras of the adapters bring; the predictor itself has no settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from profiles.errors import ProfileDataError
from profiles.gpus import find_gpu, gpus
from profiles.storage import user_yaml

from .errors import PrecisionTimeError
from .job.fabrics import fabric_of
from .job.precision import parse_precision


class Section(BaseModel):
    """A part of a file: unknown fields are errors, values never change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _words(cls, raw: Any) -> Any:
        """Take ``mode: off``, which YAML reads as false, for the word it looks like."""
        if not isinstance(raw, dict):
            return raw
        if unknown := [name for name in raw if name not in cls.model_fields]:
            near = get_close_matches(str(unknown[0]), cls.model_fields, n=1) or cls.model_fields
            raise ValueError(f"{unknown[0]} is no field; expected {' or '.join(near)}")
        off = (name for name, value in raw.items() if value is False)
        return {**raw, **{name: "off" for name in off if str(name).endswith("mode")}}


def _known(meaning: Callable[[str], str]) -> AfterValidator:
    """Takes the words that ``meaning`` knows, and puts what they mean in their place."""

    def checked(word: str) -> str:
        try:
            return meaning(word)
        except (PrecisionTimeError, ProfileDataError) as error:
            raise ValueError(getattr(error, "expected", str(error))) from None

    return AfterValidator(checked)


def _fabric(word: str) -> str:
    fabric_of(next(iter(gpus().values())), word)
    return word


class Evidence(Section):
    """When a prediction is too thin to act on: nothing is set or refused by it."""

    max_interval_ratio: float = Field(default=4.0, ge=1.0)
    refused_tiers: tuple[
        Literal["run", "configuration", "count", "table", "site", "model"], ...
    ] = ("model",)


GpuName = Annotated[str, _known(lambda word: find_gpu(word).name)]
PrecisionName = Annotated[str, _known(lambda word: parse_precision(word).value)]
FabricName = Annotated[str, _known(_fabric)]
Whole = TypeVar("Whole", bound=Section)


def read_settings(path: Path, kind: type[Whole], refusal: type[PrecisionTimeError]) -> Whole:
    """The settings of a file; raises ``refusal`` naming file, field, value and what is expected."""
    raw = user_yaml(path, refusal)
    return settings_of({} if raw is None else raw, kind, refusal, str(path))


def settings_of(
    raw: Any, kind: type[Whole], refusal: type[PrecisionTimeError], origin: str
) -> Whole:
    """The settings of plain values; raises ``refusal``."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        told: dict[str, list[str]] = {}
        for one in error.errors():
            told.setdefault(_place(one), []).append(_expected(one))
    wrong = (f"{place}{' or '.join(words)}" for place, words in told.items())
    raise refusal("; ".join(f"{origin}: {one.replace(' or expected ', ' or ')}" for one in wrong))


def _place(error: Any) -> str:
    """The field and its value, without the names of the types that pydantic tried."""
    place = ".".join(str(one) for one in error["loc"] if not _TRIED.match(str(one)))
    whole = error["type"] == "missing" or isinstance(error["input"], dict)  # may hold passwords
    value = "" if whole else f"={error['input']!r}"
    return f"{place}{value}: " if place else ""


_TRIED = re.compile(r"constrained-|function-|literal\[|list\[|\[key\]|(float|int|str|bool|none)$")
_BOUNDS = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
_KINDS = {
    "bool": "true or false",
    "dict": "fields with values",
    "float": "a number",
    "frozen": "a list",
    "int": "a whole number",
    "list": "a list",
    "model": "fields with values",
    "path": "a path",
    "set": "a list",
    "string": "a text",
    "tuple": "a list",
}


def _expected(error: Any) -> str:
    """What a field takes, in plain words."""
    context, kind = error.get("ctx", {}), error["type"].partition("_")[0]
    words = _KINDS.get(kind, "")
    words = "a time such as 7d or 12h" if "pattern" in context else context.get("expected", words)
    words = next(
        (f"a number {w} {context[k]:g}" for k, w in _BOUNDS.items() if k in context), words
    )
    return f"expected {words}" if words else error["msg"].removeprefix("Value error, ")
