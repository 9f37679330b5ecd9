"""Each function of a trace, and its gradient, has the format of torch's autocast.

torch's CUDA autocast dispatches over fake tensors without a GPU, forward only; its gradients are
those of its casts on the CPU, which the forward pass is held against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from autocast_cases import EVERY, POINTWISE, WIDENING  # noqa: E402
from autocast_runs import (  # noqa: E402
    GPUS,
    SIDE,
    Behind,
    CudaLists,
    Function,
    Ran,
    forward_on_cuda,
    step_on_cpu,
    typed,
)

from predictor.graphs.catalog import entry_of, graph_of  # noqa: E402
from predictor.graphs.operator import (  # noqa: E402
    Direction,
    Graph,
    Kind,
    Workload,
)
from predictor.job.precision import Dtype, Precision  # noqa: E402
from predictor.job.training_job import TrainingJob  # noqa: E402
from predictor.measure.trace.tracer import trace  # noqa: E402
from predictor.physics.autocast import TypedOperator, autocast  # noqa: E402
from predictor.physics.job_graph import (  # noqa: E402
    fused,
    job_graph,
    job_operators,
)

F = torch.nn.functional
LOSS = 3  # operators of the sum behind the function
# Where torch has no kernel without a GPU, or refuses inputs of two formats.
NOT_ON_FAKE_CUDA = ("grid_sample", "grid_sample_weight")
NOT_ON_CPU = ("cross", "scatter_add")


def each(functions: Mapping[str, Function], but: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    kept = {name: function for name, function in functions.items() if name not in but}
    return pytest.mark.parametrize("function", kept.values(), ids=kept)


def forward(function: Function, device: str) -> list[TypedOperator]:
    """The forward operators behind the product and in front of the loss."""
    every = typed(Behind(function), device)
    found = [t for t in every if t.operator.direction is Direction.FORWARD][1:]
    return found[: -LOSS - 1]  # and the gradient of one that the backward pass starts from


@each(EVERY, but=NOT_ON_FAKE_CUDA)
def test_a_result_has_the_format_of_torchs_cuda_autocast(function: Function) -> None:
    assert forward(function, "cuda")[-1].dtype is forward_on_cuda(function)[0]


@each(EVERY, but=NOT_ON_CPU)
def test_a_result_has_the_format_of_torchs_cpu_autocast(function: Function) -> None:
    assert forward(function, "cpu")[-1].dtype is step_on_cpu(Behind(function))[0]


@each(POINTWISE)
def test_inputs_are_cast_by_a_kernel_as_cuda_autocast_casts_them(function: Function) -> None:
    ours = [(t.operator.function, t.operator.kind is Kind.CAST) for t in forward(function, "cuda")]
    ran = forward_on_cuda(function)[1]
    assert [name for name, _ in ours] == _once([r.name for r in ran])
    assert [cast for _, cast in ours] == [True, False]
    cast, work = forward(function, "cuda")
    assert cast.bytes == cast.operator.reads * (2 + 4)
    assert work.bytes == (work.operator.reads + work.operator.writes) * 4


@each(POINTWISE)
def test_nothing_is_cast_behind_what_is_fp32_already(function: Function) -> None:
    def behind_fp32(h: object, w: object) -> object:
        return function(F.layer_norm(h, (SIDE,)), w)

    assert [t.operator.kind for t in forward(behind_fp32, "cuda")] == [
        Kind.LAYER_NORM,
        Kind.ELEMENTWISE,
    ]


@each(WIDENING)
def test_a_reduction_reads_the_lower_format_and_writes_fp32(function: Function) -> None:
    [ran] = forward_on_cuda(function)[1]
    assert (ran.inputs, ran.output) == ((Dtype.BF16,), Dtype.FP32)
    [ours] = forward(function, "cuda")
    assert ours.operator.function == ran.name
    assert ours.bytes == ours.operator.reads * 2 + ours.operator.writes * 4


def test_other_policies_cast_nothing() -> None:
    def norm(h: object, w: object) -> object:
        return torch.exp(h).sum(0)

    operators = tuple(t.operator for t in typed(Behind(norm), "cpu"))
    graph = Graph(operators, 0, 0, 0, 0, 0.0)
    for precision in (p for p in Precision if not p.mixed):
        found = autocast(graph, precision, GPUS["cuda"])
        assert [t.operator for t in found] == list(operators)
        pointwise = {t.dtype for t in found if t.operator.kind is Kind.ELEMENTWISE}
        assert pointwise == {precision.activation_dtype}


def _spelt_rms_norm(h: object, w: object) -> object:
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))


NETWORKS: Mapping[str, Function] = {
    "rms_norm": _spelt_rms_norm,
    "gelu": lambda h, w: 0.5 * h * (1 + torch.tanh(0.8 * (h + 0.04 * torch.pow(h, 3)))),
    "softplus": lambda h, w: h * F.softplus(h),
    "cumsum": lambda h, w: h.cumsum(0) * h,
    "norm": lambda h, w: h / torch.linalg.vector_norm(h, dim=1, keepdim=True),
    "prod": lambda h, w: h * h.prod(1, keepdim=True),
    "exp": lambda h, w: torch.relu(h.exp() @ w),
    "swiglu": lambda h, w: F.silu(h) * (h @ w),
    "log": lambda h, w: torch.log1p(h.exp()).tanh(),
}


@pytest.mark.parametrize("device", GPUS)
@each(NETWORKS)
def test_gradients_have_the_formats_of_autograd(function: Function, device: str) -> None:
    """Of each pointwise function of a backward pass, the same number in the same format."""
    lists = CudaLists() if device == "cuda" else None
    ran = step_on_cpu(Behind(function), lists)[1]
    real = Counter((r.name, r.output) for r in ran if r.backward and _is_pointwise(r))
    found: Counter[tuple[str, Dtype]] = Counter()
    for one in typed(Behind(function), device):
        operator = one.operator
        if operator.direction is Direction.DATA_GRADIENT and operator.kind is Kind.ELEMENTWISE:
            found[operator.function, one.dtype] += 1
    assert found
    assert found <= real  # one operator of ours stands for all of one function's gradient
    assert {dtype for _, dtype in found} == {dtype for _, dtype in real}


@each({name: NETWORKS[name] for name in ("gelu", "softplus", "cumsum", "log")})
def test_a_cast_has_a_cast_of_its_gradient(function: Function) -> None:
    casts = [t for t in typed(Behind(function), "cuda") if t.operator.kind is Kind.CAST]
    back = [t for t in casts if t.operator.direction is Direction.DATA_GRADIENT]
    ran = step_on_cpu(Behind(function), CudaLists())[1]
    real = [r for r in ran if r.backward and r.name == "_to_copy" and r.output is Dtype.BF16]
    assert 0 < len(back) <= len(real)
    assert all(t.bytes == SIDE * SIDE * (2 + 4) for t in back)


def test_a_stored_network_keeps_its_functions(home: Path) -> None:
    stored = trace(Behind(NETWORKS["gelu"]), torch.empty(SIDE, SIDE), name="own", loss="sum")
    graph = graph_of(stored.name, (), Workload(SIDE))
    found = autocast(graph, Precision.MIXED_BF16_FP32, GPUS["cuda"])[:-1]
    expected = typed(Behind(NETWORKS["gelu"]), "cuda")
    assert [(t.operator.function, t.dtype) for t in found] == [
        (t.operator.function, t.dtype) for t in expected
    ]


def test_a_compiler_takes_the_casts_of_autocast_into_the_function() -> None:
    found = list(fused(typed(Behind(NETWORKS["gelu"]), "cuda"), 2))
    assert {t.bytes for t in found if t.operator.kind is Kind.CAST} == {0.0}


def test_a_framework_that_keeps_all_in_the_lower_format_casts_nothing(home: Path) -> None:
    stored = trace(Behind(NETWORKS["gelu"]), torch.empty(SIDE, SIDE), name="own", loss="sum")
    job = TrainingJob(
        model=stored.name,
        gpu="a100",
        gpus=1,
        batch_size=SIDE,
        precision="amp",
        framework="megatron",
    )
    found = job_operators(job, job_graph(job, entry_of(stored.name)))
    assert {t.dtype for t in found if t.operator.kind is Kind.ELEMENTWISE} == {Dtype.FP16}
    assert not [t for t in found if t.operator.kind is Kind.CAST and t.operator.function]


def _is_pointwise(ran: Ran) -> bool:
    return ran.name not in ("mm", "_to_copy")


def _once(names: list[str]) -> list[str]:
    """Casts of several inputs as one."""
    return [name for i, name in enumerate(names) if name != "_to_copy" or i == 0]


class Attention(torch.nn.Module):
    """Attention of a sequence to itself, its inputs given by name or by their place."""

    def __init__(self, *, named: bool) -> None:
        super().__init__()
        self.named = named
        self.linear = torch.nn.Linear(SIDE, SIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The values, mixed."""
        y = self.linear(x)
        if self.named:
            return F.scaled_dot_product_attention(query=y, key=y, value=y)
        return F.scaled_dot_product_attention(y, y, y)


@pytest.mark.parametrize("named", [False, True])
def test_attention_is_one_operator_however_its_inputs_are_given(home: Path, named: bool) -> None:
    stored = trace(Attention(named=named), torch.empty(2, 4, 8, SIDE), name="own", loss="sum")
    kinds = {o.kind for o in graph_of(stored.name, (), Workload(2)).operators}
    assert Kind.ATTENTION in kinds
    assert not kinds & {Kind.SOFTMAX, Kind.BATCHED_GEMM}
