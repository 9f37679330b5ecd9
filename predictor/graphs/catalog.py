"""The model catalog: names as people write them -> entry -> operator graph."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from math import inf
from typing import Any

from profiles.storage import shipped_yaml
from profiles.tables import models

from ..errors import GraphError, JobError, UnknownModelError
from ..job.words import accepted
from .builder import Dims, GraphBuilder
from .families import arguments_of, builder_of
from .families.stored import FAMILY, find_traced, traced_models
from .names import Meaning, meaning_of, nearest, normal, why_refused
from .operator import WIDE, Direction, Graph, Kind, Operator, Workload, is_forward

Pairs = tuple[tuple[str, str], ...]

# Keys of `variant` that sources spell otherwise than the builders do, and those of heads.
_VARIANTS = shipped_yaml("variants.yaml", __file__)
_SPELLINGS, _HEADS = _VARIANTS["keys"], _VARIANTS["heads"]
# Arguments that every family takes: what is trained of the network.
FINETUNING = {"finetune": "str", "lora_rank": "int"}
RANK = 16
CORES = frozenset({Kind.ATTENTION, Kind.BATCHED_GEMM})
# Gradients of these are of weights alone.
WEIGHED = frozenset({Kind.GEMM, Kind.CONV, Kind.EMBEDDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One network of the catalog.

    ``architecture`` are the keyword arguments of the family's builder. ``units`` say how many
    tokens or frames one sample holds where a field reports those; ``longest`` is its most tokens
    beside sound of a fixed length. ``forward_gflops`` counts a multiply-add as two, for one sample
    at the default workload. ``fixed`` sizes have one value; ``left_out`` is a part without a graph.
    """

    name: str
    family: str
    group: str
    architecture: Mapping[str, Any]
    source: str
    aliases: tuple[str, ...] = ()
    image_size: tuple[int, ...] | None = None
    seq_len: int | None = None
    longest: int | None = None
    optimizer: str = "sgd"
    dataset_size: int | None = None
    units: Mapping[str, float] = field(default_factory=dict)
    parameters: int | None = None
    forward_gflops: float | None = None
    fixed: tuple[str, ...] = ()
    left_out: str = ""

    def samples_of(self, unit: str, seq_len: int | None) -> float:
        """How many ``unit`` (images, sequences, tokens, frames ...) one sample counts as."""
        kind = unit.removesuffix("/s")
        if kind == "tokens":
            return self.units.get("tokens") or float(seq_len or self.seq_len or 1)
        return self.units.get(kind, 1.0)

    def sized(self, size: int | Sequence[int]) -> tuple[int, ...]:
        """An image size in all axes of the network, one number for each; raises JobError."""
        axes = (size,) if isinstance(size, int) else tuple(size)
        count = len(self.image_size or ())
        if len(axes) in (1, count) and count:
            return axes if len(axes) == count else axes * count
        expected = f"expected H or {'x'.join('HWD'[:count])}, as {self.name} takes it"
        none = f"{self.name} takes no images; leave it out"
        raise JobError("image_size", "x".join(map(str, axes)), expected if count else none)

    def check_tokens(self, stated: Mapping[str, object]) -> None:
        """Raise JobError where fields tell of tokens, and the network takes none."""
        for name in ("seq_len", "mean_seq_len"):
            if self.seq_len is None and stated.get(name):
                raise JobError(name, stated[name], f"{self.name} takes no tokens; leave it out")


def find_entry(name: str, library: str = "") -> ModelEntry | None:
    """The entry a name means, or None; ``library`` (``torchvision:``) is looked in first.

    A name that states sizes of its own means an entry with those sizes, under that name. What
    means no shipped network may be one that the user traced.
    """
    return shipped_entry(name, library) or traced_entry(name)


@lru_cache(maxsize=4096)
def shipped_entry(name: str, library: str = "") -> ModelEntry | None:
    """As ``find_entry``, without the networks that the user traced."""
    meaning = meaning_of(name, library)
    return None if meaning is None else _variant(_entry(meaning.entry), meaning)


def entry_of(name: str, library: str = "") -> ModelEntry:
    """As ``find_entry``; raises UnknownModelError with the nearest names or the reason."""
    entry = find_entry(name, library)
    if entry is None:
        raise UnknownModelError(name, nearest(name), why_refused(name, library))
    return entry


