"""How a model is split over GPUs: who talks to whom, how much, over which link, behind what."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import JobError
from predictor.estimate.core import steps_of
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob
from predictor.physics.parallel.messages import CONTENTION, SHARDED_CONTENTION, Traffic
from predictor.physics.parallel.placement import Group, place
from predictor.physics.parallel.stages import layer_shares, pipeline
from predictor.physics.step import StepModel

BF16 = 2


def job(model: str = "llama2-7b", **fields: Any) -> TrainingJob:
    stated: dict[str, Any] = {
        "precision": Precision.MIXED_BF16_FP32,
        "gpu": "a100-sxm4-80gb",
        "gpus": 8,
        "batch_size": 1,
        "framework": "megatron",
    }
    return TrainingJob(model=model, **(stated | fields))


def llama3(**fields: Any) -> TrainingJob:
    """The 405B run of The Llama 3 Herd of Models, arXiv 2407.21783, table 4."""
    options = "account_for_embedding_in_pipeline_split=on;account_for_loss_in_pipeline_split=on"
    stated: dict[str, Any] = {
        "gpu": "h100-sxm5-80gb",
        "gpus": 16384,
        "seq_len": 8192,
        "grad_accum": 16,
        "tensor_parallel": 8,
        "pipeline_parallel": 16,
        "virtual_stages": 8,
        "sequence_parallel": True,
        "sharding": "zero1",
        "options": f"{options};overlap_grad_reduce=on;overlap_param_gather=on",
    }
    return job("llama3.1-405b", **(stated | fields))


# --- who talks to whom -------------------------------------------------------------------------


def test_tensor_parallelism_stays_in_a_node_and_the_outer_splits_cross_it() -> None:
    found = place(job(gpus=64, tensor_parallel=4, context_parallel=2, pipeline_parallel=2))
    assert found.tensor == Group(4, 1)
    assert found.context == Group(2, 1)
    assert found.data == Group(8, 4)
    assert found.next_stage == Group(2, 2)


def test_a_tensor_split_wider_than_a_node_crosses_nodes() -> None:
    assert place(job(gpus=16, tensor_parallel=16)).tensor == Group(16, 2)


def test_replicas_with_a_whole_node_between_them_stand_on_one_node_each() -> None:
    assert place(job(gpus=64, tensor_parallel=8)).data == Group(8, 8)


def test_experts_are_reduced_over_fewer_replicas() -> None:
    found = place(job("mixtral-8x7b", gpus=32, expert_parallel=8))
    assert (found.expert, found.data.gpus, found.expert_data.gpus) == (Group(8, 1), 32, 4)


# --- how much, over which link -----------------------------------------------------------------


def test_a_layer_sums_its_two_branches_forward_and_backward(steps: StepModel) -> None:
    one = job(gpus=4, tensor_parallel=4)
    tokens, hidden, layers = 4096, 4096, 32
    in_layer = steps.collectives.seconds(one.hardware, "all_reduce", tokens * hidden * BF16, 4, 1)
    found = steps.price(one)
    assert found.communication_s == pytest.approx(4 * layers * in_layer)
    assert found.fabric_s == 0.0
    assert found.exposed_s < found.communication_s  # weight gradients hide what backward sends


def test_sequence_parallelism_moves_as_much_and_computes_less(steps: StepModel) -> None:
    plain = job(gpus=8, tensor_parallel=8)
    whole, split = steps.price(plain), steps.price(plain.but(sequence_parallel=True))
    assert split.memory_s < whole.memory_s
    assert split.tensor_core_s == pytest.approx(whole.tensor_core_s)
    assert whole.communication_s < split.communication_s < 2 * whole.communication_s


def test_the_field_and_the_option_for_sequence_parallelism_are_one() -> None:
    option, field = (
        job(tensor_parallel=2, options="sequence_parallel"),
        job(tensor_parallel=2, sequence_parallel=True),
    )
    assert option == field
    assert option.sequence_parallel


def test_full_checkpointing_sums_the_forward_pass_again(steps: StepModel) -> None:
    plain = job(gpus=8, tensor_parallel=8)
    again = steps.price(plain.but(options="act_ckpt=full"))
    assert again.communication_s > 1.4 * steps.price(plain).communication_s


def test_overlap_of_tensor_messages_leaves_the_first_part_of_them(steps: StepModel) -> None:
    plain = job(gpus=8, tensor_parallel=8, sequence_parallel=True)
    plainly, overlapped = steps.price(plain), steps.price(plain.but(options="tp_comm_overlap=on"))
    assert overlapped.communication_s == plainly.communication_s
    assert 0 < overlapped.exposed_s < plainly.exposed_s


def test_keys_of_a_long_sequence_travel_behind_its_attention(steps: StepModel) -> None:
    found = steps.price(job(gpus=8, context_parallel=8, seq_len=131072))
    assert found.communication_s > 0
    short = steps.price(job(gpus=8, context_parallel=8, seq_len=1024))
    assert found.exposed_s / found.communication_s < short.exposed_s / short.communication_s


def test_context_parallelism_keeps_the_work_of_a_token(steps: StepModel) -> None:
    whole = steps.price(job(gpus=1, seq_len=32768, options="flash_attention=on"))
    part = job(gpus=8, context_parallel=8, seq_len=32768, options="flash_attention=on")
    assert steps.price(part).flops == pytest.approx(whole.flops / 8, rel=1e-6)


def test_tokens_travel_to_experts_and_back_twice(steps: StepModel) -> None:
    one = job("mixtral-8x7b", gpus=8, expert_parallel=8, seq_len=4096, sharding="ddp")
    alone = steps.price(one.but(expert_parallel=1)).communication_s
    sent = (
        32 * 4 * steps.collectives.seconds(one.hardware, "all_to_all", 4096 * 4096 * 2 * BF16, 8, 1)
    )
    dense = steps.price(one).communication_s - sent
    assert 0 < dense < alone  # each expert has one holder: its gradient is not reduced


def test_messages_between_nodes_are_told_from_those_inside(steps: StepModel) -> None:
    inside = steps.price(job(gpus=8, tensor_parallel=8))
    both = steps.price(job(gpus=16, tensor_parallel=8))
    assert inside.fabric_s == 0 < inside.node_link_s
    assert both.node_link_s == pytest.approx(inside.node_link_s)
    assert both.fabric_s == pytest.approx(both.communication_s - both.node_link_s)


def test_groups_that_send_at_once_share_the_adapters_of_a_node(steps: StepModel) -> None:
    one = job(gpus=16, tensor_parallel=8)
    many, few = (steps.price(one.but(fabric=f"{n}x ib-hdr")).fabric_s for n in (8, 1))
    assert few > 5 * many


# --- replicas ----------------------------------------------------------------------------------


def test_zero_1_scatters_gradients_and_gathers_weights(steps: StepModel) -> None:
    one = job(gpus=8, sharding="zero1")
    found, plain = steps.price(one), steps.price(one.but(sharding="ddp"))
    weights = plain.parameters
    seconds = steps.collectives.seconds
    scatter = seconds(one.hardware, "reduce_scatter", 4 * weights, 8, 1)
    gather = seconds(one.hardware, "all_gather", BF16 * weights, 8, 1)
    assert found.communication_s == pytest.approx(scatter + gather, rel=1e-6)
    assert found.optimizer_s < plain.optimizer_s


def test_megatron_reduces_gradients_after_the_backward_pass_unless_told(steps: StepModel) -> None:
    late = steps.price(job())
    early = steps.price(job(options="overlap_grad_reduce=on"))
    assert late.exposed_s == late.communication_s == early.communication_s
    assert early.exposed_s < (CONTENTION + 0.1) * late.exposed_s


def test_an_all_reduce_behind_the_backward_pass_costs_most_of_its_time(steps: StepModel) -> None:
    gpu = "v100-sxm2-16gb"
    step = steps.price(
        TrainingJob(model="bert-large", precision="amp", gpu=gpu, gpus=8, batch_size=16)
    )
    assert step.exposed_s == pytest.approx(CONTENTION * step.communication_s)


def test_sharded_weights_are_gathered_behind_the_layers_before_at_a_cost(steps: StepModel) -> None:
    found = steps.price(job(sharding="fsdp", framework="llm-foundry", batch_size=4))
    hidden = SHARDED_CONTENTION * found.communication_s
    assert hidden < found.exposed_s < hidden + 0.1 * found.communication_s  # the ring waits, too
    assert SHARDED_CONTENTION < CONTENTION  # gathers add nothing up


def test_stage_3_of_deepspeed_waits_for_what_fsdp_hides(steps: StepModel) -> None:
    fsdp, zero3 = (steps.price(job(sharding=s, batch_size=4)) for s in ("fsdp", "zero3"))
    assert zero3.communication_s == fsdp.communication_s
    assert zero3.exposed_s == pytest.approx(zero3.communication_s)


def test_sharded_weights_under_a_pipeline_are_gathered_once_a_step(steps: StepModel) -> None:
    piped = job(sharding="fsdp", framework="pytorch", gpus=16, pipeline_parallel=2)
    few, many = (steps.price(piped.but(grad_accum=n)) for n in (4, 16))
    flat = [steps.price(piped.but(pipeline_parallel=1, grad_accum=n)) for n in (4, 16)]
    assert many.communication_s < 2 * few.communication_s
    assert flat[1].communication_s == pytest.approx(4 * flat[0].communication_s)


def test_hybrid_sharding_sends_less_between_nodes(steps: StepModel) -> None:
    one = job(gpus=64, framework="llm-foundry")
    full, hybrid = (steps.price(one.but(sharding=s)) for s in ("fsdp", "hsdp"))
    assert full.node_link_s == 0
    assert 0 < hybrid.fabric_s < 0.6 * full.fabric_s


def test_full_and_hybrid_sharding_are_one_on_a_single_node(steps: StepModel) -> None:
    full, hybrid = (steps.price(job(sharding=s)) for s in ("fsdp", "hsdp"))
    assert full == hybrid


# --- stages ------------------------------------------------------------------------------------


@given(stages=st.integers(2, 16), steps_=st.integers(1, 64), virtual=st.integers(1, 8))
def test_equal_stages_wait_for_p_minus_1_of_m_v(stages: int, steps_: int, virtual: int) -> None:
    found = pipeline([1.0] * stages, steps_, virtual)
    assert found.bubble_s / found.busy_s == pytest.approx((stages - 1) / (steps_ * virtual))


@given(times=st.lists(st.floats(0.1, 10), min_size=1, max_size=8), micro=st.integers(1, 32))
def test_a_pipeline_is_no_faster_than_its_slowest_stage(times: list[float], micro: int) -> None:
    found = pipeline(times, micro)
    assert found.busy_s == pytest.approx(max(times) * micro)
    assert found.busy_s + found.bubble_s >= sum(times) * (1 - 1e-9)


def test_the_ends_of_a_network_are_on_the_first_and_the_last_stage(steps: StepModel) -> None:
    halves = steps.price(job(gpus=2, pipeline_parallel=2, grad_accum=16))
    whole = steps.price(job(gpus=1, grad_accum=16))
    assert whole.flops / 2 < halves.flops < 0.6 * whole.flops
    assert halves.parameters >= whole.parameters / 2


def test_virtual_stages_wait_less_and_send_more(steps: StepModel) -> None:
    plain = job(gpus=8, pipeline_parallel=8, grad_accum=16)
    one, four = steps.price(plain), steps.price(plain.but(virtual_stages=4))
    assert four.bubble_s < one.bubble_s / 3
    assert four.communication_s > 3 * one.communication_s
    option = plain.but(options="num_layers_per_virtual_pipeline_stage=1")
    assert steps.price(option).bubble_s == four.bubble_s


def test_layers_may_be_placed_by_hand() -> None:
    assert layer_shares(llama3(), 126) == pytest.approx([7 / 126, *[8 / 126] * 14, 7 / 126])
    stated = job(gpus=8, pipeline_parallel=4, options="decoder_first_pipeline_num_layers=2")
    assert layer_shares(stated, 32)[0] == 2 / 32
    assert sum(layer_shares(stated, 32)) == pytest.approx(1)


def test_a_rack_of_gb200_is_one_domain() -> None:
    moe = {"model": "qwen3-235b-a22b", "gpus": 256, "gpus_per_node": 4, "expert_parallel": 64}
    assert place(job(gpu="gb200", **moe)).expert == Group(64, 1)
    assert place(job(gpu="gb200", **moe)).data.nodes == 4
    assert place(job(gpu="h100", **moe | {"gpus_per_node": 8})).expert == Group(64, 8)


# --- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("llama2-7b", {"pipeline_parallel": 64, "gpus": 64}, "pipeline_parallel=64.*32 layers"),
        ("llama2-7b", {"tensor_parallel": 7, "gpus": 7}, "tensor_parallel=7.*32 heads"),
        ("llama2-7b", {"context_parallel": 3, "gpus": 3}, "context_parallel=3.*4096 tokens"),
        ("llama2-7b", {"expert_parallel": 2}, "expert_parallel=2.*no experts"),
        ("mixtral-8x7b", {"expert_parallel": 3, "gpus": 3}, "expert_parallel=3.*8 experts"),
        ("mixtral-8x7b", {"expert_parallel": 8, "gpus": 4}, "expert_parallel=8.*4 GPUs"),
        (
            "llama2-7b",
            {"pipeline_parallel": 4, "virtual_stages": 9},
            "virtual_stages=9.*8 layers of a stage",
        ),
        (
            "llama2-7b",
            {"pipeline_parallel": 4, "options": "decoder_first_pipeline_num_layers=40"},
            "pipeline_parallel=4.*of the 32 layers of llama2-7b 40 stand on the first and last",
        ),
    ],
)
def test_a_split_that_does_not_divide_is_refused(
    steps: StepModel, model: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(JobError, match=said):
        steps.price(job(model, **fields))


def test_a_loss_that_is_a_layer_leaves_no_stage_less_than_none(steps: StepModel) -> None:
    """Of a network without a number of layers."""
    split = {"pipeline_parallel": 4, "gpus": 4, "batch_size": 1, "framework": "megatron-lm"}
    loss = {"options": "account_for_loss_in_pipeline_split=on"}
    assert steps.price(job("xcit_small_12_p16_224", **split, **loss)).step_s > 0


def test_virtual_stages_need_stages() -> None:
    with pytest.raises(JobError, match=r"virtual_stages=2.*pipeline_parallel"):
        job(virtual_stages=2)


def test_a_mean_length_is_the_length_that_is_computed(steps: StepModel) -> None:
    packed = job(seq_len=4096, mean_seq_len=1024)
    assert steps.price(packed).compute_s == steps.price(job(seq_len=1024)).compute_s
    with pytest.raises(JobError, match="mean_seq_len=9000"):
        job(seq_len=4096, mean_seq_len=9000)


def test_packed_samples_attend_to_themselves_alone(steps: StepModel) -> None:
    """Four samples of 1,024 tokens in a sequence of 4,096: as many tokens, less attention."""
    whole = job(seq_len=4096, options="packing=on")
    packed = whole.but(mean_seq_len=1024)
    short = steps.price(job(seq_len=1024, batch_size=4))
    assert steps.price(packed).compute_s == short.compute_s < steps.price(whole).compute_s
    assert steps_of(packed.but(epochs=1, dataset_size=3200)) == 100  # 32 samples a step


def test_flash_attention_2_is_slow_on_b200(steps: StepModel) -> None:
    """330 to 360 TFLOP/s where newer kernels have about 1,000; cards were not timed."""
    sizes = {"gpus": 1, "seq_len": 65536, "framework": "pytorch"}
    long = job("llama2-7b", gpu="b200-sxm-180gb", options="flash_attention=newest", **sizes)
    old = long.but(options="flash_attention=on", framework_date=2025.5)
    newest, older = (steps.price(one).compute_s for one in (long, old))
    assert 2 * newest < older < 2.7 * newest


def test_experts_are_whole_where_gpus_do_not_suffice_for_their_split(steps: StepModel) -> None:
    fields = {"gpus": 16, "tensor_parallel": 2, "expert_parallel": 8, "sequence_parallel": True}
    few = job("mixtral-8x7b", pipeline_parallel=2, seq_len=4096, **fields)
    many = job("mixtral-8x7b", seq_len=4096, **fields)
    assert (few.expert_split, many.expert_split) == (1, 2)
    with pytest.raises(JobError, match="expert_parallel=8"):
        steps.price(few.but(options="etp=2"))
    node = many.but(gpus=8, expert_parallel=4, grad_accum=64)
    whole, split = (steps.price(node.but(options=f"etp={n}")) for n in (1, 2))
    assert whole.parameters > split.parameters
    assert whole.flops == pytest.approx(split.flops, rel=0.01)  # half the tokens, twice the width
    assert whole.communication_s < split.communication_s  # nothing to sum behind the experts


def test_mixtures_in_mxfp8_are_one_graph_with_fused_experts_since_june_2026(
    steps: StepModel,
) -> None:
    """Megatron Bridge 0.5.1, on Blackwell: 1.5 times as fast as the release before."""
    fields = {"gpu": "gb200", "gpus": 8, "gpus_per_node": 4, "expert_parallel": 8, "seq_len": 4096}
    old = job(
        "qwen3-30b-a3b",
        framework="nemo",
        framework_date=2026.4,
        precision=Precision.MIXED_FP8_BF16,
        options="fp8_recipe=mxfp8",
        batch_size=4,
        grad_accum=16,
        **fields,
    )
    new = old.but(framework_date=2026.5)
    assert new.software.captured
    assert new.software.fused_experts
    assert 1.25 < steps.price(old).step_s / steps.price(new).step_s < 1.55
    for other in ({"gpu": "h100"}, {"model": "qwen3-8b", "expert_parallel": 1}, {"options": ""}):
        assert not new.but(**other).software.fused_experts


def test_what_is_moved_to_the_host_takes_its_way_over_the_link(steps: StepModel) -> None:
    eager = job(framework="pytorch", sharding="zero3", options="act_ckpt=full")
    here, weights, kept = (
        steps.price(eager.but(options=f"act_ckpt=full{more}"))
        for more in ("", ";offload_params=on", ";act_cpu_offload=on")
    )
    link = 0.4 * eager.hardware.pcie_bytes_per_s
    moved = here.parameters * 3 * BF16 / eager.gpus  # twice as weights, once as gradients
    told = weights.communication_s - here.communication_s
    assert told == pytest.approx(moved / link, rel=0.02)  # beside what processors update
    inputs = 32 * 4096 * 4096 * 2 * BF16  # of 32 layers, 4096 tokens of 4096 features, in FP32
    assert kept.step_s - here.step_s == pytest.approx(2 * inputs / link, rel=0.1)


def test_fully_sharded_units_gather_what_is_frozen_as_it_is_kept(steps: StepModel) -> None:
    tuned = job(framework="pytorch", sharding="fsdp", options="lora=on")
    whole = steps.price(tuned.but(options=""))
    full, few = (
        steps.price(tuned.but(options=f"lora=on{o}")) for o in ("", ";quantized_base=4bit")
    )
    assert full.communication_s == pytest.approx(whole.communication_s * 2 / 3, rel=0.25)
    assert few.communication_s == pytest.approx(full.communication_s / 4, rel=0.15)
    apart = steps.price(tuned.but(sharding="ddp"))
    assert apart.communication_s < full.communication_s / 20


@pytest.mark.parametrize("said", ["quantized_base=4bit", "quantized_base=8bit", "load_in_8bit=on"])
def test_each_pass_writes_a_quantised_base_out(steps: StepModel, said: str) -> None:
    tuned = job(framework="pytorch", gpus=1, options="lora=on;act_ckpt=full")
    plain, quantised = (
        steps.price(tuned.but(options=f"lora=on;act_ckpt=full{o}")) for o in ("", f";{said}")
    )
    assert quantised.compute_s - plain.compute_s == pytest.approx(3 * 15e-12 * 6.6e9, rel=0.2)


def test_processors_of_a_node_update_what_its_gpus_hold(steps: StepModel) -> None:
    fields = {"gpus": 8, "sharding": "zero3", "options": "offload_optimizer=cpu"}
    node = job("llama2-7b", **fields)
    one, two = (steps.price(node.but(gpus=gpus)) for gpus in (8, 16))
    assert one.optimizer_s == pytest.approx(1e-9 * one.parameters)
    assert two.optimizer_s == pytest.approx(one.optimizer_s / 2)
    adapters = steps.price(node.but(options=f"{fields['options']};lora=on"))
    assert adapters.optimizer_s < one.optimizer_s / 100
    none = steps.price(node.but(options=f"{fields['options']};optimizer_step=excluded"))
    assert none.optimizer_s < one.optimizer_s / 10


# --- laws, and what was published --------------------------------------------------------------


@given(node=st.floats(0, 10), fabric=st.floats(0, 10), work=st.floats(0, 30), first=st.floats(0, 1))
def test_hidden_traffic_is_still_traffic(
    node: float, fabric: float, work: float, first: float
) -> None:
    sent = Traffic(node, fabric, node + fabric)
    hidden = sent.behind(work, first)
    assert hidden.seconds == sent.seconds
    assert 0 <= hidden.exposed_s <= sent.seconds
    assert hidden.exposed_s >= min(first * sent.seconds, sent.seconds) * (1 - 1e-9)


def test_llama_3_405b_loses_as_much_as_published_from_8192_to_16384_gpus(steps: StepModel) -> None:
    """430 and 400 TFLOP/s per GPU: the same batch of 16 M tokens, half the micro-steps."""
    half, full = (
        steps.price(llama3(gpus=gpus, grad_accum=accum)).step_s * gpus
        for gpus, accum in ((8192, 32), (16384, 16))
    )
    assert half / full == pytest.approx(400 / 430, rel=0.03)


def test_the_largest_job_is_priced_as_fast_as_a_small_one(steps: StepModel) -> None:
    def fastest(made: list[TrainingJob]) -> float:
        times = []
        for one in made:
            start = perf_counter()
            steps.price(one)
            times.append(perf_counter() - start)
        return min(times)

    batches = range(2, 22)
    largest = fastest([llama3(batch_size=n) for n in batches])
    assert largest < 4 * fastest([job(batch_size=n) for n in batches])
