"""What to trace, as the command line states it, and the content it stands for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from ...errors import ArtifactError, JobError
from ...graphs.catalog import shipped_entry
from ...graphs.names import normal
from ...graphs.traced import NAME, Stored, find_traced
from .inputs import Input

TRACER = 3  # raise it when the same network is traced to other operators
_LIBRARIES = ("torch", "transformers")
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One network and the step it is traced in.

    ``factory`` is ``package.module:name``, or None with ``hf_config``, the path of a
    ``config.json`` of transformers. ``task`` names the head where the config names none.
    ``batch_size`` and ``seq_len`` are the sizes that the solved laws are checked at. ``loss`` and
    ``optimizer`` are names, or functions as ``package.module:name``.
    """

    name: str
    factory: str | None = None
    hf_config: str | None = None
    task: str | None = None
    inputs: tuple[Input, ...] = ()
    batch_size: int = 8
    seq_len: int | None = None
    loss: str = "auto"
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        if (self.factory is None) == (self.hf_config is None):
            raise JobError("factory", self.factory, "package.module:name, or --hf-config FILE")
        if self.batch_size < 1:
            raise JobError("batch_size", self.batch_size, "at least 1")
        if self.seq_len is not None and self.seq_len < 1:
            raise JobError("seq_len", self.seq_len, "at least 1")
        if self.seq_len is None and any("S" in i.sizes for i in self.inputs):
            raise JobError("seq_len", None, "a number of tokens, as an input has the size S")

    @property
    def key(self) -> str:
        """Hash of all that the trace depends on: this request, source files, libraries."""
        content = sha256()
        for path in self._sources():
            content.update(path.read_bytes())
        stated = {k: v for k, v in asdict(self).items() if k != "name"}
        stated |= {"tracer": TRACER, "libraries": [_version(name) for name in _LIBRARIES]}
        content.update(json.dumps(stated, sort_keys=True).encode())
        return content.hexdigest()

    def _sources(self) -> Iterator[Path]:
        """The config, and the Python files of what is named."""
        if self.hf_config is not None:
            path = Path(self.hf_config)
            if not path.is_file():
                raise JobError("hf_config", self.hf_config, "a file, a config.json of transformers")
            yield path
        current_directory_first()
        places = (self.factory, self.loss, self.optimizer)
        yield from source_files(place for place in places if place and ":" in place)


def current_directory_first() -> None:
    """Let modules beside the user be imported, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def free_name(name: str) -> str:
    """The name as it is stored; raises JobError where it is not one, or the catalog has it."""
    found = normal(name)
    if not NAME.fullmatch(found):
        raise JobError("name", name, "letters, digits, '.', '_' and '-', at most 64")
    if shipped := shipped_entry(found):
        raise JobError(
            "name", name, f"a name that the catalog does not have (it means {shipped.name} there)"
        )
    return found


def stored_before(request: TraceRequest) -> Stored | None:
    """The stored trace of the same name and content, or None."""
    try:
        found = find_traced(request.name)
    except ArtifactError:
        return None
    return found if found and found.model.key == request.key else None


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


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
