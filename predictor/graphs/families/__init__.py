"""Families of networks: one builder each, a function of the family's name.

A builder is given a ``GraphBuilder``, which knows the ``Workload`` of one micro-batch, and the
architecture of a catalog entry; its module is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar, cast

from profiles.storage import shipped_yaml

from ...errors import GraphError

F = TypeVar("F", bound=Callable[..., None])

# Modules that hold several families; any other family has a module of its name. They are imported
# on first use only.
_MODULE_OF = {
    name: module
    for module, names in shipped_yaml("modules.yaml", __file__).items()
    for name in names
}


def takes(sizes: type) -> Callable[[F], F]:
    """Mark a builder that takes the fields of the dataclass ``sizes`` as ``**``."""

    def mark(build: F) -> F:
        vars(build)["sizes"] = sizes
        return build

    return mark


def builder_of(name: str) -> Callable[..., None]:
    """The builder of a family; raises GraphError for an unknown one."""
    module = None
    with suppress(ModuleNotFoundError):
        module = importlib.import_module(f"{__package__}.{_MODULE_OF.get(name, name)}")
    if not hasattr(module, name):
        raise GraphError(f"no operator graph for family {name!r}")
    return cast(Callable[..., None], getattr(module, name))


def arguments_of(name: str) -> Mapping[str, str]:
    """Arguments of a family's builder -> annotation and default, ``int = 0``; as ``builder_of``."""
    build = builder_of(name)
    _, *own = inspect.signature(build).parameters.values()
    if sizes := vars(build).get("sizes"):
        own += inspect.signature(sizes).parameters.values()
    return {p.name: f"{p.annotation} = {p.default}" for p in own if p.kind is not p.VAR_KEYWORD}
