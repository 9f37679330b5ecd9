"""Family name -> builder function; families register themselves, the catalog looks them up."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

from ..errors import GraphError

F = TypeVar("F", bound=Callable[..., None])

_BUILDERS: dict[str, Callable[..., None]] = {}

# family name -> module under ``families`` that registers it; imported on first use only
_MODULES: dict[str, str] = {
    "mobilefacenet": "insightface",
    "video_dit": "dit",
    "imagen_efficient": "imagen",
    "swin_v2_cr": "swin_v2",
    "vit_hybrid": "vit_variants",
    "vit_relpos": "vit_variants",
    "vit_parallel": "vit_variants",
}


def family(name: str) -> Callable[[F], F]:
    """Register ``build(b: GraphBuilder, work: Workload, **architecture)`` as family ``name``."""

    def register(build: F) -> F:
        _BUILDERS[name] = build
        return build

    return register


def builder_of(name: str) -> Callable[..., None]:
    """The builder registered for a family; raises GraphError for an unknown one."""
    if name not in _BUILDERS:
        module = _MODULES.get(name, name)
        try:
            importlib.import_module(f"{__package__}.families.{module}")
        except ModuleNotFoundError as error:
            raise GraphError(f"no operator graph for family {name!r}") from error
    try:
        return _BUILDERS[name]
    except KeyError:
        raise GraphError(f"no operator graph for family {name!r}") from None
