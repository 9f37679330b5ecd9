"""The autocast pass: formats as torch.autocast chooses them, bytes and engines that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from predictor.graphs.catalog import entry_of, graph_of
from predictor.graphs.operator import FUSED_EXPERTS, Direction, Graph, Kind, Operator, Workload
from predictor.job.precision import Dtype, Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.autocast import (
    LOWER_PRECISION,
    NARROW,
    NARROW_KINDS,
    TypedOperator,
    autocast,
    runnable,
)
from profiles.gpus import CPU, find_gpu

V100, A100, H100 = (find_gpu(name) for name in ("v100", "a100", "h100"))
PURE = tuple(p for p in Precision if not p.mixed)
MIXED = tuple(p for p in Precision if p.mixed)
MODELS = ("resnet50", "bert-base", "gnmt-v2", "dlrm")


def graph(model: str) -> Graph:
    entry = entry_of(model)
    work = Workload(batch_size=8, seq_len=entry.seq_len, image_size=entry.image_size)
    return graph_of(entry.name, (), work)


def one(kind: Kind, precision: Precision) -> TypedOperator:
    """The only operator of a graph, typed."""
    return chain((kind,), precision)[0]


def chain(kinds: tuple[Kind, ...], precision: Precision) -> tuple[TypedOperator, ...]:
    """Forward operators behind each other, typed."""
    operators = tuple(Operator(k, Direction.FORWARD, (8, 8, 8), 1024.0, 128, 64) for k in kinds)
    typed = autocast(Graph(operators, 64, 64, 1, 0, 64.0), precision, H100)
    return typed[: len(kinds)]


class TestFormats:
    @pytest.mark.parametrize("kind", sorted(LOWER_PRECISION - NARROW_KINDS))
    @pytest.mark.parametrize("precision", [p for p in Precision if p.matmul_dtype not in NARROW])
    def test_products_run_in_the_format_of_the_policy(
        self, kind: Kind, precision: Precision
    ) -> None:
        assert one(kind, precision).dtype is precision.matmul_dtype

    @pytest.mark.parametrize(
        ("function", "wide"), [("spelt_gelu", MIXED), ("spelt_rms_norm", tuple(Precision))]
    )
    def test_chains_that_raise_their_input_run_in_fp32_both_ways(
        self, function: str, wide: tuple[Precision, ...]
    ) -> None:
        """Transformers' NewGELUActivation calls torch.pow; its RMS norms cast what they take."""
        ways = (Direction.FORWARD, Direction.DATA_GRADIENT)
        gemm = Operator(Kind.GEMM, Direction.FORWARD, (8, 8, 8), 1024.0, 128, 64)
        chained = [
            Operator(Kind.ELEMENTWISE, way, (1, 64), 0.0, 640, 512, function=name)
            for way, name in zip(ways, (function, ""), strict=True)
        ]
        for precision in (p for p in Precision if p.activation_dtype is not Dtype.FP32):
            typed = autocast(Graph((gemm, *chained, gemm), 64, 64, 1, 0, 64.0), precision, H100)
            found = {t.dtype for t in typed if t.operator.kind is Kind.ELEMENTWISE}
            assert found == {Dtype.FP32 if precision in wide else precision.activation_dtype}

    @pytest.mark.parametrize("kind", [Kind.SOFTMAX, Kind.LAYER_NORM, Kind.GROUP_NORM, Kind.LOSS])
    def test_what_needs_range_stays_fp32_only_where_mixed(self, kind: Kind) -> None:
        assert {one(kind, p).dtype for p in MIXED} == {Dtype.FP32}
        assert one(kind, Precision.FP16).dtype is Dtype.FP16
        assert one(kind, Precision.BF16).dtype is Dtype.BF16

    @pytest.mark.parametrize("kind", [Kind.BATCH_NORM, Kind.INSTANCE_NORM])
    def test_batch_and_instance_norm_take_the_format_of_their_input(self, kind: Kind) -> None:
        typed = chain((Kind.GEMM, kind), Precision.MIXED_FP16_FP32)
        assert typed[1].dtype is Dtype.FP16

    def test_embedding_tables_are_read_as_they_are_stored(self) -> None:
        assert one(Kind.EMBEDDING, Precision.MIXED_FP16_FP32).dtype is Dtype.FP32
        assert one(Kind.EMBEDDING, Precision.FP16).dtype is Dtype.FP16

    def test_a_product_with_a_vector_stays_off_the_tensor_cores(self) -> None:
        operators = tuple(
            Operator(Kind.BATCHED_GEMM, Direction.FORWARD, (64, n, 64, 8), 1024.0, 128, 64)
            for n in (1, 8)
        )
        typed = autocast(Graph(operators, 64, 64, 1, 0, 64.0), Precision.FP16, H100)
        assert [t.tensor_core for t in typed] == [False, True]

    def test_pointwise_work_takes_the_format_of_its_inputs(self) -> None:
        kinds = (
            Kind.GEMM,
            Kind.ELEMENTWISE,
            Kind.SOFTMAX,
            Kind.ELEMENTWISE,
            Kind.GEMM,
            Kind.ELEMENTWISE,
        )
        typed = chain(kinds, Precision.MIXED_BF16_FP32)
        assert [t.dtype.value for t in typed] == ["bf16", "bf16", "fp32", "fp32", "bf16", "bf16"]

    def test_only_linear_layers_run_in_fp8(self) -> None:
        for precision, other in (
            (Precision.MIXED_FP8_BF16, Dtype.BF16),
            (Precision.MIXED_FP8_FP16, Dtype.FP16),
        ):
            formats = {kind: one(kind, precision).dtype for kind in LOWER_PRECISION}
            assert formats == dict.fromkeys(LOWER_PRECISION, other) | {Kind.GEMM: Dtype.FP8}

    @pytest.mark.parametrize(
        ("direction", "moved"),
        [
            (Direction.FORWARD, 8 * 32 * (2 + 1)),
            (Direction.DATA_GRADIENT, 8 * 32 * (2 + 1)),
            (Direction.WEIGHT_GRADIENT, (8 + 16) * 32 * 1),
            (Direction.FORWARD, None),
        ],
    )
    def test_what_fp8_multiplies_is_cast_but_behind_a_norm(
        self, direction: Direction, moved: int | None
    ) -> None:
        product = Operator(Kind.GEMM, direction, (8, 16, 32), 1024.0, 768, 64, count=3.0)
        norm = Operator(Kind.LAYER_NORM, Direction.FORWARD, (8, 32), 0.0, 256, 256)
        operators = (product,) if moved else (norm, product)
        typed = autocast(Graph(operators, 64, 64, 1, 0, 64.0), Precision.MIXED_FP8_BF16, H100)
        casts = [t for t in typed if t.operator.kind is Kind.CAST]
        found = [t.bytes for t in casts if t.operator.direction is not Direction.UPDATE]
        assert found == ([moved] if moved else [])
        assert all(t.operator.count == 3.0 for t in casts[:-1])

    def test_the_product_of_the_vocabulary_stays_in_sixteen_bits(self) -> None:
        work = Workload(batch_size=1, seq_len=128, flash_attention=True, fused_layers=True)
        built = graph_of("llama3-8b", (), work)
        typed = autocast(built, Precision.MIXED_FP8_BF16, H100)
        found = {t.dtype: t.operator for t in typed if t.operator.kind is Kind.GEMM}
        wide = [t for t in typed if t.operator.kind is Kind.GEMM and t.dtype is Dtype.BF16]
        assert set(found) == {Dtype.FP8, Dtype.BF16}
        assert [sorted(t.operator.dims) for t in wide] == [[128, 4096, 128256]] * 3
        tf32 = autocast(built, Precision.TF32, H100)
        assert {t.dtype for t in tf32 if t.operator.kind is Kind.GEMM} == {Dtype.TF32}

    def test_one_kernel_of_experts_holds_their_activation_and_casts_it(self) -> None:
        ways = Direction.FORWARD, Direction.WEIGHT_GRADIENT
        outer, inner = (
            [Operator(Kind.GEMM, way, (8, 16, 32), 1024.0, 1024, 64, function=name) for way in ways]
            for name in (FUSED_EXPERTS, "")
        )
        between, behind = (Operator(Kind.ELEMENTWISE, way, (1, 64), 0.0, 64, 64) for way in ways)
        built = Graph((*outer, between, *inner, behind), 64, 64, 1, 0, 64.0)
        typed = autocast(built, Precision.MIXED_FP8_BF16, H100)[:-1]
        casts = [a.operator for a, b in pairwise(typed) if b.operator.kind is Kind.CAST]
        assert casts == [outer[0], inner[1]]
        assert [t.bytes for t in typed if t.operator in (between, behind)] == [0, 2 * (64 + 64)]

    def test_tf32_is_storage_in_fp32(self) -> None:
        typed = autocast(graph("resnet50"), Precision.TF32, A100)
        assert {t.dtype for t in typed if t.operator.kind is Kind.CONV} == {Dtype.TF32}
        assert {t.dtype.bytes for t in typed} == {4}


