"""The exceptions of the data package.

ProfileDataError        a data file is missing, malformed or contradicts itself
└── UnknownGpuError     no GPU of that name (also a KeyError); carries the nearest names
"""

from __future__ import annotations

from collections.abc import Sequence


class ProfileDataError(Exception):
    """Data under ``profiles/`` is missing, malformed or contradicts itself."""


class UnknownGpuError(ProfileDataError, KeyError):
    """No data sheet has this name; ``nearest`` holds the closest names."""

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        hint = ", ".join(nearest) if nearest else "see `precision-time gpus`"
        super().__init__(f"gpu={name!r} has no data sheet; nearest names: {hint}")
        self.name = name
        self.nearest = tuple(nearest)

    def __str__(self) -> str:
        return str(self.args[0])
