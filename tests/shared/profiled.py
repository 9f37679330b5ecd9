"""Cases and rows for the tests of the profiler."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from predictor.measure.profiler.case import Axis, Case, Choice, Family
from predictor.measure.profiler.families import FAMILIES, formats_of

SHEET = "a100-sxm4-80gb"  # any device with every format: work does not depend on it
FORMATS = ("fp32", "fp16", "bf16")


def cases(family: Family, dtype: str, count: int = 4) -> Iterator[Case]:
    """Small cases of a family that differ in all their sizes."""
    for number in range(count):
        point = {
            axis.name: axis.at(_share(axis, number, place), True)
            for place, axis in enumerate(family.axes)
        }
        shape = family.shape(point)
        if shape is not None:
            yield Case(family=family.name, op=family.op, dtype=dtype, shape=shape)


def _share(axis: Axis | Choice, number: int, place: int) -> float:
    share = (0.05 + 0.37 * number + 0.21 * place) % 1.0
    return share if isinstance(axis, Choice) else share / 2


def pairs() -> list[tuple[Family, str]]:
    """Every family with each format it is measured in."""
    return [(family, dtype) for family in FAMILIES for dtype in formats_of(family, FORMATS)]


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def operator_rows(root: Path) -> list[dict[str, str]]:
    """All operator rows of a directory that holds one device, and those in its quarantine."""
    found = [row for path in (root / "operators").glob("*.csv") for row in rows(path)]
    return found + rows(root / "quarantine" / "operators.csv")