class TestEngine:
    @pytest.mark.parametrize(
        ("gpu", "tensor_cores"),
        [
            ("k80", ""),
            ("p100", ""),
            ("v100", "fp16"),
            ("t4", "fp16"),
            ("a100", "tf32 fp16 bf16"),
            ("rtx3090", "tf32 fp16 bf16"),
            ("h100", "tf32 fp16 bf16 fp8"),
        ],
    )
    def test_each_generation_multiplies_its_formats(self, gpu: str, tensor_cores: str) -> None:
        found = set()
        for precision in Precision:
            for typed in autocast(graph("bert-base"), precision, find_gpu(gpu)):
                if typed.tensor_core:
                    found.add(typed.dtype.value)
        assert found == set(tensor_cores.split())

    def test_bf16_on_v100_is_off_tensor_cores_and_fp16_on_them(self) -> None:
        for precision, expected in (
            (Precision.MIXED_BF16_FP32, set()),
            (Precision.MIXED_FP16_FP32, LOWER_PRECISION),
        ):
            typed = autocast(graph("bert-base"), precision, V100)
            engines = {t.operator.kind for t in typed if t.tensor_core}
            assert engines == expected & {t.operator.kind for t in typed}

    def test_pointwise_work_never_runs_on_tensor_cores(self) -> None:
        for model in MODELS:
            typed = autocast(graph(model), Precision.MIXED_FP16_FP32, A100)
            assert {t.operator.kind for t in typed if t.tensor_core} <= LOWER_PRECISION

    def test_tf32_without_tf32_tensor_cores_is_fp32(self) -> None:
        job = TrainingJob(model="bert-base", precision="tf32", gpu="v100", batch_size=8)
        assert runnable(job) is Precision.FP32
        assert runnable(job.but(gpu="a100")) is Precision.TF32
        assert runnable(job.but(precision="amp")) is Precision.MIXED_FP16_FP32

    @pytest.mark.parametrize(
        ("framework", "expected"),
        [
            ("pytorch 1.11", Precision.TF32),
            ("pytorch 2.6", Precision.FP32),
            ("pytorch 2.1.0+cu118", Precision.FP32),
            ("pytorch 1.13.0a0+git664058f", Precision.FP32),
            ("pytorch 1.13.0a0+936e930", Precision.TF32),
            ("nvcr.io/nvidia/pytorch:24.05-py3", Precision.TF32),
            ("tensorflow 2.4", Precision.TF32),
            ("jax", Precision.TF32),
        ],
    )
    def test_fp32_is_multiplied_as_the_framework_does_unless_told(
        self, framework: str, expected: Precision
    ) -> None:
        job = TrainingJob(
            model="bert-base", precision="fp32", gpu="a100", batch_size=8, framework=framework
        )
        assert runnable(job) is expected
        assert runnable(job.but(options="tf32=off")) is Precision.FP32
        assert runnable(job.but(options="tf32=on")) is Precision.TF32
        assert runnable(job.but(gpu="v100")) is Precision.FP32


