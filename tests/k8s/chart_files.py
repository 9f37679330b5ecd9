"""The files of the chart, read without rendering."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "precision-time"
TEMPLATES = tuple(sorted((CHART / "templates").iterdir()))
MANIFESTS = tuple(path for path in TEMPLATES if path.suffix == ".yaml")
ACTION = re.compile(r"\{\{-?\s*(?P<code>.*?)\s*-?\}\}", re.DOTALL)
USED = re.compile(r"\.Values((?:\.\w+)+)")


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text("utf-8")))


def schema() -> dict[str, Any]:
    return dict(json.loads((CHART / "values.schema.json").read_text("utf-8")))


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The paths of a tree that hold no further mapping, or an empty one."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def actions(text: str) -> list[str]:
    """The code of every template action that is no comment."""
    codes = (match["code"] for match in ACTION.finditer(text))
    return [code for code in codes if not code.startswith("/*")]


def used_values() -> set[str]:
    """The paths below ``.Values`` that templates name."""
    found: set[str] = set()
    for path in TEMPLATES:
        for code in actions(path.read_text("utf-8")):
            found |= {match.removeprefix(".") for match in USED.findall(code)}
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects of a manifest, words in the place of what templates would write.

    Both branches of a condition are there; a line that only acts is left out.
    """
    text = re.sub(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", "", path.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"^[ \t]*(?:\{\{[^{}]*\}\}[ \t]*)+$", "", text, flags=re.MULTILINE)
    return [found for found in yaml.safe_load_all(ACTION.sub("PLACEHOLDER", text)) if found]
