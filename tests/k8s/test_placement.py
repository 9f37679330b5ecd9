"""Soft placement in admission: what a new pod is given, on payloads of a real API server."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from admission_reviews import Admitted, applied
from gfd_nodes import a100, node
from k8s_configs import config_of, pod_job
from training_commands import COMMANDS

from k8s_extender.admission import (
    BEST,
    FACTOR,
    PLACED,
    Admission,
    Outcome,
    Reviewed,
    place,
)
from k8s_extender.admission.review import Patch, subject_of
from k8s_extender.decide import Decider
from k8s_extender.nodes import GpuNode, gpu_node
from k8s_extender.workload import PodJob
from predictor.estimate.core import Predictor
from predictor.estimate.store import load_predictor

PAYLOADS = Path(__file__).parent / "payloads" / "placement"
PRODUCT = "nvidia.com/gpu.product"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
L40S, V100 = "NVIDIA-L40S", "Tesla-V100-SXM2-16GB"
BERT = (
    "python run_mlm.py --model_name_or_path bert-large-uncased --fp16"
    " --max_seq_length 512 --per_device_train_batch_size 32"
)
TERMS = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")


def cluster(*, h100: int = 2) -> dict[str, GpuNode]:
    """Nodes as the API server holds them, of four kinds."""
    raw = [
        *(node(f"h{i}", H100, memory=81559, gpus=8, capability=(9, 0)) for i in range(h100)),
        *(a100(f"a{i}") for i in range(4)),
        *(node(f"l{i}", L40S, memory=46068, gpus=8, capability=(8, 9)) for i in range(4)),
        *(node(f"v{i}", V100, memory=16384, gpus=8, capability=(7, 0)) for i in range(4)),
    ]
    hardware = config_of({}).hardware
    return {node.name: node for node in (gpu_node(each, hardware) for each in raw)}


@cache
def predictor() -> Predictor:
    return load_predictor("shipped")


def known(table: dict[str, GpuNode] | None = None, **config: Any) -> Decider:
    nodes = cluster() if table is None else table
    return Decider(predictor(), config_of(config), lambda: nodes)


def review(name: str = "pod-of-job", command: str = BERT, gpus: int = 1) -> dict[str, Any]:
    raw = json.loads((PAYLOADS / f"affinity-{name}-admissionreview-request.json").read_text())
    (container,) = raw["request"]["object"]["spec"]["containers"]
    container["command"] = shlex.split(command)
    for part in container["resources"].values():
        part["nvidia.com/gpu"] = str(gpus)
    return dict(raw)


def placed(raw: dict[str, Any], decider: Decider | None = None) -> Admitted:
    decider = known() if decider is None else decider
    return applied(Admission(lambda: decider), raw, verb="place")


def terms(found: Admitted) -> list[tuple[str, int]]:
    """Values and weights of the preferred terms about the GPU product."""
    told: Any = found.object["spec"]
    for step in TERMS:
        told = told.get(step) or {}
    return [
        (value, term["weight"])
        for term in told or ()
        for wanted in term["preference"]["matchExpressions"]
        if wanted["key"] == PRODUCT
        for value in wanted["values"]
    ]


def job_of(command: str, gpus: int) -> PodJob:
    raw = review(command=command, gpus=gpus)
    job = pod_job(raw["request"]["object"], config_of({}))
    assert job is not None
    return job


def test_a_gang_that_its_job_alone_tells_goes_where_all_of_it_has_room() -> None:
    decider, raw = known(), review(gpus=8)
    assert terms(placed(raw, decider))[0][0] == H100
    (owner,) = raw["request"]["object"]["metadata"]["ownerReferences"]
    decider.gangs = {owner["uid"]: 4}  # 32 GPUs of 16 H100 and 32 A100
    found = placed(raw, decider)
    assert terms(found)[0][0] == A100
    assert found.object["metadata"]["labels"] == raw["request"]["object"]["metadata"]["labels"]


def test_what_takes_longer_than_it_may_is_answered_open(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Reviewed] = []
    decider = known()
    monkeypatch.setattr(decider, "job_of", lambda pod: time.sleep(60))
    monkeypatch.setattr("k8s_extender.admission.review.BUDGET_S", 0.05)
    found = applied(Admission(lambda: decider, heard.append), review(), verb="place")
    assert found.operations == []
    assert [one.outcome for one in heard] == [Outcome.LATE]
    assert heard[0].duration_s < 30


@pytest.mark.parametrize("policy", ["time", "cost", "reserve"])
def test_forty_commands_of_today_without_annotation_are_refused_nowhere(policy: str) -> None:
    prices = {"h100": 4.0, "a100": 2.0, "l40s": 1.0, "v100": 0.5}
    decider = known(prioritize={"policy": policy}, hardware={"prices_per_gpu_hour": prices})
    assert len(COMMANDS) >= 40
    for command, gpus in COMMANDS.items():
        result = decider.filter(job_of(command, gpus), list(decider.nodes()))
        assert list(result.passed) == list(decider.nodes()), command


def test_the_types_of_those_commands_come_in_a_sane_order() -> None:
    """H100 leads or ties, and is never behind; V100 never leads an LLM."""
    decider, ranked = known(), 0
    for command, gpus in COMMANDS.items():
        scores = decider.prioritize(job_of(command, gpus), list(decider.nodes()))
        by_type = {name: scores.score(f"{name}0") for name in "halv"}
        if any(by_type.values()):
            ranked += 1
            assert by_type["h"] == max(by_type.values()), (command, by_type)
            assert by_type["a"] >= by_type["v"], (command, by_type)
            if "bf16" in command:
                assert by_type["v"] == min(by_type.values()), (command, by_type)
    assert ranked >= 36  # the others name a file, or leave the network to a default of nanoGPT


def test_a_new_pod_prefers_the_fast_types_in_order() -> None:
    found = placed(review())
    assert terms(found) == [(H100, 100), (A100, 40), (L40S, 16), (V100, 6)]
    assert found.annotations[PLACED] == f"{H100}=100,{A100}=40,{L40S}=16,{V100}=6"


def test_extender_and_admission_give_one_order() -> None:
    decider = known()
    for command, gpus in COMMANDS.items():
        found = terms(placed(review(command=command, gpus=gpus), decider))
        scores = decider.prioritize(job_of(command, gpus), list(decider.nodes()))
        by_product = {H100: "h0", A100: "a0", L40S: "l0", V100: "v0"}
        for one, weight in found:
            for other, less in found:
                if weight > less:
                    assert scores.score(by_product[one]) > scores.score(by_product[other])


def test_what_a_user_prefers_and_selects_stays() -> None:
    raw = review("pod-userset")
    before = raw["request"]["object"]["spec"]["affinity"]
    found = placed(raw)
    own = before["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    all_ = found.object["spec"]["affinity"]["nodeAffinity"]
    assert all_["preferredDuringSchedulingIgnoredDuringExecution"][: len(own)] == own
    assert {k: v for k, v in found.object["spec"]["affinity"].items() if k != "nodeAffinity"} == {
        k: v for k, v in before.items() if k != "nodeAffinity"
    }
    assert terms(found)


def test_who_prefers_products_themselves_gets_no_terms() -> None:
    raw = review()
    own = {"key": PRODUCT, "operator": "In", "values": [V100]}
    raw["request"]["object"]["spec"]["affinity"] = {
        "nodeAffinity": {
            TERMS[-1]: [{"weight": 1, "preference": {"matchExpressions": [own]}}],
        }
    }
    assert placed(raw).operations == []
    raw = review()
    raw["request"]["object"]["spec"]["nodeSelector"] = {PRODUCT: V100}
    assert placed(raw).operations == []


def test_only_types_the_pod_can_get_are_named() -> None:
    raw = review()
    keep = {"key": PRODUCT, "operator": "NotIn", "values": [H100]}
    raw["request"]["object"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [keep]}]
            }
        }
    }
    assert [value for value, _ in terms(placed(raw))] == [A100, L40S, V100]


def test_types_that_are_alike_share_a_term() -> None:
    obj = review()["request"]["object"]
    job, patch = pod_job(obj, config_of({})), Patch(obj)
    assert job is not None
    place(patch, obj, job, {(PRODUCT, "a"): 100, (PRODUCT, "b"): 100, (PRODUCT, "c"): 40})
    affinity, _ = (one["value"] for one in patch.operations)
    written = affinity[TERMS[1]][TERMS[2]]
    values = [one["preference"]["matchExpressions"][0]["values"] for one in written]
    assert values == [["a", "b"], ["c"]]
    assert [one["weight"] for one in written] == [100, 40]


def test_terms_are_written_once() -> None:
    raw = review()
    raw["request"]["object"] = placed(raw).object
    assert placed(raw).operations == []


def test_a_pod_that_says_nothing_or_has_a_node_is_left_alone() -> None:
    assert placed(review(command="python -m http.server")).operations == []
    bound = review()
    bound["request"]["object"]["spec"]["nodeName"] = "a0"
    assert placed(bound).operations == []
    assert placed(review(), known({"a0": cluster()["a0"]})).operations == []


def test_a_gang_prefers_one_type_that_has_room_for_all_of_it() -> None:
    raw = review(gpus=8)
    pod = raw["request"]["object"]
    pod["metadata"]["annotations"] = {"precision-time.io/pods": "4"}
    found = placed(raw)
    assert terms(found)[0] == (A100, 100)  # two nodes of H100 do not hold four pods
    ((weight, together),) = (
        (term["weight"], term["podAffinityTerm"])
        for term in found.object["spec"]["affinity"]["podAffinity"][TERMS[-1]]
    )
    uid = pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]
    assert (weight, together["topologyKey"]) == (100, PRODUCT)
    assert together["labelSelector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def test_a_type_holds_what_one_of_less_memory_holds() -> None:
    """A V100 would have to compute activations again, which an L40S does not have to."""
    nodes = [
        node("l", L40S, memory=46068, gpus=8, capability=(8, 9)),
        node("v", V100.replace("16", "32"), memory=32768, gpus=8, capability=(7, 0)),
    ]
    decider = known({n["metadata"]["name"]: gpu_node(n, config_of({}).hardware) for n in nodes})
    raw = review(command="sleep 9", gpus=8)
    said = "model=gemma-2b grad_accum=2 batch=8 seq_len=512 options=lora=on;lora_rank=8"
    raw["request"]["object"]["metadata"]["annotations"] = {"precision-time.io/job": said}
    job = pod_job(raw["request"]["object"], decider.config)
    assert job is not None
    assert all(e.fits for e in decider.estimates(job, decider.candidates(job).types))
    assert terms(placed(raw, decider))[0][0] == L40S


def test_for_karpenter_one_term_names_the_best() -> None:
    decider = known(placement={"single_term": True})
    assert terms(placed(review(), decider)) == [(H100, 100)]


def test_observing_changes_nothing_and_tells_what_would_be() -> None:
    heard: list[Reviewed] = []
    decider = known(mode="observe")
    found = applied(Admission(lambda: decider, heard.append), review(), verb="place")
    assert found.operations == []
    (told,) = heard
    assert told.outcome is Outcome.OBSERVED
    subject = subject_of(told.request)
    assert (told.decision.placed, subject.kind, subject.name) == (H100, "Job", "jpodsonly1")
    assert told.decision.order.startswith(f"{H100} 100, {A100} 40")


@pytest.mark.parametrize("spec", ["text", {"affinity": "text"}, {"affinity": {"nodeAffinity": []}}])
def test_an_object_of_another_shape_gets_no_patch_that_could_be_refused(spec: Any) -> None:
    raw = review()
    pod = raw["request"]["object"]
    pod["spec"] = spec if isinstance(spec, str) else pod["spec"] | spec
    assert placed(raw).operations == []


def test_a_step_outweighs_what_a_loaded_node_loses_on_the_real_scheduler() -> None:
    """By the scores that kube-scheduler gave: CPU and memory in use never undo our order."""
    rows = json.loads((PAYLOADS / "placement-scores.json").read_text())["rows"]
    loaded = [row["nodes"] for row in rows if row["case"].startswith("load ")]
    assert len(loaded) >= 20
    for nodes in loaded:
        fast, slow = nodes["h100-0"], nodes["a100-0"]
        others = [one["FINAL"] - one.get("NA", 0) for one in (fast, slow)]
        assert others[0] + 2 * BEST > others[1] + 2 * BEST * FACTOR


def test_a_cordoned_or_tainted_type_is_not_preferred() -> None:
    table = cluster()
    table |= {name: replace(table[name], takes_pods=False) for name in ("h0", "h1")}
    assert [value for value, _ in terms(placed(review(), known(table)))] == [A100, L40S, V100]


def test_a_pod_with_claims_is_ranked_and_gets_no_times() -> None:
    """As the API server holds it: the claims' names alone, and no resource."""
    raw = review()
    captured = json.loads((PAYLOADS / "dra-pod-with-claim.json").read_text())
    pod = raw["request"]["object"]
    pod["spec"] = {key: value for key, value in captured["spec"].items() if key != "nodeName"}
    (container,) = pod["spec"]["containers"]
    container["command"] = shlex.split(f"{BERT} --per_device_train_batch_size 8")
    assert "nvidia.com/gpu" not in json.dumps(container.get("resources", {}))
    found = placed(raw)
    assert [value for value, _ in terms(found)] == [H100, A100, L40S, V100]
    assert found.object["spec"]["resourceClaims"] == pod["spec"]["resourceClaims"]
    job = pod_job(pod, config_of({}))
    assert job is not None
    (estimate, *_) = known().estimates(job, [cluster()["h0"].type])  # type: ignore[list-item]
    assert "gpus" in estimate.assumed


def test_a_device_class_is_asked_for_like_a_resource() -> None:
    raw = review()
    (container,) = raw["request"]["object"]["spec"]["containers"]
    asked = {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "2"}}
    container["resources"] = asked
    job = pod_job(raw["request"]["object"], config_of({}))
    assert job is not None
    assert job.gpus_per_pod == 2
    assert terms(placed(raw))[0] == (H100, 100)


def test_under_reserve_a_small_job_leaves_nvlink_to_one_that_takes_a_node() -> None:
    decider, first = known(prioritize={"policy": "reserve"}), {}
    command = BERT.replace("large", "base").replace("512", "256").replace("32", "6")
    for gpus in (1, 8):
        job = decider.job_of(review(command=command, gpus=gpus)["request"]["object"])
        assert job is not None
        first[gpus] = decider.steps(job, decider.candidates(job).types)[0][0].product
    assert first[1] == L40S
    assert first[8] in (H100, V100)
