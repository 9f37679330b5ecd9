"""How tables lie on disk: compact CSV, sources by key, and long repeated texts by reference."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .errors import ProfileDataError

HERE = Path(__file__).parent


@cache
def shipped_yaml(name: str, beside: str = __file__) -> Any:
    """A YAML file of this directory, or beside another module, named by its ``__file__``."""
    return yaml.load(Path(beside).with_name(name).read_bytes(), yaml.CSafeLoader)


class _NothingTwice(yaml.SafeLoader):
    """Refuses a key that stands twice: the later would take the place of all that was said."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for at, (key, _) in enumerate(node.value):
            if key.value in keys[:at]:
                line = key.start_mark.line + 1
                raise ValueError(f"line {line}: {key.value} stands twice; expected once")
        return super().construct_mapping(node, deep)


def user_yaml(path: Path, refusal: type[Exception]) -> Any:
    """A file that a user wrote; raises ``refusal`` for what is no YAML or says a thing twice."""
    try:
        return yaml.load(path.read_bytes(), _NothingTwice)
    except OSError as error:
        raise refusal(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: no day of a month
        raise refusal(f"{path} cannot be read: {' '.join(str(error).split())}") from None


COLUMNS: Mapping[str, tuple[str, ...]] = {
    name: tuple(columns) for name, columns in shipped_yaml("columns.yaml").items()
}
OPERATOR_COLUMNS, COLLECTIVE_COLUMNS = COLUMNS["operators"], COLUMNS["collectives"]
MEASUREMENT_COLUMNS = COLUMNS["measurements"]
STORED_MEASUREMENT_COLUMNS = ("id", "source", "source_path", *MEASUREMENT_COLUMNS[5:])


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from: one commit of one public repository under one licence."""

    key: str
    repository: str
    commit: str
    license: str
    citation: str


@cache
def sources(root: Path = HERE) -> Mapping[str, Source]:
    """All sources by key."""
    raw = yaml.load((root / "sources.yaml").read_bytes(), yaml.CSafeLoader) or {}
    return {key: Source(key=key, **entry) for key, entry in raw.items()}


@cache
def texts(root: Path = HERE) -> Mapping[str, str]:
    """Long texts that many rows share, by their reference (``#`` and hex digits)."""
    path = root / "texts.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return dict(row for row in csv.reader(file) if len(row) == 2)


def read_table(path: Path, columns: Sequence[str], root: Path = HERE) -> list[tuple[str, ...]]:
    """The columns of one CSV file, references resolved; raises ProfileDataError on bad rows."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if header != list(columns):
            raise ProfileDataError(f"{path.name}: columns are {header}, expected {list(columns)}")
        try:
            found = list(zip(*reader, strict=True)) or [()] * len(columns)
        except ValueError:
            raise ProfileDataError(f"{path.name}: rows have different lengths") from None
    if len(found) != len(columns):
        raise ProfileDataError(f"{path.name}: rows have {len(found)} cells, not {len(columns)}")
    return [
        _resolved(cells, texts(root), path) if name in COLUMNS["shared"] else cells
        for name, cells in zip(columns, found, strict=True)
    ]


def _resolved(column: tuple[str, ...], known: Mapping[str, str], path: Path) -> tuple[str, ...]:
    try:
        return tuple(known[cell] if cell.startswith("#") else cell for cell in column)
    except KeyError as error:
        raise ProfileDataError(f"{path.name}: reference {error} is not in texts.csv") from None
