"""Networks that a library defines or a user traced: their operators as the tracer recorded them.

They are read without torch. ``profiles/graphs`` holds one file a network of a library, written by
``tools/record_graphs.py``, and a manifest with their hashes; sizes are laws of the batch size and
of the pixels along one side of the image, or of the tokens of a text. What a user traced lies as
JSON in ``traced`` under the home directory, and its sizes depend on batch and sequence length. The
name of such an entry carries the hash of its file (``mynet@1f0c22ab``), so that no cache takes one
trace for another.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from math import prod, sqrt
from pathlib import Path
from typing import Any

from profiles.recordings import path_of, recordings

from ... import trusted_files as files
from ...errors import ArtifactError, GraphError
from ..builder import GraphBuilder
from ..operator import Direction, Kind, Operator, Workload

FORMAT = 1  # raise it when what was stored before means something else
FAMILY = "traced"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DIGITS = 8

# Terms (coefficient, power of the batch size, power of the sequence length); their sum is a size.
Law = tuple[tuple[float, int, int], ...]
RECORDING_FORMAT = 1
CHANNELS = 3


def value(law: Law, batch: int, seq_len: float) -> float:
    """The size a law gives for a batch size and a sequence length."""
    return sum((c * float(batch**i * seq_len**j) for c, i, j in law), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicOperator:
    """An operator whose sizes are laws of batch size and sequence length."""

    kind: str
    direction: str
    dims: tuple[Law, ...]
    flops: Law
    reads: Law
    writes: Law
    kernels: Law
    count: int = 1
    function: str = ""
    origins: tuple[str, ...] | None = None

    def at(self, batch: int, seq_len: int) -> Operator:
        """The operator of one micro-batch."""

        def size(law: Law) -> float:
            return value(law, batch, seq_len)

        return Operator(
            Kind(self.kind),
            Direction(self.direction),
            tuple(round(size(d)) for d in self.dims),
            size(self.flops),
            size(self.reads),
            size(self.writes),
            size(self.kernels),
            self.count,
            self.function,
            self.origins,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a traced optimizer step moves and launches; ``products`` are priced by bytes alone."""

    bytes_per_parameter: float
    state_bytes_per_parameter: float
    launches_per_tensor: float
    products: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """A traced network.

    ``batch_size`` and ``seq_len`` are those it was traced with; ``any_batch`` and ``any_seq_len``
    say whether others can be computed. Parameters are counts of elements. ``group`` is the kind of
    network in the words of the catalog. ``unknown`` names the operators that are priced by their
    bytes alone, ``key`` the content it was traced from. ``update`` is that of an optimizer of the
    user's own.
    """

    name: str
    key: str
    group: str
    batch_size: int
    any_batch: bool
    seq_len: int | None
    any_seq_len: bool
    image_size: tuple[int, ...] | None
    optimizer: str
    parameters: int
    trainable_parameters: int
    parameter_tensors: int
    sparse_parameters: int
    input_elements: Law
    operators: tuple[SymbolicOperator, ...]
    unknown: tuple[str, ...]
    source: str
    update: Update | None = None

    @property
    def fixed(self) -> tuple[str, ...]:
        """Sizes that can only be those it was traced with."""
        of_any = {"batch_size": self.any_batch, "seq_len": self.any_seq_len, "image_size": False}
        return tuple(name for name, free in of_any.items() if getattr(self, name) and not free)

    def operators_at(self, work: Workload) -> Iterator[Operator]:
        """The operators of a micro-batch; raises GraphError for what was not traced."""
        for field in self.fixed:
            asked, known = getattr(work, field), getattr(self, field)
            if asked not in (None, known):
                raise GraphError(
                    f"{self.name} was traced with {field} {known}, and cannot be computed for"
                    f" {asked}: trace it again with that size"
                )
        seq_len = work.seq_len or self.seq_len or 0
        return (operator.at(work.batch_size, seq_len) for operator in self.operators)

    def encode(self) -> bytes:
        """The JSON it is stored as; the same network always gives the same bytes."""
        return json.dumps({"format": FORMAT} | asdict(self), separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Stored:
    """A traced network, and the name with its hash."""

    name: str
    model: TracedModel


def find_traced(name: str) -> Stored | None:
    """The traced network of a name, with or without its hash, or None.

    Raises ArtifactError where the file may not be trusted or cannot be read.
    """
    plain, _, digest = name.strip().lower().partition("@")
    if not NAME.fullmatch(plain):
        return None
    path = _folder() / f"{plain}.json"
    try:
        for parent in (path.parent.parent, path.parent):
            files.trusted(parent)
        status = files.trusted(path).stat()
    except FileNotFoundError:
        return None
    found = _read(path, status.st_mtime_ns, status.st_size)
    return found if digest in ("", found.name.partition("@")[2]) else None


def traced_models() -> Iterator[Stored]:
    """Every traced network, by name."""
    folder = _folder()
    if folder.is_dir():
        for path in sorted(folder.glob("[!.]*.json")):
            if found := find_traced(path.stem):
                yield found


def store(model: TracedModel) -> Stored:
    """Write a traced network, in the place of one of the same name; raises ArtifactError."""
    folder = _folder()
    with files.exclusive(folder.parent):
        folder.mkdir(files.DIRECTORY_MODE, exist_ok=True)
        files.trusted(folder)
        (folder / f"{files.DRAFT_PREFIX}{model.name}.json").unlink(missing_ok=True)
        files.replace_text(folder / f"{model.name}.json", model.encode().decode())
    found = find_traced(model.name)
    if found is None:
        raise ArtifactError(f"{model.name} was removed while it was written")
    return found


def _folder() -> Path:
    return files.home() / "traced"


@lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int, size: int) -> Stored:
    content = path.read_bytes()
    try:
        raw = json.loads(content)
        if raw.pop("format") != FORMAT:
            raise ArtifactError(f"{path} has another format: trace the network again")
        model = _decoded(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} holds no traced network: trace it again") from error
    return Stored(f"{model.name}@{sha256(content).hexdigest()[:_DIGITS]}", model)


