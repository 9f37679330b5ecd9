"""Filter and ranks: who is refused where, and which nodes come first."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_jobs import A100, BF16, FP32, MIXED, NODES, P100, V100, job, kind, scores_of
from hypothesis import given
from hypothesis import strategies as st

from k8s_extender.config import config_of
from k8s_extender.decide import Decider
from k8s_extender.records import GpuNode, GpuType
from k8s_extender.refuse import DEADLINE, MEMORY, PRECISION
from predictor.estimate.fits import least_memory
from predictor.estimate.fitting import Fitted
from predictor.planning.energy import energy_of


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
    assert open_.filter(job(BF16, deadline_s=1.0), list(NODES)).passed == list(NODES)


def test_a_job_whose_memory_does_not_fit_is_refused_for_good(decider: Any) -> None:
    large = job("model=gpt2-xl precision=amp batch=4096 steps=100")
    small = job("model=gpt2-xl precision=amp batch=1 steps=100")
    assert decider().filter(large, ["a1", "t1"]).refused["t1"] == MEMORY
    assert decider(filter={"memory": False}).filter(large, ["t1"]).passed == ["t1"]
    assert decider().filter(small, ["a1"]).passed == ["a1"]


def test_phases_are_summed_and_the_largest_must_fit(decider: Any) -> None:
    text = "model=gpt2-xl precision=amp batch=1 "
    small, long = decider(), job(text + 'phases="steps=100,seq=256;steps=50,seq=512"')
    (found,) = small.estimates(long, [A100])
    parts = [
        small.estimates(job(text + t), [A100])[0].total_s(0.95)
        for t in ("steps=100 seq=256", "steps=50 seq=512")
    ]
    assert found.total_s(0.95) == pytest.approx(sum(parts))
    large = job(text + 'phases="steps=100;steps=50,batch=4096"')
    assert small.filter(large, ["a1", "t1"]).refused["t1"] == MEMORY


def test_how_far_predicted_memory_may_exceed_the_gpu_is_configured(decider: Any) -> None:
    one = job("model=resnet50 precision=fp32 batch=256 epochs=1")
    need = least_memory(decider().estimates(one, [A100])[0].prediction.job)
    size = need.framework_bytes + round(need.allocated_bytes / 1.2)
    nodes = {"n": GpuNode("n", GpuType("A100", A100.gpu, 1, size))}
    for tolerance, passed in ((0.0, []), (0.1, []), (0.3, ["n"])):
        decide = decider(nodes, filter={"memory_tolerance": tolerance})
        assert decide.filter(one, ["n"]).passed == passed


def test_a_slice_has_only_its_own_memory(decider: Any) -> None:
    slice_ = GpuType("MIG", A100.gpu, 7, 5 * 2**30, mig="1g.5gb", mig_share=1 / 7)
    nodes = {"mig": GpuNode("mig", slice_), "whole": GpuNode("whole", A100)}
    large = job("model=resnet50 precision=fp32 batch=256 epochs=1")
    assert decider(nodes).filter(large, ["mig", "whole"]).passed == ["whole"]


def test_a_deadline_refuses_only_gpus_that_are_too_slow(decider: Any) -> None:
    decide = decider()
    by_type = {e.type: e.total_s(0.5) for e in decide.estimates(job(), [A100, V100, P100])}
    between = (by_type[A100] + by_type[V100]) / 2
    result = decide.filter(job(deadline_s=between), ["a1", "v1", "p1"])
    assert result.passed == ["a1"]
    assert result.refused == {"v1": DEADLINE, "p1": DEADLINE}


def test_a_deadline_does_not_refuse_on_thin_evidence(decider: Any) -> None:
    thin = decider(evidence={"max_interval_ratio": 1.01})
    assert thin.filter(job(deadline_s=1.0), ["a1", "v1"]).passed == ["a1", "v1"]


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
    least = min(joules.values())
    scores = scores_of(decide, job(), ["a1", "v1", "p1"])
    for name, type_ in (("a1", A100), ("v1", V100), ("p1", P100)):
        assert scores[name] == round(100 * least / joules[type_])


def test_a_pod_may_choose_the_policy_it_is_ranked_by(decider: Any) -> None:
    chosen = job(FP32, scheduling_policy="reserve")
    assert scores_of(decider(), chosen, ["a1", "p1"])["p1"] == 10


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
