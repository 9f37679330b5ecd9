"""What to trace, as the command line states it: a network, its inputs, and the content they are.

In the shapes of inputs ``B`` and ``S`` stand for batch and sequence.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import ArtifactError, JobError
from ...graphs.catalog import shipped_entry
from ...graphs.families.stored import NAME, Stored, find_traced
from ...graphs.names import normal

TRACER = 3  # raise it when the same network is traced to other operators
_LIBRARIES = ("torch", "transformers")
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_DTYPES = "float32, float16, bfloat16, float64, int64, int32, int16, int8, uint8, bool"
_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dims>[\dS,x ]*)(?::(?P<dtype>\w+))?")
_ACCEPTED = (
    "expected [NAME=]SIZES[:DTYPE] of one sample, such as 3,224,224 or input_ids=S:int64, where S"
    " is the sequence length"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One argument of ``forward``: sizes with the batch first; 'B' and 'S' are symbols."""

    sizes: tuple[int | str, ...]
    dtype: str = "float32"
    name: str | None = None

    def shape(self, batch: int, seq_len: int) -> tuple[int, ...]:
        """The sizes for one batch size and sequence length."""
        symbols = {"B": batch, "S": seq_len}
        return tuple(symbols[s] if isinstance(s, str) else s for s in self.sizes)


def parsed(spec: str, dtype: str) -> Input:
    """An input as the command line states it; raises JobError."""
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise JobError("input", spec, _ACCEPTED)
    words = [w for w in re.split(r"[,x ]+", match["dims"]) if w]
    sizes = tuple("S" if word == "S" else int(word) for word in words)
    if 0 in sizes:
        raise JobError("input", spec, "expected sizes of at least 1")
    given = match["dtype"] or dtype
    if given not in _DTYPES.split(", "):
        raise JobError("dtype", given, f"expected one of {_DTYPES}")
    return Input(sizes=("B", *sizes), dtype=given, name=match["name"])


def of_examples(examples: Any, seq_len: int | None) -> tuple[tuple[Input, ...], int]:
    """Inputs like these tensors and their batch size; sizes equal to ``seq_len`` are the sequence.

    Raises JobError where they have no batch size in common, or no size that is ``seq_len``.
    """
    if not isinstance(examples, Mapping):
        several = examples if isinstance(examples, list | tuple) else (examples,)
        examples = dict(enumerate(several))
    inputs, batches = [], set()
    for name, tensor in examples.items():
        shape = tuple(getattr(tensor, "shape", ()))
        if not shape:
            raise JobError("example_inputs", type(tensor).__name__, "expected tensors, batch first")
        rest = tuple("S" if seq_len and size == seq_len else int(size) for size in shape[1:])
        dtype = str(tensor.dtype).removeprefix("torch.")
        named = None if isinstance(name, int) else str(name)
        inputs.append(Input(sizes=("B", *rest), dtype=dtype, name=named))
        batches.add(int(shape[0]))
    if len(batches) != 1:
        raise JobError(
            "example_inputs", sorted(batches), "expected tensors of one batch size, their first"
        )
    if seq_len and not any("S" in one.sizes for one in inputs):
        raise JobError("seq_len", seq_len, "expected a size of one of the example_inputs")
    return tuple(inputs), batches.pop()


def image_size_of(inputs: Sequence[Input]) -> tuple[int, ...] | None:
    """Pixels of the first input that is a feature map of two or three axes."""
    for one in inputs:
        axes = one.sizes[2:]
        if one.dtype.startswith(("float", "bfloat")) and len(axes) in (2, 3) and "S" not in axes:
            return tuple(int(a) for a in axes)
    return None


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
            raise JobError("factory", self.factory, "expected package.module:name or --hf-config")
        if self.batch_size < 1:
            raise JobError("batch_size", self.batch_size, "expected at least 1")
        if self.seq_len is not None and self.seq_len < 1:
            raise JobError("seq_len", self.seq_len, "expected at least 1")
        if self.seq_len is None and any("S" in i.sizes for i in self.inputs):
            raise JobError("seq_len", None, "expected a number of tokens: an input has S")

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
                raise JobError("hf_config", self.hf_config, "expected a config.json")
            yield path
        current_directory_first()
        found: dict[Path, None] = {}
        for place in (self.factory, self.loss, self.optimizer):
            if place and ":" in place:
                _follow(place.partition(":")[0].partition(".")[0], found)
        yield from found


def current_directory_first() -> None:
    """Let modules beside the user be imported, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def free_name(name: str) -> str:
    """The name as it is stored; raises JobError where it is not one, or the catalog has it."""
    found = normal(name)
    if not NAME.fullmatch(found):
        raise JobError("name", name, "expected letters, digits, '.', '_' and '-', at most 64")
    if shipped := shipped_entry(found):
        raise JobError(
            "name",
            name,
            f"expected a name that is not in the catalog, as this is for {shipped.name}",
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


def _follow(name: str, found: dict[Path, None]) -> None:
    """Add all files of a package or module, and of what they import from the same directories.

    Of installed packages only their own files: what those import is told by its version.
    """
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return
    roots: list[Path] = []
    if spec is not None and spec.submodule_search_locations:
        roots = [Path(where).resolve().parent for where in spec.submodule_search_locations]
    elif spec is not None and spec.origin and spec.has_location:
        roots = [Path(spec.origin).resolve().parent]
    for root in roots:
        waiting, seen = [name], {name}
        while waiting:
            part = waiting.pop()
            module = root / f"{part}.py"
            for path in [module] if module.is_file() else sorted((root / part).rglob("*.py")):
                found[path] = None
                if _INSTALLED.isdisjoint(path.parts):
                    named = {match.decode() for match in _IMPORT.findall(path.read_bytes())}
                    waiting += sorted(named - seen)
                    seen |= named
