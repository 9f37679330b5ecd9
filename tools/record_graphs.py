"""Records networks of libraries as graphs that are read without torch.

Run with ``python tools/record_graphs.py`` to record again all that ``profiles/graphs`` holds, or
with names to add or replace those: ``timm/resnet50d``, with an argument
``timm/densenet121+stem_type=deep``, with one inside another ``+attn_kwargs.rd_ratio=0.125``.
``--missing timm`` adds every classifier of a library. It needs the extra ``graphs``; those of other
libraries (``library_networks``) need these. Nothing is computed and no weights are loaded.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import click
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from library_networks import Network, network
from recording_laws import BATCH, OperatorsAt, Powers, operator_laws, packed, with_batch

from predictor.errors import GraphError
from predictor.graphs.families.stored import Law, SymbolicOperator, value
from predictor.graphs.operator import Direction, Kind, Operator
from predictor.measure.trace.calls import TracedCall
from predictor.measure.trace.laws import folded
from predictor.measure.trace.layers import WholeLayers
from predictor.measure.trace.mapping import mapped
from predictor.measure.trace.recording import CallRecording
from predictor.measure.trace.step import built, cross_entropy, trained
from profiles.recordings import MANIFEST, Recording, manifest, path_of, recordings

MANIFEST_FORMAT = 1
# Pixels from one side to the next: patches of 14, 16 and 32 divide it, and laws of wrong powers do
# not hold so far away.
STEP = 224
FLOPS_TOLERANCE = 0.002
SCORES = frozenset({Kind.SOFTMAX, Kind.BATCHED_GEMM, Kind.ATTENTION})
WEIGHTS = ("parameters", "trainable", "tensors", "inputs")


class MetaRecording(CallRecording):
    """As it is, on tensors of the meta device."""

    def backward_of(self, total: torch.Tensor) -> None:
        """Run the backward pass of a loss on tensors of the meta device.

        Those ask nothing between a node and its operator, so what it reaches is looked up.
        """
        behind, waiting = set(), [total.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in behind:
                behind.add(node)
                waiting += [further for further, _ in node.next_functions]
        total.backward()  # type: ignore[no-untyped-call]
        for node in behind:
            self._visit(node._sequence_nr())


@dataclass(frozen=True, slots=True)
class Attempt:
    """How many sides to trace, and the powers of the side that laws have (``operator_laws``)."""

    sides: int
    fixed: Powers
    grown: Powers


CONVOLUTIONAL = (Attempt(2, (0, 2), (0, 2)), Attempt(3, (0, 1, 2), (0, 1, 2)))
ATTENDING = (
    Attempt(3, (0, 1, 2), (0, 2, 4)),
    Attempt(5, (0, 1, 2, 3, 4), (0, 1, 2, 3, 4)),
)
ONE_SIDE = Attempt(1, (0,), (0,))


class LibraryNetwork:
    """A network of a library, made for the side of an image where the library asks for that.

    Its tensors are those of torch's meta device: shapes without data, and twice as fast as the fake
    tensors of ``precision-time trace``, which networks that nobody knows need.
    """

    def __init__(self, name: str, known: Network | None = None) -> None:
        library, _, rest = name.partition("/")
        self.model, *stated = rest.split("+")
        self._network = known or network(library, self.model, arguments(stated))
        self._modules: dict[int | None, torch.nn.Module] = {}

    @property
    def default_side(self) -> int:
        """The side of the images it is trained with, or the tokens of its texts."""
        return self._network.side

    def at(self, side: int) -> torch.nn.Module:
        """The network for an image; raises GraphError where there is none."""
        key = side if self._network.sized else None
        if key not in self._modules:
            with _possible(self.model, side):
                module = built(lambda: self._network.make(side)).to("meta").train()
                self._modules[key] = module
        return self._modules[key]

    def flops(self, side: int) -> int:
        """FLOPs of the forward pass of two images, as torch counts them."""
        module = self.at(side)
        counter = FlopCounterMode(display=False)
        with _possible(self.model, side), counter, torch.device("meta"):
            module(**self._network.inputs(2, side))
        found: int = counter.get_total_flops()
        return found

    def calls(self, side: int, batch: int) -> tuple[TracedCall, ...]:
        """The operator calls of a training step; raises GraphError for an impossible image.

        Of the second one: the first fills tables of positions that a network keeps.
        """
        module = self.at(side)
        recording = MetaRecording()
        recording.weights(module.parameters())
        module.zero_grad(set_to_none=True)
        with _possible(self.model, side), torch.device("meta"):
            inputs = self._network.inputs(batch, side)
            module(**inputs)
            with recording, WholeLayers(recording):
                found = module(**inputs)
                scalar = isinstance(found, torch.Tensor) and not found.dim()
                # Every output there is: those of auxiliary heads too.
                total = found if scalar else cross_entropy(trained([found]))
                recording.backward_of(total)
        return tuple(recording.calls)

    def inputs(self, side: int) -> int:
        """Elements of one sample that the host sends."""
        with torch.device("meta"):
            return sum(one.numel() for one in self._network.inputs(1, side).values())


def arguments(stated: Sequence[str]) -> dict[str, Any]:
    """Arguments of a network from ``name=value``; ``name.inner=value`` is one inside another."""
    found: dict[str, Any] = {}
    for one in stated:
        name, _, value = one.partition("=")
        outer, _, inner = name.partition(".")
        plain = yaml.safe_load(value)
        found[outer] = found.get(outer, {}) | {inner: plain} if inner else plain
    return found


@contextmanager
def _possible(model: str, side: int) -> Iterator[None]:
    """Raise GraphError for what libraries raise where an image is not possible."""
    try:
        yield
    except (AssertionError, RuntimeError, ValueError) as error:
        raise GraphError(f"{model} takes no side of {side}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded: laws of the operators and of the weights."""

    operators: tuple[SymbolicOperator, ...]
    weights: Mapping[str, Law]
    any_side: bool