def _decoded(raw: dict[str, Any]) -> TracedModel:
    image, update = raw["image_size"], raw.get("update")
    changed = {
        "operators": tuple(_operator(o) for o in raw["operators"]),
        "image_size": image and tuple(image),
        "input_elements": law_of(raw["input_elements"]),
        "unknown": tuple(raw["unknown"]),
        "update": update and Update(**{**update, "products": tuple(update["products"])}),
    }
    return TracedModel(**raw | changed)


def _operator(raw: dict[str, Any]) -> SymbolicOperator:
    changed: dict[str, Any] = {k: law_of(raw[k]) for k in ("flops", "reads", "writes", "kernels")}
    origins = raw.get("origins")
    changed |= {
        "kind": Kind(raw["kind"]).value,
        "direction": Direction(raw["direction"]).value,
        "dims": tuple(map(law_of, raw["dims"])),
        "origins": None if origins is None else tuple(origins),
    }
    return SymbolicOperator(**raw | changed)


def law_of(raw: Sequence[Sequence[float]]) -> Law:
    """A law from its terms as JSON has them."""
    return tuple((float(c), int(i), int(j)) for c, i, j in raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGraph:
    """The operators of a network for any batch size and image, or length of a text.

    ``side`` are the pixels (tokens) it was recorded with. Where ``any_side`` is false no law of the
    side was found (windows that are padded, fixed positions): what grows with the batch is then
    taken to grow with the pixels. ``weights`` are laws of the number of parameters, of those that
    are trainable, of their tensors, and of the inputs of a sample where that is no image of three
    channels. In the rows of ``operators`` (kind, direction, dims, flops, reads, writes, kernels,
    count, function, origins) sizes are places in ``laws``; ``sequence`` are places in
    ``operators``, in the order they run.
    """

    name: str
    side: int
    any_side: bool
    weights: Mapping[str, Law]
    laws: tuple[Law, ...]
    operators: tuple[tuple[Any, ...], ...]
    sequence: tuple[int, ...]

    def operators_at(self, batch: int, image: tuple[int, ...]) -> list[Operator]:
        """The operators of a micro-batch; raises GraphError where its laws do not reach."""
        sizes = [self.size(law, batch, image) for law in self.laws]
        if min(sizes) < 0:
            asked = "x".join(map(str, image))
            raise GraphError(f"{self.name} was recorded at {self.side}, too far from {asked}")
        whole = [round(size) for size in sizes]
        sized = [
            Operator(
                kind, direction, tuple([whole[i] for i in dims]), *[sizes[i] for i in moved], *rest
            )
            for kind, direction, dims, moved, rest in self.operators
        ]
        return [sized[i] for i in self.sequence]

    def size(self, law: Law, batch: int, image: tuple[int, ...]) -> float:
        """What a law gives; an image that is no square counts as the square of its pixels."""
        pixels = prod(image)
        if self.any_side:
            return value(law, batch, sqrt(pixels) if len(set(image)) > 1 else image[0])
        share = pixels / self.side ** len(image)
        return sum((c * float(batch**i) * (share if i else 1.0) for c, i, _ in law), 0.0)


@lru_cache(maxsize=256)
def recorded_graph(name: str) -> RecordedGraph:
    """The recording of ``library/model``; raises GraphError where it is missing or was changed."""
    known = recordings().get(name)
    if known is None:
        raise GraphError(f"no recorded graph is named {name}")
    try:
        packed = path_of(name).read_bytes()
    except OSError as error:
        raise GraphError(f"the recorded graph of {name} cannot be read: {error}") from error
    if sha256(packed).hexdigest() != known.sha256:
        raise GraphError(f"the recorded graph of {name} is not the one of the manifest")
    return unpacked(name, packed)


def unpacked(name: str, packed: bytes) -> RecordedGraph:
    """What a file of ``profiles/graphs`` holds; raises GraphError for another format."""
    raw = json.loads(gzip.decompress(packed))
    if raw["format"] != RECORDING_FORMAT:
        raise GraphError(f"the recorded graph of {name} has another format: record it again")
    laws = tuple(law_of(law) for law in raw["laws"])
    return RecordedGraph(
        name=name,
        side=raw["side"],
        any_side=raw["any_side"],
        weights={key: laws[place] for key, place in raw["weights"].items()},
        laws=laws,
        operators=tuple(_row(raw["origins"], *row) for row in raw["operators"]),
        sequence=tuple(raw["sequence"]),
    )


def _row(
    names: Sequence[Sequence[str]], kind: str, direction: str, dims: Sequence[int], *rest: Any
) -> tuple[Any, ...]:
    *moved, count, function, origins = rest
    known = None if origins is None else tuple(names[origins])
    return Kind(kind), Direction(direction), tuple(dims), moved, (float(count), function, known)


def recorded(b: GraphBuilder, graph: str, contrast: int = 0) -> None:
    """The recording ``graph`` (``timm/resnet50``) for the batch and the image of the micro-step.

    One without images is for its tokens. Attention was recorded as one operator; without fused
    attention it is two products with a softmax between. Two towers end in a space ``contrast``
    wide, where every image meets every text of the micro-batch. Raises GraphError for a split over
    GPUs.
    """
    _check_whole(b, graph)
    found = recorded_graph(graph)
    image = b.work.image_size or (b.work.tokens,)
    if len(image) == 1 and not found.any_side and image[0] != found.side:
        raise GraphError(f"{graph} was recorded with {found.side} tokens: seq_len can only be that")
    held = {key: found.size(law, 1, image) for key, law in found.weights.items()}
    b.input(held.get("inputs", CHANNELS * image[0] * image[-1]))
    trained = round(held["trainable"])
    b.parameters(trained, round(held["tensors"]))
    with b.frozen():
        b.parameters(round(held["parameters"]) - trained)
    for operator in found.operators_at(b.batch_size, image):
        if b.work.flash_attention or operator.kind is not Kind.ATTENTION:
            b.take((operator,))
        elif operator.direction is Direction.FORWARD:
            queries, keys, width, groups = operator.dims
            with b.repeat(int(operator.count)), b.formats(operator.origins or (), ()):
                b.attention(groups, queries, keys, width, batch=1, dropout=False)
    if contrast:
        b.batched_matmul(1, b.batch_size, b.batch_size, contrast)
        for _ in ("images", "texts"):
            b.cross_entropy(b.batch_size, b.batch_size)


def traced(b: GraphBuilder, trace: str) -> None:
    """The stored network ``trace``, a name with its hash, for the sizes of the micro-step."""
    found = find_traced(trace)
    if found is None:
        raise GraphError(f"the traced network {trace} was replaced or removed")
    model = found.model
    _check_whole(b, model.name)
    seq_len = b.work.seq_len or model.seq_len or 0
    b.input(value(model.input_elements, b.batch_size, seq_len) / b.batch_size)
    b.parameters(model.trainable_parameters - model.sparse_parameters, model.parameter_tensors)
    b.parameters(model.sparse_parameters, 0, sparse=True)
    with b.frozen():
        b.parameters(model.parameters - model.trainable_parameters)
    b.take(model.operators_at(b.work))


def _check_whole(b: GraphBuilder, name: str) -> None:
    """Raise GraphError where GPUs share what was traced on one."""
    for cut in ("tensor_parallel", "context_parallel", "expert_parallel"):
        if getattr(b.work, cut) > 1:
            raise GraphError(f"{name} was recorded whole: {cut} can only be 1")