class TestBytesAndCasts:
    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("precision", Precision)
    def test_bytes_are_elements_times_format(self, model: str, precision: Precision) -> None:
        for typed in autocast(graph(model), precision, H100):
            if typed.operator.kind is not Kind.CAST:
                elements = typed.operator.reads + typed.operator.writes
                assert typed.bytes == elements * typed.dtype.bytes

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("precision", Precision)
    def test_work_is_neither_added_nor_lost(self, model: str, precision: Precision) -> None:
        typed = autocast(graph(model), precision, H100)
        kept = tuple(t.operator for t in typed if t.operator.kind is not Kind.CAST)
        assert kept == graph(model).operators
        flops = sum(t.operator.flops * t.operator.count for t in typed)
        assert flops == graph(model).flops

    @pytest.mark.parametrize("model", MODELS)
    def test_a_mixed_policy_casts_every_dense_weight_once(self, model: str) -> None:
        whole = graph(model)
        weights = whole.parameters - whole.sparse_parameters
        for precision in MIXED:
            typed = autocast(whole, precision, H100)
            casts = [t for t in typed if t.operator.direction is Direction.UPDATE]
            assert [c.bytes for c in casts] == [weights * (4 + 2)]
            assert [c.operator.kernels for c in casts] == [whole.parameter_tensors]

    @pytest.mark.parametrize("precision", PURE)
    def test_a_pure_policy_casts_nothing(self, precision: Precision) -> None:
        kinds = {t.operator.kind for t in autocast(graph("bert-base"), precision, H100)}
        assert Kind.CAST not in kinds

    @pytest.mark.parametrize("model", MODELS)
    def test_lower_formats_move_fewer_bytes(self, model: str) -> None:
        def moved(precision: Precision) -> float:
            typed = autocast(graph(model), precision, H100)
            return sum(t.bytes * t.operator.count for t in typed if t.operator.kind != Kind.CAST)

        assert moved(Precision.FP16) == pytest.approx(moved(Precision.FP32) / 2)
        assert moved(Precision.BF16) == moved(Precision.FP16)
        assert moved(Precision.FP16) <= moved(Precision.MIXED_FP16_FP32) < moved(Precision.FP32)
        assert moved(Precision.TF32) == moved(Precision.FP32)


