"""What a framework makes of the operators: layouts and fusion."""

from __future__ import annotations

import pytest

from predictor.graphs.catalog import entry_of
from predictor.graphs.operator import READ_BACK, Direction, Kind, Operator
from predictor.job.precision import Dtype
from predictor.job.training_job import TrainingJob
from predictor.physics.autocast import TypedOperator
from predictor.physics.job_graph import fused, job_graph, job_operators, workload
from predictor.physics.step import StepModel

RESNET = TrainingJob(model="resnet50", precision="amp", gpu="a100", batch_size=64)


def operators(job: TrainingJob) -> tuple[TypedOperator, ...]:
    return job_operators(job, job_graph(job, entry_of(job.model)))


def copies(job: TrainingJob) -> float:
    """Bytes of the copies between layouts."""
    return sum(
        t.bytes
        for t in operators(job)
        if t.operator.kind is Kind.CAST and t.operator.direction is not Direction.UPDATE
    )


def pointwise_bytes(job: TrainingJob) -> float:
    return sum(
        t.bytes * t.operator.count for t in operators(job) if t.operator.kind is Kind.ELEMENTWISE
    )


class TestLayout:
    def test_channels_first_copies_around_tensor_core_convolutions(self) -> None:
        first = RESNET.but(options="channels_last=off", framework="pytorch 1.12")
        later = RESNET.but(options="channels_last=off", framework="pytorch 2.6")
        assert copies(first) > copies(later) > 0  # of 1x1 none
        assert copies(first.but(precision="tf32")) == pytest.approx(copies(first))  # by elements
        slow = first.but(gpu="a10")  # of memory
        assert copies(slow.but(precision="tf32")) == pytest.approx(2 * copies(slow))

    def test_channels_last_copies_nothing(self) -> None:
        assert copies(RESNET.but(options="channels_last")) == 0

    def test_torch_has_no_channels_last_of_one_axis(self) -> None:
        job = RESNET.but(model="hifigan-v1", options="channels_last=on")
        assert copies(job) == copies(job.but(options="channels_last=off")) > 0

    def test_ordinary_cores_take_either_layout(self) -> None:
        assert copies(RESNET.but(gpu="v100", precision="fp32")) == 0

    @pytest.mark.parametrize(("gpu", "format"), [("a100", Dtype.TF32), ("rtx3090", Dtype.FP32)])
    def test_fp32_convolutions_take_tensor_cores_where_they_are_faster(
        self, gpu: str, format: Dtype
    ) -> None:
        job = RESNET.but(gpu=gpu, precision="fp32")
        typed = [t for t in operators(job) if t.operator.kind is Kind.CONV]
        assert {t.dtype for t in typed} == {format}
        assert all(t.tensor_core is (format is Dtype.TF32) for t in typed)
        off = operators(job.but(options="tf32=off"))
        assert {t.dtype for t in off} == {Dtype.FP32}

    def test_tensorflow_1_has_no_channels_last_of_three_axes(self) -> None:
        job = RESNET.but(model="unet3d-medical", options="channels_last=on")
        one, two = (job.but(framework=f"tensorflow{v}") for v in (1, 2))
        assert copies(one) == copies(one.but(options="channels_last=off")) > copies(two) == 0

    def test_inductor_turns_convolutions_to_channels_last(self) -> None:
        assert RESNET.but(options="compile").software.channels_last
        assert not RESNET.but(options="compile", framework="pytorch 2.0").software.channels_last

    @pytest.mark.parametrize("option", ["channels_last=on", "layout=nhwc", "memory_format=NHWC"])
    def test_a_job_says_its_layout(self, option: str) -> None:
        assert RESNET.but(options=option).software.channels_last
        last = RESNET.but(framework="mxnet", options="layout=nchw").software.channels_last
        assert not last

    def test_tensorflow_keeps_channels_last_in_half_precision_only(self) -> None:
        job = RESNET.but(framework="tensorflow2")
        assert job.software.channels_last
        assert not job.but(precision="tf32").software.channels_last

    def test_odd_groups_with_channels_last_lose_the_tensor_cores(self, steps: StepModel) -> None:
        even, odd = (RESNET.but(model=m, gpu="rtx3090") for m in ("resnext50-32x4d", "regnety-040"))
        for job, slower in ((even, False), (odd, True)):
            first, last = (
                steps.price(job.but(options=f"channels_last={o}")) for o in ("off", "on")
            )
            assert (last.step_s > 1.5 * first.step_s) is slower


