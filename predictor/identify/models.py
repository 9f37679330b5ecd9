"""Catalog names from what people call their models; never a guess at another size."""

from __future__ import annotations

from ..errors import UnknownModelError
from ..graphs.catalog import entry_of
from ..graphs.names import MAX_NAME, nearest

_SHOWN = 40


def resolve_model(name: str, prefix: str = "") -> str:
    """The canonical name of a model; ``prefix`` (``torchvision:``) is tried first.

    Takes catalog names and aliases, Hugging Face repositories, timm and torchvision names and
    paths that end in one. Raises UnknownModelError with the nearest names.
    """
    if len(name) > MAX_NAME:
        shown = name[:_SHOWN] + "..."
        raise UnknownModelError(shown, nearest(shown))
    return entry_of(name, prefix).name