def like(name: str) -> tuple[ModelEntry, ...]:
    """The entry a name means and those that hold it as a part; raises UnknownModelError if none."""
    part = normal(name)
    meant = find_entry(name)
    found = {} if meant is None else {meant.name: meant}
    found |= {e.name: e for e in entries() if any(part in normal(n) for n in (e.name, *e.aliases))}
    if not found:
        raise UnknownModelError(name, nearest(name), why_refused(name))
    return tuple(found.values())


def entries() -> tuple[ModelEntry, ...]:
    """Every shipped entry, in the order of the files."""
    return tuple(_entry(name) for name in models())


def traced_entry(name: str) -> ModelEntry | None:
    """The entry of a network that the user traced, or None; its name ends in the trace's hash."""
    found = find_traced(normal(name))
    if found is None:
        return None
    model = found.model
    return ModelEntry(
        name=found.name,
        family=FAMILY,
        group=model.group,
        aliases=(model.name,),
        architecture={"trace": found.name},
        image_size=model.image_size,
        seq_len=model.seq_len,
        optimizer=found.name if model.update else model.optimizer,
        parameters=model.parameters,
        source=model.source,
        fixed=model.fixed,
    )


def import_builders() -> None:
    """Import what makes the graphs of all networks: longer than a first job may take."""
    for family in {entry.family for entry in entries()}:
        builder_of(family)


def traced_entries() -> tuple[ModelEntry, ...]:
    """Every network that the user traced and that no shipped name hides."""
    found = (traced_entry(stored.name) for stored in traced_models())
    return tuple(e for e in found if e and shipped_entry(e.aliases[0]) is None)


@cache
def _entry(name: str) -> ModelEntry:
    stated = dict(models()[name])
    stated |= stated.pop("defaults")
    listed = {k: tuple(stated[k]) for k in ("aliases", "image_size") if stated.get(k)}
    return ModelEntry(name=name, **stated | listed)


def _variant(entry: ModelEntry, meaning: Meaning) -> ModelEntry:
    side, changes = meaning.image_size, {k: _value(v) for k, v in meaning.architecture}
    size = (side,) * len(entry.image_size or ()) if side else entry.image_size
    if size == entry.image_size and not changes:
        return entry
    stated = ", ".join(f"{k}={v}" for k, v in changes.items()) or f"{side} pixels"
    left_out = str(changes.pop("left_out", entry.left_out))
    return replace(
        entry,
        name=meaning.name,
        aliases=(),
        architecture={**entry.architecture, **changes},
        image_size=size,
        parameters=None,
        forward_gflops=None,
        source=f"{entry.name} with {stated}, as the name says; {entry.source}",
        left_out=left_out,
    )


@cache
def _accepted(family: str) -> Mapping[str, str]:
    """Keyword arguments of a family's builder -> their annotation and default."""
    return {**FINETUNING, **arguments_of(family)}


def overrides(entry: ModelEntry, variant: Pairs) -> Pairs:
    """A job's ``variant`` as arguments of the family's builder.

    Raises JobError, with the nearest keys, for a key, a value or heads that it does not take.
    """
    found: dict[str, str] = {}
    for key, value in variant:
        argument = _argument(entry, key, value)
        if argument is None:
            known = _accepted(entry.family)
            spelled = [word for word, name in _SPELLINGS.items() if name in known]
            kind = known.get(_SPELLINGS.get(key, key))
            expected = accepted(key, (*known, *spelled))
            if kind:
                expected = _refusal(_SPELLINGS.get(key, key), kind, _value(value))
            raise JobError("variant", f"{key}={value}", expected)
        found |= [argument]
    sizes = {**entry.architecture, **{name: _value(value) for name, value in found.items()}}
    free = "head_dim" in sizes or "int = " in _accepted(entry.family).get("head_dim", "")
    for part, whole in (("heads", "hidden"), ("kv_heads", "heads"))[free:]:
        own, shared = sizes.get(part), sizes.get(whole)
        named = next((name for name in (part, whole) if name in found), None)
        if named and own and shared and shared % own:
            expected = f"expected {whole}={shared} to be a multiple of {part}={own}"
            raise JobError("variant", f"{named}={found[named]}", expected)
    experts, topk = sizes.get("experts"), _accepted(entry.family).get("topk", "")
    if experts and {"experts", "topk"} & found.keys():
        taken = sizes.get("topk", int(topk.rpartition(" ")[2] or 1))
        if taken > experts:
            expected = f"a token goes to at most experts={experts}"
            raise JobError("variant", f"topk={taken}", expected)
    return tuple(sorted(found.items()))