def norm_gradients(job: TrainingJob) -> float:
    """Bytes of the gradients of all layer norms."""
    return sum(
        t.bytes * t.operator.count
        for t in operators(job)
        if t.operator.kind is Kind.LAYER_NORM and t.operator.direction is not Direction.FORWARD
    )


class TestColumnSums:
    SWIN = TrainingJob(model="swin-tiny", precision="amp", gpu="a100", batch_size=64)

    def test_a_narrow_layer_norm_leaves_most_sms_idle_before_pytorch_2_8(self) -> None:
        old, new = (self.SWIN.but(framework=f"pytorch {v}") for v in ("2.7", "2.8"))
        assert norm_gradients(old) > 3 * norm_gradients(new)
        assert norm_gradients(old.but(options="compile")) == norm_gradients(new)
        assert norm_gradients(old.but(framework="tensorflow 2.4")) == norm_gradients(new)

    def test_the_wider_it_is_the_less(self) -> None:
        gradients = {
            model: [
                norm_gradients(self.SWIN.but(model=model, framework=f"pytorch {v}"))
                for v in ("1.8", "2.8")
            ]
            for model in ("vit-tiny-16", "vit-base-16", "vit-huge-14")
        }
        times = [old / new for old, new in gradients.values()]
        assert times == sorted(times, reverse=True)
        assert times[0] > 3
        assert times[-1] < 1.2

    def test_no_kernel_of_pytorch_sums_an_rms_norm(self) -> None:
        job = TrainingJob(model="qwen3-0.6b", precision="amp", gpu="a100", batch_size=1)
        old, new = (job.but(framework=f"pytorch {v}") for v in ("2.7", "2.8"))
        assert norm_gradients(old) == norm_gradients(new)


@pytest.mark.parametrize(
    ("software", "every"),
    [
        ({}, True),
        ({"framework": "tensorflow1"}, False),
        ({"options": "unpad=on"}, False),
        ({"dataset": "mnli"}, False),  # sentences that have labels
        ({"dataset": "openwebtext"}, True),
        ({"framework": "pytorch 1.7", "source": "deeplearningexamples"}, True),
        ({"framework": "pytorch 1.10", "source": "deeplearningexamples"}, False),
    ],
)
def test_bert_of_pytorch_scores_every_token(software: dict[str, str], every: bool) -> None:
    job = RESNET.but(model="bert-base", seq_len=128, batch_size=4, **software)
    found = [t.operator.dims for t in operators(job) if t.operator.kind is Kind.GEMM]
    scores = [dims for dims in found if 30522 in dims]
    assert scores
    assert all((4 * 128 in dims) == every for dims in scores)


