"""Settings files of the adapters: YAML, checked field by field, every error readable.

Needs pydantic, which the extras of the adapters bring; the predictor itself has no settings.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from profiles.errors import ProfileDataError
from profiles.gpus import find_gpu, gpus

from .errors import PrecisionTimeError
from .job.fabrics import fabric_of
from .job.precision import parse_precision


class _NothingTwice(yaml.SafeLoader):
    """Refuses a key that stands twice: the later would take the place of all that was said."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            problem = f"{twice[0]} stands twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep)


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
            raise ValueError(str(error)) from None

    return AfterValidator(checked)


def _fabric(word: str) -> str:
    fabric_of(next(iter(gpus().values())), word)
    return word


GpuName = Annotated[str, _known(lambda word: find_gpu(word).name)]
PrecisionName = Annotated[str, _known(lambda word: parse_precision(word).value)]
FabricName = Annotated[str, _known(_fabric)]
Whole = TypeVar("Whole", bound=Section)


def read_settings(path: Path, kind: type[Whole], refusal: type[PrecisionTimeError]) -> Whole:
    """The settings of a file; raises ``refusal`` naming file, field, value and what is expected."""
    try:
        raw = yaml.load(path.read_bytes(), _NothingTwice)
    except OSError as error:
        raise refusal(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise refusal(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return settings_of({} if raw is None else raw, kind, refusal, str(path))


def settings_of(
    raw: Any, kind: type[Whole], refusal: type[PrecisionTimeError], origin: str
) -> Whole:
    """The settings of plain values; raises ``refusal``."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise refusal("; ".join(_readable(origin, e) for e in error.errors())) from None


def _readable(origin: str, error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    whole = error["type"] == "missing" or isinstance(error["input"], dict)  # may hold passwords
    value = "" if whole else f"={error['input']!r}"
    field = f"{place}{value}: " if place else ""
    return f"{origin}: {field}{error['msg'].removeprefix('Value error, ')}"