def understood_variant(entry: ModelEntry, variant: Pairs) -> Pairs:
    """The part of a variant, as a table of measurements has it, that the builder understands."""
    return tuple(pair for pair in variant if _argument(entry, *pair) is not None)


def _argument(entry: ModelEntry, key: str, value: str) -> tuple[str, str] | None:
    """The builder's argument and value that one pair of a variant means, None if it means none."""
    known = _accepted(entry.family)
    if key in _HEADS and "head" in known:
        return "head", _HEADS[key]
    if key.startswith("no_") and "bool" in known.get(key[3:], ""):
        return key[3:], "off"
    name = _SPELLINGS.get(key, key)
    fits = name in known and not _refusal(name, known[name], _value(value))
    return (name, value) if fits else None


def _refusal(name: str, kind: str, value: float | str) -> str:
    """What an argument of that annotation and default expects; empty where the value is that."""
    words, _, default = kind.partition(" = ")
    if "str" in words.split(" | "):
        known, word = _VARIANTS["words"].get(name), str(value).lower()
        return "" if known is None or word in known else accepted(word, known)
    if words == "bool":
        return "" if value in (False, True) else "expected on or off"
    if words == "float":
        fits = not isinstance(value, str) and 0 < value < inf
        return "" if fits else "expected a positive number"
    least = 0 if default == "0" else 1
    fits = type(value) is int and value >= least
    return "" if fits else f"expected a whole number of at least {least}"


def _value(text: str) -> int | float | bool | str:
    if text in ("on", "true", "yes", "off", "false", "no"):
        return text in ("on", "true", "yes")
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    trailing = re.search(r"-(\d{4,})$", text) or re.match(r"(\d{4,})\(", text)
    return int(trailing[1]) if trailing else text


@lru_cache(maxsize=512)
def graph_of(name: str, changes: Pairs, work: Workload) -> Graph:
    """The operator graph of a catalog name; raises GraphError naming what is missing."""
    entry = entry_of(name)
    build = builder_of(entry.family)
    arguments = dict(entry.architecture) | {k: _value(v) for k, v in changes}
    tuned = {name: arguments.pop(name) for name in FINETUNING if name in arguments}
    rank = work.adapter_rank or (tuned.get("finetune") == "lora" and tuned.get("lora_rank", RANK))
    builder = GraphBuilder(work)
    try:
        build(builder, **arguments)
    except TypeError as error:
        missing = re.search(r"missing \d+ required positional arguments?: (.*)", str(error))
        if missing is None:
            raise GraphError(f"{entry.name}: {error}") from error
        raise GraphError(
            f"{entry.name} has no sizes of its own: give {missing[1]} as variant, "
            "for example layers=24;hidden=1024;heads=16"
        ) from error
    if rank:
        return adapted(builder.build(), int(rank), work)
    return head_alone(builder.build()) if work.frozen else builder.build()


