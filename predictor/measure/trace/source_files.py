"""The Python files that a network named as ``package.module:name`` is written in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def source_files(places: Iterable[str]) -> list[Path]:
    """All files of the packages named, and of what they import from the same directories.

    Of installed packages only their own files: what those import is told by its version.
    """
    found: dict[Path, None] = {}
    for place in places:
        for root in _roots(place):
            _follow(root, place.partition(":")[0].partition(".")[0], found)
    return list(found)


def _roots(place: str) -> Iterator[Path]:
    """Directories that a place's top-level package or module lies in."""
    name = place.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations:
        yield from (Path(where).resolve().parent for where in spec.submodule_search_locations)
    elif spec.origin and spec.has_location:
        yield Path(spec.origin).resolve().parent


def _follow(root: Path, name: str, found: dict[Path, None]) -> None:
    """Add the files of one name below ``root``, and of the names those import."""
    waiting, seen = [name], {name}
    while waiting:
        for path in _files(root, waiting.pop()):
            found[path] = None
            if _INSTALLED.isdisjoint(path.parts):
                named = {match.decode() for match in _IMPORT.findall(path.read_bytes())}
                waiting += sorted(named - seen)
                seen |= named


def _files(root: Path, name: str) -> list[Path]:
    module = root / f"{name}.py"
    return [module] if module.is_file() else sorted((root / name).rglob("*.py"))