def record(network: LibraryNetwork, side: int) -> Recorded:
    """Trace a network at one side and, for the laws of the side, at others where that works.

    Laws must give the FLOPs that torch counts at a side that was not traced.
    """
    at = _traces(network)
    counted = network.flops(side)
    attends = any(o.kind in SCORES for o in at(BATCH, side))
    for attempt in ATTENDING if attends else CONVOLUTIONAL:
        sides = [side + STEP * i for i in range(attempt.sides)]
        try:
            theirs = network.flops(sides[-1] + STEP) / counted
            laws = operator_laws(at, sides, attempt.fixed, attempt.grown)
        except GraphError:
            break
        if laws is None:
            break
        ours = _forward_flops(laws, sides[-1] + STEP) / _forward_flops(laws, side)
        if abs(ours / theirs - 1) < FLOPS_TOLERANCE:
            return _recorded(laws, True)
    laws = operator_laws(at, [side], ONE_SIDE.fixed, ONE_SIDE.grown)
    assert laws is not None  # one trace has the operators of itself
    return _recorded(laws, False)


def _traces(network: LibraryNetwork) -> OperatorsAt:
    """Operators of a batch and a side; numbers of weights come last, in the place of FLOPs."""
    known: dict[int, tuple[TracedCall, ...]] = {}

    def at(batch: int, side: int) -> Sequence[Operator]:
        if side not in known:
            known[side] = network.calls(side, BATCH)
        operators = mapped(with_batch(known[side], batch)).operators
        every = list(network.at(side).parameters())
        trained = [p for p in every if p.requires_grad]
        counts = [sum(p.numel() for p in every), sum(p.numel() for p in trained), len(trained)]
        counts.append(network.inputs(side))
        weights = (Operator(Kind.OPTIMIZER, Direction.UPDATE, (), float(n), 0, 0) for n in counts)
        return (*operators, *weights)

    return at


