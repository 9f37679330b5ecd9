"""Fields of a dataclass with the words that a command line shows for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args, get_type_hints

_KEY = "described"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What an option says of a field.

    ``unstated`` says what holds where the field has no default, ``option`` is the name of the
    option where it is not that of the field; a ``repeated`` one may be given more than once.
    """

    help: str
    unstated: str = ""
    metavar: str | None = None
    option: str = ""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class DescribedField:
    """A field with its description; ``default`` is MISSING where it must be stated."""

    name: str
    kind: type
    default: Any
    description: Description


def described(help: str, **more: Any) -> dict[str, Description]:
    """The metadata of a field that becomes an option; ``more`` are fields of Description."""
    return {_KEY: Description(help=help, **more)}


def described_fields(described_class: type) -> Iterator[DescribedField]:
    """Every described field of a dataclass in its order.

    Its kind is bool, int or float where its type is that or optional, else str: text to be parsed.
    """
    types = get_type_hints(described_class)
    for one in fields(described_class):
        if _KEY in one.metadata:
            kinds = {types[one.name], *get_args(types[one.name])}
            scalar = next((kind for kind in (bool, int, float) if kind in kinds), str)
            text = one.metadata[_KEY].metavar is not None
            yield DescribedField(one.name, str if text else scalar, one.default, one.metadata[_KEY])
