"""One operator to be timed: its word, format, shape and parameters, as a table states them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from profiles.conventions import SHAPE_FIELDS, parse_params
from profiles.tables import OperatorTable, operator_table

UNSTATED = "nan"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes by the field names of ``SHAPE_FIELDS``, and the ``params`` cell."""

    sizes: Mapping[str, int]
    params: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operator of one shape in one format, of a named family of operators."""

    family: str
    op: str
    dtype: str
    shape: Shape

    @property
    def cell(self) -> str:
        """The ``shape`` cell of a table."""
        sizes = self.shape.sizes
        return " ".join(str(sizes.get(name, UNSTATED)) for name in SHAPE_FIELDS[self.op])

    def size(self, name: str) -> int:
        """One size, which the shape must have."""
        return self.shape.sizes[name]

    def option(self, name: str) -> str:
        """One parameter, empty where it is not stated."""
        return parse_params(self.shape.params).get(name, "")

    def id(self, device: str, direction: str) -> str:
        """The id of a row: the same whenever the same thing is measured on the same device."""
        words = (device, self.op, direction, self.dtype, self.cell, self.shape.params)
        return "pt" + hashlib.sha256("|".join(words).encode()).hexdigest()[:12]

    def row(self, device: str, direction: str, time_s: float) -> OperatorTable:
        """A table of this one row, with the FLOPs and bytes of ``conventions``."""
        columns = {
            "id": [self.id(device, direction)],
            "source": [""],
            "library": [""],
            "op": [self.op],
            "direction": [direction],
            "dtype": [self.dtype],
            "params": [self.shape.params],
            "shape": [self.cell],
            "time_us": [str(time_s * 1e6)],
        }
        return operator_table([device], columns)
