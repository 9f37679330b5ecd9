"""Where the operators of a micro-step are collected: scopes, weights, and the feature map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from .operator import PRODUCT_KINDS, Direction, Graph, Kind, Operator

FORWARD = Direction.FORWARD
DATA_GRADIENT = Direction.DATA_GRADIENT
WEIGHT_GRADIENT = Direction.WEIGHT_GRADIENT

Origins = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature map of one sample: channels and spatial size (1, 2 or 3 axes)."""

    channels: int
    size: tuple[int, ...]

    @property
    def positions(self) -> int:
        """Spatial positions of one sample."""
        return prod(self.size)

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return self.channels * self.positions

    def with_channels(self, channels: int) -> Feature:
        """The same positions with another channel count (a concatenation, a split)."""
        return Feature(channels, self.size)


def axes(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """One value per axis."""
    return (value,) * rank if isinstance(value, int) else value


class Recorder:
    """Collects the operators and parameters of one micro-step of ``batch_size`` samples."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._operators: list[Operator] = []
        self._repeat = 1
        self._trainable = True
        self._backward = True
        self._parameters = 0
        self._trainable_parameters = 0
        self._parameter_tensors = 0
        self._sparse_parameters = 0
        self._input_elements = 0.0
        self._synchronous = False
        self._given: Origins = None
        self._entering: Origins = None
        self._result: Origins = None
        self._function = ""

    # --- scopes -----------------------------------------------------------------------------

    @contextmanager
    def repeat(self, times: int) -> Iterator[None]:
        """Everything inside stands ``times`` times, weights included."""
        outer = self._repeat
        self._repeat = outer * times
        try:
            yield
        finally:
            self._repeat = outer

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Weights inside get no gradient; data gradients still flow through."""
        outer, self._trainable = self._trainable, False
        try:
            yield
        finally:
            self._trainable = outer

    @contextmanager
    def forward_only(self) -> Iterator[None]:
        """No gradient of any kind inside (a frozen stem, a teacher, target sampling)."""
        outer = self._trainable, self._backward
        self._trainable = self._backward = False
        try:
            yield
        finally:
            self._trainable, self._backward = outer

    @contextmanager
    def formats(
        self, given: Iterable[str], result: Iterable[str], *, entering: Iterable[str] = ()
    ) -> Iterator[None]:
        """Operators inside work on tensors of these origins, their gradients on the results'.

        ``entering`` are those of what comes into a product, before it is cast.
        """
        outer = self._given, self._result, self._entering
        self._given, self._result, self._entering = (
            tuple(sorted(names)) for names in (given, result, entering)
        )
        try:
            yield
        finally:
            self._given, self._result, self._entering = outer

    @contextmanager
    def inside(self, function: str) -> Iterator[None]:
        """Operators inside are parts of one fused function, which the memory model knows."""
        outer, self._function = self._function, function
        try:
            yield
        finally:
            self._function = outer

    # --- bookkeeping ------------------------------------------------------------------------

    def input(self, elements_per_sample: float) -> None:
        """What the host sends to the GPU for one sample, in elements."""
        self._input_elements += elements_per_sample * self.batch_size

    def synchronise(self) -> None:
        """Say that the host waits for results of the device within a micro-step."""
        self._synchronous = True

    def parameters(self, elements: int, tensors: int = 1, *, sparse: bool = False) -> None:
        """Count weights without an operator (tied weights are counted once, by their owner)."""
        self._parameters += elements * self._repeat
        if self._trainable:
            self._trainable_parameters += elements * self._repeat
            self._parameter_tensors += tensors * self._repeat
            if sparse:
                self._sparse_parameters += elements * self._repeat

    def emit(
        self,
        kind: Kind,
        direction: Direction,
        dims: tuple[int, ...],
        *,
        flops: float = 0.0,
        reads: float = 0.0,
        writes: float = 0.0,
        kernels: float = 1.0,
        count: float = 1.0,
        function: str = "",
    ) -> None:
        """Add one operator; the layers below are built from this."""
        given = self._entering if kind in PRODUCT_KINDS else self._given
        origins = given if direction is FORWARD else self._result
        self._operators.append(
            Operator(
                kind,
                direction,
                dims,
                flops,
                reads,
                writes,
                kernels,
                count * self._repeat,
                self._function or function,
                origins,
            )
        )

    def take(self, operators: Iterable[Operator]) -> None:
        """Add finished operators."""
        self._operators.extend(operators)

    def build(self) -> Graph:
        """The finished graph."""
        return Graph(
            operators=tuple(self._operators),
            parameters=self._parameters,
            trainable_parameters=self._trainable_parameters,
            parameter_tensors=self._parameter_tensors,
            sparse_parameters=self._sparse_parameters,
            input_elements=self._input_elements,
            synchronous=self._synchronous,
        )

    def _elements(self, x: Feature | float) -> float:
        return self.batch_size * x.elements if isinstance(x, Feature) else x
