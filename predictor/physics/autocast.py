"""The autocast pass: decides the number format and the bytes of every operator.

The policies are those of torch.autocast on CUDA (docs.pytorch.org/docs/stable/amp.html):
matrix products and convolutions run in the lower format; softmax, layer norm, group norm and
losses run in FP32, and so do look-ups in embedding tables, whose weights are FP32.

Everything else of a traced network runs in the format torch gives it: FP32 where its function is on
torch's FP32 list or any of its inputs is FP32, until the next matrix product. In front of a listed
function its inputs are cast where they are of the lower format, and the gradient is cast back.

Builders of the catalog name no origins. There, everything else runs in the format of
what was computed before it: FP32 behind a forward operator of the FP32 list, the lower format
behind a gradient. As each forward operator is followed by its gradients, pointwise work behind a
softmax or layer norm is mostly priced in the lower format, as fused training code runs it;
``one_by_one`` is for code that does not fuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import NamedTuple

from profiles.gpus import CPU, Gpu
from profiles.storage import shipped_yaml

from ..graphs.operator import (
    DATA_GRADIENT,
    FORWARD,
    FUSED_EXPERTS,
    PRODUCT_KINDS,
    UPDATE,
    VOCABULARY,
    Graph,
    Kind,
    Operator,
)
from ..job.precision import Dtype, Precision, tensor_peak
from ..job.training_job import TrainingJob

LOWER_PRECISION = PRODUCT_KINDS
FULL_PRECISION = frozenset(
    {Kind.SOFTMAX, Kind.LAYER_NORM, Kind.GROUP_NORM, Kind.LOSS, Kind.EMBEDDING}
)
# torch.autocast on a CPU leaves norms and softmax in the format they are given.
FULL_PRECISION_CPU = frozenset({Kind.LOSS, Kind.EMBEDDING})
PRODUCTS = frozenset({Kind.GEMM, Kind.BATCHED_GEMM})
MATRIX = frozenset({Kind.GEMM, Kind.CONV})
# In the recipes of Transformer Engine only the GEMMs of linear layers run in FP8 or FP4.
NARROW = (Dtype.FP8, Dtype.FP4)
NARROW_KINDS = frozenset({Kind.GEMM})
FP32 = Dtype.FP32
FULL = FP32.bytes
# Chains that Transformers computes in FP32: a GELU because of a function in it, where autocast
# lists that one; an RMS norm always.
RAISED = {"spelt_gelu": "pow", "spelt_rms_norm": None}
STORED = "stored"  # origin of weights, inputs and buffers: FP32 under every mixed policy

_LISTS = shipped_yaml("autocast.yaml")
# Functions that torch runs in FP32: on CUDA by a cast of their inputs or by a kernel that reads the
# lower format, on a CPU.
CUDA_CAST, CUDA_WIDEN, CPU_CAST = (
    frozenset[str](_LISTS[name]) for name in ("cuda_cast", "cuda_widen", "cpu_cast")
)
_SEEN_AS: dict[str, str] = _LISTS["seen_as"]
_CUDA_WIDE = CUDA_CAST | CUDA_WIDEN | {STORED}
_CPU_WIDE = CPU_CAST | {STORED}
_LISTED = CUDA_CAST | CUDA_WIDEN | CPU_CAST


@cache
def listed_name(name: str) -> str | None:
    """The name under which a list has a function that a trace saw; None where no list has it."""
    plain = _SEEN_AS.get(name, name)
    return plain if plain in _LISTED else None


def wide_origins(gpu: Gpu) -> frozenset[str]:
    """The origins whose results are FP32 on this device."""
    return _CPU_WIDE if gpu.kind == CPU else _CUDA_WIDE


class TypedOperator(NamedTuple):
    """An operator after the pass: its format, bytes moved by one instance, and its engine."""

    operator: Operator
    dtype: Dtype
    bytes: float
    tensor_core: bool


def autocast(
    graph: Graph, precision: Precision, gpu: Gpu, *, one_by_one: bool = False
) -> tuple[TypedOperator, ...]:
    """Type every operator of a graph and add the weight casts of a mixed policy.

    A mixed policy casts each FP32 weight once a micro-step to the lower format, and writes its
    gradient back in FP32; what is frozen is kept in the lower one. What FP8 and FP4 multiply is
    cast behind each product. ``one_by_one`` are kernels for what is cast in front of products.
    """
    typed = _typed(graph, precision, gpu)
    if precision.mixed:
        low = precision.activation_dtype
        if any(o.origins is not None for o in graph.operators):  # of a trace
            typed = list(_with_casts(typed, low, gpu, one_by_one or gpu.kind == CPU))
        elif one_by_one and gpu.kind != CPU:
            typed = list(_in_eager_code(typed, low))
        weights = graph.trainable_parameters - graph.sparse_parameters
        cast = Operator(
            Kind.CAST,
            UPDATE,
            (1, weights),
            0.0,
            weights,
            weights,
            kernels=float(graph.parameter_tensors),
        )
        typed.append(TypedOperator(cast, low, weights * (4.0 + low.bytes), False))
    return tuple(typed)


def _typed(graph: Graph, precision: Precision, gpu: Gpu) -> list[TypedOperator]:
    flowing = low = precision.activation_dtype
    matmul = precision.matmul_dtype
    fits = LOWER_PRECISION if matmul not in NARROW else NARROW_KINDS
    products = {kind: matmul if kind in fits else low for kind in LOWER_PRECISION}
    tensor_cores = {d: tensor_peak(gpu, d) is not None for d in set(products.values())}
    width = {dtype: dtype.bytes for dtype in (low, FP32, *products.values())}
    kept = FULL_PRECISION_CPU if gpu.kind == CPU else FULL_PRECISION
    full = kept if precision.mixed else frozenset()
    wide = wide_origins(gpu) if precision.mixed else frozenset()
    typed: list[TypedOperator] = []
    chain = ""  # what both ways of an operator come from
    behind: Kind | None = None  # a norm of Transformer Engine writes its result narrow
    fused = False  # so does the kernel of experts, which holds their activation both ways
    for operator in graph.operators:
        kind, tensor_core, cast = operator.kind, False, False
        chain = operator.function if operator.direction is FORWARD else chain
        if kind in products:
            narrow = products[kind] in NARROW
            dtype = low if narrow and operator.function == VOCABULARY else products[kind]
            flowing = low
            tensor_core = tensor_cores[dtype] and not vector(operator)
            cast = dtype in NARROW and not fused
            if operator.direction is FORWARD:
                cast = cast and behind is not Kind.LAYER_NORM
                fused = operator.function == FUSED_EXPERTS
        elif kind in full:
            dtype = FP32
            flowing = FP32 if operator.direction is FORWARD else low
        else:
            dtype = FP32 if _raised(chain, wide) else _format(operator, wide, low, flowing)
        within = fused and kind is Kind.ELEMENTWISE
        moved = 0.0 if within else (operator.reads + operator.writes) * width[dtype]
        typed.append(TypedOperator(operator, dtype, moved, tensor_core))
        if cast:
            typed.append(_narrowed(operator, dtype, low))
        if operator.direction is FORWARD:
            behind = kind
    return typed


def _narrowed(product: Operator, narrow: Dtype, low: Dtype) -> TypedOperator:
    """The cast of what a product multiplies with its weight; a weight gradient takes two copies.

    Those of Transformer Engine are written by columns, beside what the other products take.
    """
    copies = product.direction not in (FORWARD, DATA_GRADIENT)
    elements = product.reads - (0 if copies else prod(product.dims[1:]))
    cast = replace(product, kind=Kind.CAST, dims=(1, int(elements)), flops=0.0, kernels=0.0)
    moved = elements * (narrow.bytes if copies else low.bytes + narrow.bytes)
    return TypedOperator(cast, low, moved, False)


def _raised(chain: str, wide: frozenset[str]) -> bool:
    """Whether a chain of eager code computes in FP32 what it is given in a lower format."""
    return chain in RAISED and RAISED[chain] in (None, *wide)


def _format(operator: Operator, wide: frozenset[str], low: Dtype, flowing: Dtype) -> Dtype:
    """The format of work that its kind does not settle; ``flowing`` where no trace names inputs."""
    listed = operator.direction is FORWARD and listed_name(operator.function) in wide
    if operator.origins is None:
        return FP32 if listed else flowing
    return FP32 if listed or not wide.isdisjoint(operator.origins) else low


def _with_casts(
    typed: Iterable[TypedOperator], low: Dtype, gpu: Gpu, of_products: bool
) -> Iterator[TypedOperator]:
    """The operators, with the casts around listed functions whose inputs are of lower format.

    ``of_products``: also those in front of products whose inputs are FP32.
    """
    wide, widens = wide_origins(gpu), frozenset() if gpu.kind == CPU else CUDA_WIDEN
    casts: dict[bool, TypedOperator | None] = {}  # of products, and of all else
    for item in typed:
        operator = item.operator
        product = operator.kind in PRODUCT_KINDS
        if operator.direction is FORWARD:
            casts[product] = cast = _cast_before(operator, low, wide, of_products)
            if cast and listed_name(operator.function) in widens:
                item = item._replace(bytes=item.bytes - operator.reads * (FULL - low.bytes))
            elif cast:
                yield cast
        yield item
        behind = casts.get(product)
        if behind and operator.direction is DATA_GRADIENT:
            back = replace(behind.operator, direction=operator.direction)
            yield behind._replace(operator=back)
            casts[product] = None


def _cast_before(
    operator: Operator, low: Dtype, wide: frozenset[str], of_products: bool
) -> TypedOperator | None:
    """The cast of what a forward operator reads, None where it reads what it computes in."""
    low_inputs = wide.isdisjoint(operator.origins or ())
    if listed_name(operator.function) in wide and low_inputs:
        return _cast(operator, operator.reads, low)
    if of_products and operator.kind in PRODUCT_KINDS and not low_inputs:
        return _cast(operator, operator.reads - weights_of(operator), low)
    return None


def _in_eager_code(typed: Sequence[TypedOperator], low: Dtype) -> Iterator[TypedOperator]:
    """The operators of a builder, with the casts and the FP32 results of torch's eager autocast.

    What a norm or a look-up gives stays FP32 until a product, in front of which it is cast for each
    product that reads it. So is the trunk of a network whose norms are layer norms, where FP32 and
    the lower format are added.
    """
    kinds = {t.operator.kind for t in typed}
    trunk = Kind.LAYER_NORM in kinds and Kind.GROUP_NORM not in kinds
    wide, read, raised, cast = False, (0, 0), False, None
    for item in typed:
        operator = item.operator
        kind, back = operator.kind, operator.direction is DATA_GRADIENT
        if operator.direction is FORWARD:
            cast, adds = None, trunk and operator.function == "add"
            raised = kind is Kind.ELEMENTWISE and (wide or adds)
            if kind in PRODUCT_KINDS:
                shared, read = read, (operator.dims[0], operator.dims[2])
                if wide or read == shared:
                    yield (cast := _cast(operator, _activations(operator), low))
                read, wide = read if cast else (0, 0), False
            else:
                read, wide = (0, 0), wide or adds or kind in FULL_PRECISION
        if raised and kind is Kind.ELEMENTWISE:
            item = item._replace(dtype=FP32, bytes=(operator.reads + operator.writes) * FULL)
        yield item
        if cast and back:
            yield cast._replace(operator=replace(cast.operator, direction=DATA_GRADIENT))
            cast = None


def _activations(product: Operator) -> float:
    """Elements of the left matrix of a product, without weights."""
    if product.kind is Kind.BATCHED_GEMM:
        return float(product.dims[0] * prod(product.dims[2:]))
    return product.reads - weights_of(product)


def weights_of(operator: Operator) -> float:
    """Elements of the weight that one forward matrix product multiplies; 0 for other operators."""
    if operator.kind not in MATRIX:
        return 0.0
    dims = operator.dims
    return float(dims[1] * dims[2] * (dims[3] if operator.kind is Kind.CONV else 1))


def _cast(of: Operator, elements: float, low: Dtype) -> TypedOperator:
    """The cast of so many elements that a forward operator reads."""
    cast = Operator(
        Kind.CAST,
        FORWARD,
        (1, int(elements)),
        0.0,
        elements,
        elements,
        of.kernels,
        of.count,
        "_to_copy",
        of.origins,
    )
    return TypedOperator(cast, low, elements * (FULL + low.bytes), False)


def vector(operator: Operator) -> bool:
    """Whether a product is of a matrix and a vector, which ordinary cores compute (cuBLAS GEMV)."""
    return operator.kind in PRODUCTS and 1 in operator.dims[:3]


def runnable(job: TrainingJob) -> Precision:
    """The policy as software and hardware run it: FP32 may mean TF32, and not where it has none."""
    if job.precision not in (Precision.FP32, Precision.TF32):
        return job.precision
    tf32 = job.precision is Precision.TF32 or job.software.tf32_products
    return Precision.TF32 if tf32 and "tf32" in job.hardware.peak_flops else Precision.FP32


def peak_flops(job: TrainingJob, *, tensor_cores: bool) -> float:
    """Peak of a job's GPU in FLOP/s, in the format of its products, some on ``tensor_cores``."""
    gpu, dtype = job.hardware, runnable(job).matmul_dtype
    if dtype is FP32 and tensor_cores:  # of the convolutions
        dtype = Dtype.TF32
    return tensor_peak(gpu, dtype) or gpu.peak_flops.get(dtype.value, gpu.peak_flops["fp32"])