class TestFusion:
    @pytest.mark.parametrize("option", ["xla=on", "compile=on"])
    def test_a_compiler_takes_traffic_away(self, option: str) -> None:
        assert pointwise_bytes(RESNET.but(options=option)) < 0.5 * pointwise_bytes(RESNET)

    def test_an_option_that_is_off_changes_nothing(self) -> None:
        assert operators(RESNET.but(options="xla=off")) == operators(RESNET)

    @pytest.mark.parametrize("precision", ["fp32", "amp"])
    @pytest.mark.parametrize(
        ("fused", "unfused"),
        [
            ({"framework": "tensorflow1"}, {"framework": "tensorflow1", "options": "xla=off"}),
            (
                {"framework": "mindspore", "options": "graph_kernel_fusion=on"},
                {"framework": "mindspore"},
            ),
            ({"framework": "paddlepaddle 2.0"}, {"framework": "paddlepaddle 1.8"}),
        ],
    )
    def test_what_fuses_nothing_spells_out_gelu_and_layer_norm(
        self, fused: dict[str, str], unfused: dict[str, str], precision: str
    ) -> None:
        job = RESNET.but(model="bert-base", precision=precision)
        both = (operators(job.but(**software)) for software in (fused, unfused))
        pairs = list(zip(*both, strict=True))
        gelus = [n for n, (plain, _) in enumerate(pairs) if plain.operator.function == "gelu"]
        norms = [n for n, (t, _) in enumerate(pairs) if t.operator.kind is Kind.LAYER_NORM]
        assert len(gelus) == 2  # of the layers, and of the head
        for n, (plain, spelt) in enumerate(pairs):
            elements = plain.operator.dims[0] * plain.operator.dims[1]
            if n in gelus or n - 1 in gelus:  # the gradient stands behind
                assert spelt.bytes == (18 if n in gelus else 26) * elements * 4
            elif n in norms:
                forward = plain.operator.direction is Direction.FORWARD
                assert spelt.bytes == (15 if forward else 32) * elements * 4
            else:
                assert spelt == plain

    def test_operators_stay_in_their_places(self) -> None:
        plain, compiled = operators(RESNET), operators(RESNET.but(options="xla=on"))
        assert [t.operator for t in plain] == [t.operator for t in compiled]
        assert all(c.bytes <= p.bytes for c, p in zip(compiled, plain, strict=True))

    def test_pointwise_work_behind_a_product_is_left_alone(self) -> None:
        product = Operator(Kind.GEMM, Direction.FORWARD, (8, 8, 8), 1024.0, 128, 64)
        pointwise = Operator(Kind.ELEMENTWISE, Direction.FORWARD, (1, 64), 0.0, 64, 64)
        typed = [TypedOperator(o, Dtype.FP16, 256.0, False) for o in (product, pointwise)]
        assert list(fused(typed, 2)) == typed
        assert next(iter(list(fused([*typed, typed[1]], 2))[2:])).bytes == 0

    def test_a_loss_reads_its_logits_twice_and_holds_no_copy(self) -> None:
        gpt = TrainingJob(
            model="gpt2-124m", precision="bf16-mixed", gpu="h100", batch_size=4, seq_len=1024
        )
        logits = 4 * 1024 * 50257
        eager, compiled = operators(gpt), operators(gpt.but(options="compile=on"))
        losses = [
            [t.bytes for t in ops if t.operator.kind is Kind.LOSS] for ops in (eager, compiled)
        ]
        assert losses == [[12 * logits] * 2, [4 * logits] * 2]
        copies = [t.bytes for t in compiled if t.operator.dims == (1, logits)]
        assert copies == [0.0, 0.0]


class TestWhatEagerCodeSpellsOut:
    LLAMA = TrainingJob(
        model="llama3-8b", precision="bf16", gpu="a100-sxm4-80gb", batch_size=1, seq_len=2048
    )

    @pytest.mark.parametrize("option", ["compile=on", "use_liger_kernel=true"])
    def test_norms_and_rotary_of_a_decoder_are_chains_unless_fused(self, option: str) -> None:
        chains = {"spelt_rms_norm", "rotary"}
        eager, fused_layers = self.LLAMA, self.LLAMA.but(options=option)
        assert chains <= {t.operator.function for t in operators(eager)}
        assert not chains & {t.operator.function for t in operators(fused_layers)}
        assert pointwise_bytes(fused_layers) < 0.7 * pointwise_bytes(eager)

    def test_a_spelt_norm_moves_more_backward_than_forward(self) -> None:
        """LlamaRMSNorm of Transformers under autograd: 36 bytes an element, and 92."""
        typed = operators(self.LLAMA)
        at = next(i for i, t in enumerate(typed) if t.operator.function == "spelt_rms_norm")
        norm = next(t for t in reversed(typed[:at]) if t.operator.kind is Kind.LAYER_NORM)
        elements = typed[at].operator.dims[1]
        assert norm.operator.dims[0] * norm.operator.dims[1] == elements
        assert typed[at].bytes / elements == pytest.approx(36 - 10, abs=2)  # a norm is priced 10
        assert typed[at + 1].bytes / elements == pytest.approx(92 - 26, abs=8)  # and 19 to 33

    def test_attention_in_one_kernel_copies_no_heads(self) -> None:
        layers = self.LLAMA.but(options="flash_attention=on"), self.LLAMA.but(framework="nemo")
        moves = [
            sum(t.operator.function == "" and t.operator.kind is Kind.ELEMENTWISE for t in ops)
            for ops in map(operators, layers)
        ]
        assert moves[0] - moves[1] <= 4  # gradients of the chains alone

    def test_frozen_weights_are_not_cast(self) -> None:
        full = self.LLAMA.but(precision="bf16-mixed")
        cast, kept = (
            sum(t.bytes for t in operators(job) if t.operator.direction is Direction.UPDATE)
            for job in (full, full.but(options="lora=on"))
        )
        assert kept < 0.01 * cast