@contextmanager
def torch_autocast(dtype: Any) -> Iterator[None]:
    """torch's CUDA autocast over fake tensors: its dispatch is real, nothing is computed."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        with FakeTensorMode():
            yield
    finally:
        torch.set_autocast_enabled("cuda", False)


# What a kind computes, from tensors in the format that the operators before it leave.
TORCH: dict[Kind, Callable[[Any, Any, Any], Any]] = {
    Kind.GEMM: lambda t, f, x: f.linear(x, x),
    Kind.BATCHED_GEMM: lambda t, f, x: t.bmm(x.view(1, 8, 8), x.view(1, 8, 8)),
    Kind.CONV: lambda t, f, x: f.conv2d(x.view(1, 1, 8, 8), x.view(1, 1, 8, 8)),
    Kind.ATTENTION: lambda t, f, x: f.scaled_dot_product_attention(*[x.view(1, 1, 8, 8)] * 3),
    Kind.SOFTMAX: lambda t, f, x: f.softmax(x, -1),
    Kind.LAYER_NORM: lambda t, f, x: f.layer_norm(x, (8,)),
    Kind.LOSS: lambda t, f, x: f.mse_loss(x, x),
    Kind.ELEMENTWISE: lambda t, f, x: f.gelu(x) + x,
    Kind.POOL: lambda t, f, x: f.max_pool2d(x.view(1, 1, 8, 8), 2),
}


@pytest.mark.parametrize("kind", TORCH)
@pytest.mark.parametrize("precision", [Precision.MIXED_FP16_FP32, Precision.MIXED_BF16_FP32])
def test_formats_are_those_torch_dispatches(kind: Kind, precision: Precision) -> None:
    torch = pytest.importorskip("torch")
    low = {Dtype.FP16: torch.float16, Dtype.BF16: torch.bfloat16}[precision.activation_dtype]
    with torch_autocast(low):
        x = torch.empty(8, 8, device="cuda", dtype=low)
        result = TORCH[kind](torch, torch.nn.functional, x).dtype
    expected = {low: precision.activation_dtype, torch.float32: Dtype.FP32}[result]
    assert one(kind, precision).dtype is expected


@pytest.mark.parametrize("kind", [Kind.GEMM, Kind.BATCHED_GEMM, Kind.CONV, Kind.ATTENTION])
def test_torch_lowers_products_of_fp32_inputs_too(kind: Kind) -> None:
    torch = pytest.importorskip("torch")
    with torch_autocast(torch.float16):
        x = torch.empty(8, 8, device="cuda")
        assert TORCH[kind](torch, torch.nn.functional, x).dtype is torch.float16
    after_softmax = chain((Kind.SOFTMAX, kind), Precision.MIXED_FP16_FP32)
    assert after_softmax[1].dtype is Dtype.FP16


class TestOneByOne:
    """What torch's eager autocast runs beside: a kernel for each cast, and an FP32 trunk."""

    @staticmethod
    def run(*kinds: Kind, function: str = "") -> list[str]:
        forward = [
            Operator(k, Direction.FORWARD, (8, 8, 8), 1024.0, 128, 64, function=function * (n == 1))
            for n, k in enumerate(kinds)
        ]
        back = [replace(o, direction=Direction.DATA_GRADIENT, function="") for o in forward]
        both = tuple(one for pair in zip(forward, back, strict=True) for one in pair)
        whole = Graph(both, 64, 64, 1, 0, 64.0)
        typed = autocast(whole, Precision.MIXED_BF16_FP32, H100, one_by_one=True)[:-1]
        return [f"{t.operator.kind.value} {t.dtype.value} {t.bytes:g}" for t in typed]

    def test_each_product_behind_a_norm_casts_its_input_and_its_gradient(self) -> None:
        found = self.run(Kind.LAYER_NORM, Kind.GEMM, Kind.GEMM, Kind.ELEMENTWISE, Kind.GEMM)
        cast, gemm = "cast bf16 384", "gemm bf16 384"  # 64 inputs of 4 bytes, 64 of 2
        pair = [cast, gemm, gemm, cast]
        norm, pointwise = "layer_norm fp32 768", "elementwise bf16 384"
        assert found == [norm, norm, *pair, *pair, pointwise, pointwise, gemm, gemm]

    def test_pointwise_work_behind_a_softmax_and_the_trunk_are_fp32_both_ways(self) -> None:
        wide, low = "elementwise fp32 768", "elementwise bf16 384"
        assert self.run(Kind.SOFTMAX, Kind.ELEMENTWISE)[2:] == [wide, wide]
        assert self.run(Kind.GEMM, Kind.ELEMENTWISE, Kind.LAYER_NORM)[2:4] == [low, low]
        trunk = self.run(Kind.GEMM, Kind.ELEMENTWISE, Kind.LAYER_NORM, function="add")
        assert trunk[2:4] == [wide, wide]
        mixed = (Kind.GEMM, Kind.ELEMENTWISE, Kind.LAYER_NORM, Kind.GROUP_NORM)
        assert self.run(*mixed, function="add")[2:4] == [low, low]  # its trunk is of convolutions

    def test_no_work_is_added_or_lost_but_casts(self) -> None:
        for model in MODELS:
            typed = autocast(graph(model), Precision.MIXED_BF16_FP32, H100, one_by_one=True)
            kept = tuple(t.operator for t in typed if t.operator.kind is not Kind.CAST)
            assert kept == graph(model).operators

    def test_on_a_cpu_a_builder_is_as_before(self) -> None:
        """Its autocast leaves norms in the format they are given."""
        cpu = replace(H100, kind=CPU)
        one, other = (
            autocast(graph("bert-base"), Precision.MIXED_BF16_FP32, cpu, one_by_one=eager)
            for eager in (True, False)
        )
        assert one == other
