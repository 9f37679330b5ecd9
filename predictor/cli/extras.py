"""Groups of commands that need what an extra brings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import click

from ..errors import NotInstalledError
from .lazy import LazyGroup

_NONE: Mapping[str, str] = MappingProxyType({})


class ExtraGroup(LazyGroup):
    """Raises NotInstalledError where a command misses one of the packages that ``extra`` brings."""

    def __init__(
        self,
        *arguments: Any,
        extra: str,
        brings: Collection[str],
        package: str = "",
        modules: Mapping[str, str] = _NONE,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, package=package, modules=modules, **named)
        self._extra = extra
        self._brings = brings

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name not in self._brings:
                raise
            raise NotInstalledError.of(error, self._extra) from error