def _forward_flops(laws: Sequence[SymbolicOperator], side: int) -> float:
    """As torch counts them: of causal attention what its mask leaves out, too."""

    def flops(operator: SymbolicOperator) -> float:
        if operator.kind == Kind.ATTENTION:
            return 4 * prod(value(dim, 2, side) for dim in operator.dims)
        return value(operator.flops, 2, side)

    return sum(flops(o) * o.count for o in laws if o.direction == Direction.FORWARD)


def _recorded(laws: Sequence[SymbolicOperator], any_side: bool) -> Recorded:
    operators, weights = laws[: -len(WEIGHTS)], laws[-len(WEIGHTS) :]
    return Recorded(
        operators=folded(operators),
        weights={name: law.flops for name, law in zip(WEIGHTS, weights, strict=True)},
        any_side=any_side,
    )


def write(name: str, side: int | None) -> Recording:
    """Record one network, write its file, and give its row of the manifest."""
    network = LibraryNetwork(name)
    side = side or network.default_side
    found = record(network, side)
    content = packed(side, found.any_side, found.weights, found.operators)
    path_of(name).parent.mkdir(parents=True, exist_ok=True)
    path_of(name).write_bytes(content)
    attends = any(o.kind in SCORES - {Kind.SOFTMAX} for o in found.operators)
    return Recording(
        name=name,
        sha256=sha256(content).hexdigest(),
        image_size=side,
        parameters=round(value(found.weights["parameters"], 1, side)),
        forward_gflops=float(f"{network.flops(side) / 2e9:.5g}"),
        group="vision-transformer" if attends else "cnn",
    )


def write_manifest(rows: Mapping[str, Recording], libraries: set[str]) -> None:
    """Write the manifest, with the versions of what was just recorded."""
    graphs = {
        name: {
            "sha256": row.sha256,
            "image_size": row.image_size,
            "parameters": row.parameters,
            "forward_gflops": row.forward_gflops,
            "group": row.group,
        }
        for name, row in sorted(rows.items())
    }
    known = manifest()["libraries"] if MANIFEST.exists() else {}
    versions = known | {name: version(name).partition("+")[0] for name in ("torch", *libraries)}
    content = {"format": MANIFEST_FORMAT, "libraries": versions, "graphs": graphs}
    MANIFEST.write_text(json.dumps(content, indent=1) + "\n")


def missing(library: str) -> Iterator[str]:
    """Classifiers of a library that have no recording."""
    source = import_module("timm" if library == "timm" else "torchvision.models")
    for model in source.list_models():
        if f"{library}/{model}" not in recordings():
            yield f"{library}/{model}"


def operators_of_torchvision() -> Any:
    """Schemas of the operators that a torchvision without its compiled part lacks.

    PyPI has torchvision for CUDA alone; its networks are Python, and only ask that these exist.
    """
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


@click.command()
@click.argument("names", nargs=-1)
@click.option("--missing", "library", type=click.Choice(["timm", "torchvision"]))
@click.option("--image-size", type=int, help="Pixels of a side, where not what was recorded last.")
def main(names: tuple[str, ...], library: str | None, image_size: int | None) -> None:
    """Record NAMES, or all that are recorded."""
    warnings.filterwarnings("ignore")
    kept = operators_of_torchvision()
    rows = dict(recordings()) if MANIFEST.exists() else {}
    wanted = list(names) or list(missing(library) if library else rows)
    for name in wanted:
        known = rows.get(name)
        try:
            rows[name] = write(name, image_size or (known.image_size if known else None))
        except (GraphError, RuntimeError, ValueError) as error:
            click.echo(f"{name}: {error}", err=True)
            continue
        click.echo(f"{name}: {rows[name].parameters} parameters")
        write_manifest(rows, {n.partition("/")[0] for n in wanted})
    del kept


if __name__ == "__main__":
    main()
