"""Every family of operators that is measured, in the order of a round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from profiles.conventions import DTYPE_BYTES
from profiles.storage import shipped_yaml

from ..case import Axis, Choice, Family
from . import layers, pointwise, products


def _axis(name: str, told: dict[str, Any]) -> Axis | Choice:
    if "of" in told:
        return Choice(name, tuple(told["of"]), tuple(told.get("gpu", ())))
    cpu = tuple(told["range"])
    return Axis(name, cpu, tuple(told.get("gpu", cpu)), told.get("step", 8))


def _family(name: str, *, axes: dict[str, Any], formats: Sequence[str] = (), **told: Any) -> Family:
    shape, runs = _WAYS[name]
    found = tuple(_axis(*axis) for axis in axes.items())
    return Family(
        name=name, axes=found, shape=shape, runs=runs, formats=frozenset(formats) or None, **told
    )


_WAYS = {**products.FAMILIES, **layers.FAMILIES, **pointwise.FAMILIES}
FAMILIES = tuple(
    _family(name, **told) for name, told in shipped_yaml("families.yaml", __file__).items()
)
BY_NAME = {family.name: family for family in FAMILIES}


def formats_of(family: Family, device_formats: tuple[str, ...]) -> Iterator[str]:
    """The formats of a device that a family is measured in, of those a table can hold."""
    for dtype in device_formats:
        if dtype not in DTYPE_BYTES or (dtype == "tf32" and not family.tf32):
            continue
        if dtype in family.formats if family.formats else dtype != "fp8":
            yield dtype