def adapted(graph: Graph, rank: int, work: Workload) -> Graph:
    """The graph with adapters of ``rank`` beside the projections of attention, which train alone.

    Data gradients still flow through what is frozen (arXiv 2106.09685); weights kept in fewer bits
    are widened for every use. Megatron's recipes adapt what enters attention alone; where it is
    asked for, all of a layer is adapted. Networks without attention have adapters beside every
    repeated matrix product, and where there is none nothing is added.
    """
    entering, leaving = _projections(graph)
    repeated = {i for i, o in enumerate(graph.operators) if o.kind is Kind.GEMM and o.count > 1}
    attention = entering.keys() | (set() if work.joint_adapters else leaving)
    beside = repeated if work.adapts_all else attention or repeated
    products = [i for i in sorted(repeated) if is_forward(graph.operators[i])]
    sizes = [graph.operators[i].dims for i in products]
    after = zip(products, pairwise(sizes), strict=False)
    gated = {i for i, (own, following) in after if own[1] == 2 * following[2]}  # gate and up
    builder = GraphBuilder(Workload(work.batch_size))
    operators: list[Operator] = []
    for index, operator in enumerate(graph.operators):
        if index in beside and is_forward(operator):
            before = len(builder.build().operators)
            modules = 0 if work.joint_adapters else entering.get(index, 1 + (index in gated))
            with builder.repeat(int(operator.count)):
                _adapter(builder, operator.dims, rank, modules, wide=work.wide_adapters)
            operators += builder.build().operators[before:]
        if not _of_weights(operator):
            operators.append(operator)
        if work.base_bits and index in repeated and is_forward(operator):
            operators.append(_widened(operator, work.base_bits))
    added = builder.build()
    return replace(
        graph,
        operators=tuple(operators),
        parameters=graph.parameters + added.parameters,
        trainable_parameters=added.parameters,
        parameter_tensors=added.parameter_tensors,
        sparse_parameters=0,
    )


def _adapter(b: GraphBuilder, dims: Dims, rank: int, modules: int, *, wide: bool) -> None:
    """Both products of adapters, scaling and sum, beside a product that joins ``modules`` layers.

    ``wide`` ones are widened, dropped out, narrowed, scaled and added a kernel each, as counted on
    PEFT's layer. 0: one adapter of Megatron's, in the format of the base and without dropout.
    """
    rows, out, width = dims
    with b.repeat(max(1, modules)):
        if modules and wide:
            b.chain(rows * width, (5, 5.5, 3), (7.5, 6, 4), "dropout")
        elif modules:
            b.dropout(rows * width)
        b.linear(rows, width, rank, bias=False)
    b.linear(rows, rank, out, bias=False)
    b.chain(rows * out, (3, 2, 2) if wide else (2, 1, 1), (1, 1, 1), "add")


def _widened(product: Operator, bits: int) -> Operator:
    """The frozen weights of a product, written out in 16 bits for its forward and backward pass."""
    weights = product.dims[1] * product.dims[2]
    reads, size = weights * bits / 16, (1, weights)
    way = Direction.DATA_GRADIENT
    return Operator(Kind.CAST, way, size, 0.0, reads, weights, 1.0, 2 * product.count, WIDE)


def head_alone(graph: Graph) -> Graph:
    """The graph with its last matrix product trained on a body that only runs forward."""
    heads = [i for i, o in enumerate(graph.operators) if o.kind is Kind.GEMM and is_forward(o)]
    if not heads:
        return graph
    body, behind = graph.operators[: heads[-1] + 1], graph.operators[heads[-1] + 1 :]
    kept = filter(is_forward, body)
    head = (o for o in behind if is_forward(o) or _of_weights(o) or o.kind is not Kind.GEMM)
    _, out, width = body[-1].dims
    times = body[-1].count
    return replace(
        graph,
        operators=(*kept, *head),
        trainable_parameters=round(out * width * times) + out,
        parameter_tensors=2,
        sparse_parameters=0,
    )


def _projections(graph: Graph) -> tuple[dict[int, int], set[int]]:
    """Where the products into the attention of repeated layers stand, and those out of it.

    Into it with how many layers each joins: a single one makes queries, keys and values.
    """
    into: dict[int, int] = {}
    out: set[int] = set()
    entering: list[int] = []
    leaving = False
    for index, operator in enumerate(graph.operators):
        if not is_forward(operator):
            continue
        if operator.kind is Kind.LAYER_NORM:
            entering = []
        elif operator.kind in CORES and operator.count > 1:
            into |= dict.fromkeys(entering, 3 if len(entering) == 1 else 1)
            entering, leaving = [], True
        elif operator.kind is Kind.GEMM and operator.count > 1:
            if leaving:
                out.add(index)
            else:
                entering.append(index)
            leaving = False
    return into, out


def _of_weights(operator: Operator) -> bool:
    return operator.direction is Direction.WEIGHT_GRADIENT and operator.kind in WEIGHED
