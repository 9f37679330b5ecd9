"""What the user names as ``package.module:name``: a network, a loss, an optimizer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import torch

from ...errors import GraphError, JobError, PrecisionTimeError
from .request import current_directory_first
from .step import built


def imported(place: str, field: str) -> Callable[..., Any]:
    """The callable at ``package.module:name``; the current directory is looked in too."""
    module_name, _, name = place.partition(":")
    if not name:
        raise JobError(field, place, "package.module:name")
    current_directory_first()
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever the user's module does
        said = f"{type(error).__name__}: {error}"
        raise JobError(field, place, f"a module that can be imported ({said})") from error
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
        signature(found).bind()
    except TypeError as error:
        raise JobError("factory", place, f"callable without arguments ({error})") from error
    try:
        return built(found)
    except PrecisionTimeError:
        raise
    except Exception as error:  # whatever the user's function does
        raise GraphError(f"{place} fails: {type(error).__name__}: {error}") from error
