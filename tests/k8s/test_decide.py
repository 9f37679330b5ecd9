"""Filter and ranks: who is refused where, and which nodes come first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_jobs import A100, BF16, FP32, MIXED, NODES, P100, V100, job, kind, scores_of
from hypothesis import given
from hypothesis import strategies as st
from k8s_configs import config_of

from k8s_extender.decide import Decider
from k8s_extender.nodes import GpuNode, GpuType
from k8s_extender.rank import DEADLINE, MEMORY, PRECISION
from predictor.estimate.fitting import Fitted
from predictor.identify.grammar import parse_text
from predictor.planning.cost import energy_of


@pytest.fixture(scope="module")
def decider(fitted: Fitted) -> Any:
    def make(nodes: dict[str, GpuNode] = NODES, **config: Any) -> Decider:
        return Decider(fitted.predictor, config_of(config), lambda: nodes)

    return make


def test_a_precision_the_gpu_cannot_run_is_refused_for_good(decider: Any) -> None:
    result = decider().filter(job(BF16), list(NODES))
    assert result.passed == ["a1", "a2", "cpu1"]
    assert set(result.refused.values()) == {PRECISION["bf16"]}


def test_mixed_fp16_and_fp32_may_run_anywhere(decider: Any) -> None:
    for text in (MIXED, FP32):
        assert decider().filter(job(text), list(NODES)).passed == list(NODES)


def test_rules_can_be_switched_off(decider: Any) -> None:
    open_ = decider(filter={"precision": False, "deadline": False})
    assert open_.filter(job(BF16, deadline_s=1.0, hard=True), list(NODES)).passed == list(NODES)


def test_what_is_predicted_of_memory_ranks_and_never_refuses(decider: Any) -> None:
    large = job("model=gpt2-xl precision=amp batch=64 steps=100")
    assert decider().filter(large, list(NODES)).passed == list(NODES)
    nodes = {"small": GpuNode("small", V100), "large": GpuNode("large", A100)}
    scores = scores_of(decider(nodes), large, list(nodes))
    assert scores["large"] > scores["small"]


def test_stated_memory_refuses_what_has_less(decider: Any) -> None:
    asked = job("model=resnet50 precision=fp32 batch=32", gpu_memory_bytes=40 * 2**30)
    assert set(decider().filter(asked, ["a1", "v1", "t1"]).refused.values()) == {MEMORY}
    assert decider().filter(asked, ["a1", "v1", "t1"]).passed == ["a1"]
    off = decider(filter={"memory": False})
    assert off.filter(asked, ["a1", "t1"]).passed == ["a1", "t1"]


def test_a_card_sold_as_80_gb_has_80(decider: Any) -> None:
    card = GpuType("H100", A100.gpu, 8, 81559 * 2**20)
    nodes = {"n": GpuNode("n", card), "t": NODES["t1"]}
    asked = job(BF16, gpu_memory_bytes=80 * 2**30)
    assert decider(nodes).filter(asked, ["n", "t"]).passed == ["n"]


def test_the_last_place_a_job_could_run_is_never_refused(decider: Any) -> None:
    old = {"v1": NODES["v1"], "p1": NODES["p1"]}
    assert decider(old).filter(job(BF16), ["v1", "p1"]).passed == ["v1", "p1"]
    away = replace(NODES["a1"], taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])
    closed = replace(NODES["a2"], takes_pods=False)
    kept = old | {"a1": away, "a2": closed}
    assert decider(kept).filter(job(BF16), ["v1"]).passed == ["v1"]
    borne = job(BF16, tolerations=({"key": "team", "operator": "Exists"},))
    assert decider(kept).filter(borne, ["v1"]).passed == []
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    guarded = replace(NODES["a1"], taints=[taint])
    assert decider(old | {"a1": guarded}).filter(job(BF16), ["v1"]).passed == ["v1"]
    elsewhere = job(BF16, node_selector={"zone": "none"})
    assert decider(kept).filter(elsewhere, ["v1"]).passed == ["v1"]


def test_a_pod_without_annotations_is_refused_nothing(decider: Any) -> None:
    silent = replace(job(BF16), stated=parse_text(BF16, "script"))
    assert decider().filter(silent, list(NODES)).passed == list(NODES)


def test_phases_are_summed(decider: Any) -> None:
    text = "model=gpt2-xl precision=amp batch=1 "
    small, long = decider(), job(text + 'phases="steps=100,seq=256;steps=50,seq=512"')
    (found,) = small.estimates(long, [A100])
    parts = [
        small.estimates(job(text + t), [A100])[0].total_s(0.95)
        for t in ("steps=100 seq=256", "steps=50 seq=512")
    ]
    assert found.total_s(0.95) == pytest.approx(sum(parts))


def test_a_slice_has_only_its_own_memory(decider: Any) -> None:
    slice_ = GpuType("MIG", A100.gpu, 7, 5 * 2**30, mig="1g.5gb", mig_share=1 / 7)
    nodes = {"mig": GpuNode("mig", slice_), "whole": GpuNode("whole", A100)}
    large = job("model=resnet50 precision=fp32", gpu_memory_bytes=20 * 2**30)
    assert decider(nodes).filter(large, ["mig", "whole"]).passed == ["whole"]


def test_only_a_deadline_called_hard_refuses(decider: Any) -> None:
    decide = decider()
    by_type = {e.type: e.total_s(0.5) for e in decide.estimates(job(), [A100, V100, P100])}
    between = (by_type[A100] + by_type[V100]) / 2
    names = ["a1", "v1", "p1"]
    result = decide.filter(job(deadline_s=between, hard=True), names)
    assert result.passed == ["a1"]
    assert result.refused == {"v1": DEADLINE, "p1": DEADLINE}
    assert decide.filter(job(deadline_s=between), names).passed == names


def test_what_meets_a_deadline_comes_first(decider: Any) -> None:
    decide = decider(prioritize={"policy": "reserve"})
    single = job(FP32)
    by_type = {e.type: e.total_s(0.5) for e in decide.estimates(single, [V100, P100])}
    assert scores_of(decide, single, ["v1", "p1"])["p1"] == 10
    soon = job(FP32, deadline_s=(by_type[V100] + by_type[P100]) / 2)
    assert scores_of(decide, soon, ["v1", "p1"])["v1"] == 10


def test_a_gang_goes_where_all_of_it_has_room(decider: Any) -> None:
    nodes = {"a1": NODES["a1"]} | {f"v{i}": GpuNode(f"v{i}", V100) for i in range(4)}
    alone, gang = job(gpus_per_pod=4), job(gpus_per_pod=4, pods=4)
    assert scores_of(decider(nodes), alone, ["a1", "v1"])["a1"] == 10
    assert scores_of(decider(nodes), gang, ["a1", "v1"])["v1"] == 10


def test_a_step_is_ranked_without_batch_precision_or_length(decider: Any) -> None:
    decide, told = decider(), job("model=resnet50")
    scores = scores_of(decide, told, ["a1", "v1", "p1"])
    assert scores["a1"] >= scores["v1"] > scores["p1"]
    (found,) = decide.estimates(told, [A100])
    assert found.assumed == ("batch_size", "precision")


def test_a_deadline_does_not_refuse_on_thin_evidence(decider: Any) -> None:
    thin = decider(evidence={"max_interval_ratio": 1.01})
    assert thin.filter(job(deadline_s=1.0, hard=True), ["a1", "v1"]).passed == ["a1", "v1"]


def test_names_nobody_knows_yet_pass_without_a_score(decider: Any) -> None:
    decide = decider()
    assert decide.filter(job(BF16), ["new", "v1"]).passed == ["new"]
    assert scores_of(decide, job(), ["new", "a1"])["new"] == 0


def test_a_job_that_says_nothing_passes_everywhere_with_equal_scores(decider: Any) -> None:
    silent = job("")
    assert decider().filter(silent, list(NODES)).passed == list(NODES)
    assert set(scores_of(decider(), silent, list(NODES)).values()) == {0}


def test_by_time_the_fastest_gpu_is_first(decider: Any) -> None:
    scores = scores_of(decider(), job(), ["a1", "v1", "p1"])
    assert scores["a1"] == 10
    assert scores["a1"] > scores["v1"] > scores["p1"]


def test_under_reserve_fp32_leaves_tensor_cores_and_mixed_takes_them(decider: Any) -> None:
    reserve = decider(prioritize={"policy": "reserve", "max_score": 100})
    words = "model=bert-large batch=8 steps=7038 precision="
    mixed = scores_of(reserve, job(f"{words}amp"), ["a1", "v1", "p1"])
    single = scores_of(reserve, job(f"{words}fp32"), ["a1", "v1", "p1"])
    assert mixed["a1"] > mixed["p1"]
    assert single["p1"] > single["v1"] > single["a1"]


def test_by_cost_a_cheap_gpu_may_win(decider: Any) -> None:
    prices = {A100.gpu.name: 100.0, V100.gpu.name: 1.0}  # type: ignore[union-attr]
    config = {"prioritize": {"policy": "cost"}, "hardware": {"prices_per_gpu_hour": prices}}
    scores = scores_of(decider(**config), job(), ["a1", "v1", "p1"])
    assert scores["v1"] == 10
    assert scores["p1"] == 0


@pytest.mark.parametrize("policy", ["cost", "energy"])
def test_a_part_of_a_gpu_costs_and_draws_the_part_that_it_is(decider: Any, policy: str) -> None:
    parts = {
        "whole": A100,
        "shared": kind("a100", replicas=4),
        "mig": kind("a100", mig="1g.10gb", mig_share=1 / 7),
    }
    nodes = {name: GpuNode(name, type_) for name, type_ in parts.items()}
    prices = {A100.gpu.name: 2.0}  # type: ignore[union-attr]
    config = {"prioritize": {"policy": policy}, "hardware": {"prices_per_gpu_hour": prices}}
    assert set(scores_of(decider(nodes, **config), job(), list(nodes)).values()) == {10}


def test_by_energy_a_gpu_counts_by_what_the_job_makes_it_draw(decider: Any) -> None:
    decide = decider(prioritize={"policy": "energy", "max_score": 100})
    found = decide.estimates(job(), [A100, V100, P100])
    joules = {e.type: energy_of(e.prediction, e.prediction.step_s).energy_j for e in found}
    scores = scores_of(decide, job(), ["a1", "v1", "p1"])
    named = {"a1": A100, "v1": V100, "p1": P100}
    by_score = sorted(named, key=scores.__getitem__, reverse=True)
    assert [joules[named[n]] for n in by_score] == sorted(joules.values())


def test_a_pod_may_choose_the_policy_it_is_ranked_by(decider: Any) -> None:
    chosen = job(FP32, scheduling_policy="reserve")
    assert scores_of(decider(), chosen, ["v1", "p1"])["p1"] == 10


@pytest.mark.parametrize("policy", ["time", "energy", "balanced", "reserve"])
def test_scores_are_whole_numbers_within_bounds(decider: Any, policy: str) -> None:
    for most in (1, 10, 100):
        decide = decider(prioritize={"policy": policy, "max_score": most})
        scores = scores_of(decide, job(), list(NODES)).values()
        assert all(type(score) is int and 0 <= score <= most for score in scores)
        assert max(scores) == most


def test_slices_and_shared_gpus_are_slower_than_whole_ones(decider: Any) -> None:
    slice_ = kind("a100", mig="1g.10gb", mig_share=1 / 7)
    shared = kind("a100", replicas=4)
    nodes = {
        "whole": GpuNode("whole", A100),
        "mig": GpuNode("mig", slice_),
        "shared": GpuNode("shared", shared),
    }
    times = {e.type: e.step_s for e in decider(nodes).estimates(job(), [A100, slice_, shared])}
    assert times[slice_] == pytest.approx(7 * times[A100])
    assert times[shared] == pytest.approx(4 * times[A100])
    scores = scores_of(decider(nodes, prioritize={"max_score": 100}), job(), list(nodes))
    assert scores["whole"] > scores["shared"] > scores["mig"]


@given(st.lists(st.sampled_from([*NODES, "x", "y"]), max_size=30), st.sampled_from([MIXED, BF16]))
def test_no_node_is_lost_without_a_reason(decider: Any, names: list[str], text: str) -> None:
    result = decider().filter(job(text), names)
    assert sorted({*result.passed, *result.refused}) == sorted(set(names))
    assert not set(result.passed) & set(result.refused)


def test_a_node_that_changes_its_gpus_is_judged_by_the_new_ones(fitted: Fitted) -> None:
    tables = [{"n": GpuNode("n", V100), "a": GpuNode("a", A100)}]
    decide = Decider(fitted.predictor, config_of({}), lambda: tables[-1])
    names, one = ["n", "a"], job(BF16)
    assert decide.filter(one, names).passed == ["a"]
    tables.append({"n": GpuNode("n", A100), "a": GpuNode("a", A100)})
    assert decide.filter(one, names).passed == ["n", "a"]