class TestAdapters:
    LORA = TestWhatEagerCodeSpellsOut.LLAMA.but(options="lora=on")
    MIXED = LORA.but(precision="bf16-mixed")

    def test_megatron_adapts_what_enters_attention_alone(self) -> None:
        ranks = [
            t.operator.dims[1]
            for t in operators(self.LORA.but(framework="nemo"))
            if t.operator.kind is Kind.GEMM and t.operator.direction is Direction.FORWARD
        ]
        assert ranks.count(16) == 1
        dropped = {t.operator.function for t in operators(self.LORA.but(framework="nemo"))}
        assert "dropout" not in dropped

    def test_peft_widens_drops_and_narrows_the_input_of_each_projection(self) -> None:
        rows, hidden, layers = 2048, 4096, 32
        found = [t for t in operators(self.MIXED) if t.operator.function == "dropout"]
        forward = [t for t in found if t.operator.direction is Direction.FORWARD]
        assert [t.operator.count for t in forward] == [3 * layers, layers]  # q, k, v; o
        # Counted on peft's LoRA layer under autocast: to FP32 6, dropout 9, to 16 bits 6.
        assert [t.bytes for t in forward] == [21 * rows * hidden] * 2

    @pytest.mark.parametrize("job", [LORA, MIXED.but(options="lora=on;compile=on")])
    def test_adapters_in_16_bits_and_compiled_ones_drop_out_in_one_kernel(
        self, job: TrainingJob
    ) -> None:
        dropped = [t for t in operators(job) if t.operator.function == "dropout"]
        assert {t.operator.kernels for t in dropped} == {1}
        assert max(t.bytes for t in dropped) == 4.5 * 2048 * 4096  # read, written, a mask

    def test_weights_of_fewer_bits_are_written_out_for_every_use(self) -> None:
        plain, quantised = (
            sum(t.bytes * t.operator.count for t in operators(job) if t.operator.kind is Kind.CAST)
            for job in (self.LORA, self.LORA.but(options="quantized_base=4bit"))
        )
        products = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)
        assert quantised - plain == pytest.approx(2 * products * (0.5 + 2))


@pytest.mark.parametrize(("option", "removed"), [("cuda_graph=on", True), ("workers=4", False)])
def test_the_host_picks_the_masks_of_regions_unless_the_step_is_captured(
    option: str, removed: bool
) -> None:
    job = RESNET.but(model="mask-rcnn-r50-fpn", batch_size=2, options=option)
    picked = [t.operator for t in operators(job) if t.operator.function == READ_BACK]
    assert [o.kernels for o in picked] == ([] if removed else [2 * 2 * 80])


@pytest.mark.parametrize(
    ("option", "tokens"),
    [("unpad=on", 256), ("seq_binning=64", 288), ("seq_binning=512", 512), ("seq_binning=on", 256)],
)
def test_bins_of_lengths_are_padded_to_the_longest_of_a_bin(option: str, tokens: int) -> None:
    job = TrainingJob(
        model="bert-large", precision="amp", gpu="a100", batch_size=8, seq_len=512, options=option
    )
    assert workload(job, entry_of(job.model)).seq_len == tokens
