"""The exceptions of the data package.

ProfileDataError        a data file is missing, malformed or contradicts itself
└── UnknownGpuError     no GPU of that name (also a KeyError); carries the nearest names
"""

from __future__ import annotations

from collections.abc import Sequence


class ProfileDataError(Exception):
    """Data under ``profiles/`` is missing, malformed or contradicts itself."""


class UnknownGpuError(ProfileDataError, KeyError):
    """No data sheet has this name; ``nearest`` are the closest, ``expected`` says so in words."""

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        known = "expected one of `precision-time gpus`"
        self.expected = f"nearest names: {', '.join(nearest)}" if nearest else known
        super().__init__(f"gpu={name!r} has no data sheet; {self.expected}")
        self.name = name
        self.nearest = tuple(nearest)

    def __str__(self) -> str:
        return str(self.args[0])
