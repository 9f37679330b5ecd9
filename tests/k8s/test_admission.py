"""What is filled in where a training job is created: times, deadlines, and a line for the user."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from admission_reviews import (
    A100,
    BOTH,
    OURS,
    P100,
    STATED,
    V100,
    Admitted,
    admitted,
    gpus,
    job,
    knowledge,
    nodes,
    pod,
)
from k8s_configs import pod_job

from k8s_extender.admission.limits import UNFILLED, forecast
from k8s_extender.config import Config
from k8s_extender.decide import Decider, GpuCandidates
from k8s_extender.nodes import GpuType
from k8s_extender.plain import seconds_of
from predictor.estimate import store
from predictor.estimate.fitting import Fitted
from predictor.job.precision import Precision
from predictor.job.training_job import TrainingJob

DURATION, P95, STEP, BASIS = (
    f"{OURS}{name}"
    for name in ("predicted-duration", "predicted-p95", "predicted-step-seconds", "predicted-basis")
)
BF16 = STATED | {f"{OURS}precision": "bf16-mixed"}


@pytest.fixture(scope="module")
def known(fitted: Fitted) -> Decider:
    return knowledge(fitted)


def seconds(annotations: dict[str, str], name: str) -> float:
    found = seconds_of(annotations[name])
    assert found is not None
    return found


def deadline(obj: dict[str, Any]) -> int:
    found = obj["spec"]["activeDeadlineSeconds"]
    assert type(found) is int
    return found


def predicted_on(fitted: Fitted, gpu: str) -> Any:
    return fitted.predictor.predict(
        TrainingJob(
            model="resnet50",
            precision=Precision.MIXED_FP16_FP32,
            gpu=gpu,
            gpus=1,
            gpus_per_node=1,
            batch_size=128,
            epochs=90,
            dataset_size=1281167,
        )
    )


def test_a_job_gets_the_times_of_the_slowest_gpu_it_may_land_on(
    known: Decider, fitted: Fitted
) -> None:
    found = admitted(known, job()).annotations
    slowest = predicted_on(fitted, "v100-sxm2-16gb")
    assert slowest.step_s > predicted_on(fitted, "a100-sxm4-80gb").step_s
    assert float(found[STEP]) == pytest.approx(slowest.step_s, rel=1e-4)
    assert seconds(found, DURATION) == pytest.approx(slowest.total_quantile_s(0.5), abs=1)
    assert seconds(found, P95) == pytest.approx(slowest.total_quantile_s(0.95), abs=1)
    words = dict(word.split("=") for word in found[BASIS].split())
    assert words == {
        "tier": slowest.tier.value,
        "predictor": "20261201-1",
        "gpu": V100.product.replace(" ", "-"),
        "gpus": "1",
    }


def test_the_deadline_covers_the_slowest_gpu_start_up_and_checkpoints(
    known: Decider, fitted: Fitted
) -> None:
    rule = known.config.deadline
    high_s = predicted_on(fitted, "v100-sxm2-16gb").total_quantile_s(rule.quantile)
    filled = deadline(admitted(known, job()).object)
    assert 0 <= filled - (high_s * (1 + rule.checkpoint_share) + rule.startup_s) < rule.rounding_s
    assert filled % rule.rounding_s == 0


def test_a_job_that_names_two_precisions_is_not_told_the_time_of_the_usual_one(
    fitted: Fitted,
) -> None:
    usual = knowledge(fitted, assumed_precision="fp32")
    silent = {key: value for key, value in STATED.items() if key != f"{OURS}precision"}
    assert deadline(admitted(usual, job(silent)).object)
    both = admitted(usual, job(silent | {f"{OURS}fp16": "on", f"{OURS}bf16": "on"}))
    assert DURATION not in both.annotations
    assert "activeDeadlineSeconds" not in both.object["spec"]
    assert "invalid precision='fp16 and bf16'" in both.said


@pytest.mark.parametrize(
    "pinned",
    [
        {"nodeSelector": {"pool": "fast"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "pool", "operator": "In", "values": ["fast"]}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    ],
)
def test_a_gpu_the_pods_cannot_land_on_does_not_count(
    known: Decider, pinned: dict[str, Any]
) -> None:
    fast = admitted(known, job(pod=pinned))
    assert deadline(fast.object) < deadline(admitted(known, job()).object)
    assert A100.product in fast.said


def test_a_gpu_the_filter_would_refuse_does_not_count(known: Decider, fitted: Fitted) -> None:
    only_fast = knowledge(fitted, nodes(fast=A100))
    everywhere = admitted(known, job(BF16))
    assert deadline(everywhere.object) == deadline(admitted(only_fast, job(BF16)).object)


def test_a_bare_pod_is_given_time_for_a_gpu_that_only_an_extender_would_refuse(
    fitted: Fitted,
) -> None:
    """Its deadline can only be lowered later, and where no extender is asked it may land there."""
    carried = {"max_interval_ratio": 1e9, "refused_tiers": []}
    both = nodes(fast=A100, slow=V100)
    known = knowledge(fitted, both, evidence=carried)
    unrefused = knowledge(fitted, both, evidence=carried, filter={"precision": False})
    bare = deadline(admitted(known, pod(BF16)).object)
    assert bare == deadline(admitted(unrefused, pod(BF16)).object)
    assert bare > deadline(admitted(known, job(BF16)).object)


def test_a_node_with_too_few_gpus_for_a_pod_does_not_count(fitted: Fitted) -> None:
    wide = job()
    asked = wide["spec"]["template"]["spec"]["containers"][0]["resources"]
    asked["limits"] = asked["requests"] = {"nvidia.com/gpu": "8"}
    only_fast = admitted(knowledge(fitted, nodes(fast=A100)), copy.deepcopy(wide))
    small = nodes(fast=A100, slow=gpus("v100", count=4), new=GpuType("NEW-GPU", None, 4))
    found = admitted(knowledge(fitted, small), wide)
    assert deadline(found.object) == deadline(only_fast.object)


def one_after_another(completions: int | None, parallelism: int) -> dict[str, Any]:
    return job(spec={"completions": completions, "parallelism": parallelism})


@pytest.mark.parametrize(
    ("completions", "parallelism", "runs"),
    [(None, 4, 1), (1, 1, 1), (4, 4, 1), (5, 1, 5), (20, 4, 5), (21, 4, 6), (2, 4, 1), (3, 0, 3)],
)
def test_the_deadline_covers_all_runs_of_a_job_that_takes_them_in_turn(
    known: Decider, fitted: Fitted, completions: int | None, parallelism: int, runs: int
) -> None:
    rule = known.config.deadline
    high_s = predicted_on(fitted, "v100-sxm2-16gb").total_quantile_s(rule.quantile)
    found = admitted(known, one_after_another(completions, parallelism))
    wanted_s = runs * (high_s * (1 + rule.checkpoint_share) + rule.startup_s)
    assert 0 <= deadline(found.object) - wanted_s < rule.rounding_s
    assert ("runs one after another" in found.said) == (runs > 1)
    assert seconds(found.annotations, P95) == pytest.approx(high_s, abs=1)  # of one run


def test_a_job_that_waits_suspended_for_its_queue_gets_its_deadline_at_once(
    known: Decider,
) -> None:
    waiting = admitted(known, job(spec={"suspend": True})).object
    assert waiting["spec"]["suspend"] is True
    assert deadline(waiting) == deadline(admitted(known, job()).object)


def test_a_cap_below_the_runs_of_a_job_sets_no_deadline(known: Decider, fitted: Fitted) -> None:
    cap_s = deadline(admitted(known, job()).object) + 60
    capped = knowledge(fitted, deadline={"mode": "always", "cap_s": cap_s})
    found = admitted(capped, one_after_another(5, 1))
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "would not be enough" in found.said


def test_an_own_deadline_that_is_right_for_all_runs_needs_no_word(known: Decider) -> None:
    obj = one_after_another(5, 1)
    obj["spec"]["activeDeadlineSeconds"] = deadline(admitted(known, obj).object) + 1
    (line,) = admitted(known, obj).response["warnings"]
    assert "deadline" not in line


def test_a_slice_or_a_shared_gpu_asks_for_a_longer_deadline(fitted: Fitted) -> None:
    whole = deadline(admitted(knowledge(fitted, nodes(a=A100)), job()).object)
    for kind in (gpus("a100", mig="3g.20gb", mig_share=3 / 7), gpus("a100", replicas=2)):
        found = admitted(knowledge(fitted, nodes(a=A100, b=kind)), job())
        assert deadline(found.object) > 1.9 * whole


def test_pods_get_what_the_job_says_and_what_is_predicted(known: Decider) -> None:
    stored = admitted(known, job()).object
    inner = stored["spec"]["template"]["metadata"]["annotations"]
    assert inner.items() >= STATED.items()
    assert {DURATION, P95, STEP, BASIS} <= inner.keys()
    assert all(inner[name] == stored["metadata"]["annotations"][name] for name in (DURATION, BASIS))


def test_what_a_template_says_itself_is_kept(known: Decider) -> None:
    obj = job()
    obj["spec"]["template"]["metadata"] = {"annotations": {f"{OURS}batch-size": "64", "team": "x"}}
    inner = admitted(known, obj).object["spec"]["template"]["metadata"]["annotations"]
    assert inner[f"{OURS}batch-size"] == "64"
    assert inner["team"] == "x"
    assert inner[f"{OURS}model"] == "resnet50"


def test_a_bare_pod_is_filled_itself(known: Decider) -> None:
    stored = admitted(known, pod()).object
    assert deadline(stored) == deadline(admitted(known, job()).object)
    assert {DURATION, P95, STEP, BASIS} <= stored["metadata"]["annotations"].keys()


OWNERS = {
    "batch/v1": "Job",
    "ray.io/v1": "RayCluster",
    "kubeflow.org/v1": "PyTorchJob",
    "jobset.x-k8s.io/v1alpha2": "JobSet",
}


@pytest.mark.parametrize(("version", "kind"), OWNERS.items(), ids=list(OWNERS.values()))
def test_a_pod_of_what_we_filled_is_left_alone(known: Decider, version: str, kind: str) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    found = admitted(known, pod(ownerReferences=[owner]))
    assert not found.operations
    assert not found.said


@pytest.mark.parametrize(
    ("version", "kind"), [("apps/v1", "StatefulSet"), ("batch.volcano.sh/v1alpha1", "Job")]
)
def test_a_pod_that_its_controller_would_make_anew_gets_times_and_no_deadline(
    known: Decider, version: str, kind: str
) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "controller": True}
    stored = admitted(known, pod(ownerReferences=[owner])).object
    assert "activeDeadlineSeconds" not in stored["spec"]
    assert DURATION in stored["metadata"]["annotations"]


def test_the_user_is_told_in_one_line(known: Decider) -> None:
    (line,) = admitted(known, job()).response["warnings"]
    assert line.startswith(f"precision-time: resnet50, mixed_fp16_fp32, 1x {V100.product}: ")
    assert "; deadline set to " in line
    assert "95 %: " in line


def test_keys_that_nobody_knows_are_told(known: Decider) -> None:
    said = admitted(known, job(STATED | {f"{OURS}bach-size": "64"})).said
    assert "bach" in said
    assert "batch" in said


def test_a_job_without_a_length_gets_the_time_of_a_step_and_no_deadline(known: Decider) -> None:
    shorter = {k: v for k, v in STATED.items() if not k.endswith("epochs")}
    found = admitted(known, job(shorter))
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert {STEP, BASIS} <= found.annotations.keys()
    assert not {DURATION, P95} & found.annotations.keys()
    assert "state epochs or steps for a duration" in found.said


def test_what_lacks_is_named_and_nothing_is_guessed(known: Decider) -> None:
    found = admitted(known, job({f"{OURS}model": "resnet50", f"{OURS}epochs": "90"}))
    assert "batch-size is not stated" in found.said
    assert STEP not in found.annotations
    assert "activeDeadlineSeconds" not in found.object["spec"]


def test_a_gpu_job_that_says_nothing_of_what_it_trains_hears_nothing(known: Decider) -> None:
    found = admitted(known, job({}))
    assert not found.operations
    assert not found.said


def test_an_object_without_gpus_is_left_alone(known: Decider) -> None:
    obj = job()
    obj["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert not admitted(known, obj).operations


def test_a_job_no_known_node_can_take_hears_why(fitted: Fitted) -> None:
    found = admitted(knowledge(fitted, nodes(a=V100, b=P100)), job(BF16))
    assert "no known node can take it (GPU has no BF16 tensor cores)" in found.said
    assert "activeDeadlineSeconds" not in found.object["spec"]


def test_one_unknown_gpu_is_enough_to_set_no_deadline(fitted: Fitted) -> None:
    strange = type(A100)("NEW-GPU", None, 8)
    found = admitted(knowledge(fitted, nodes(a=A100, b=strange)), job())
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "no deadline: GPU NEW-GPU is not known" in found.said
    assert DURATION in found.annotations


def test_thin_evidence_sets_no_deadline(fitted: Fitted) -> None:
    thin = knowledge(fitted, evidence={"max_interval_ratio": 1.0})
    found = admitted(thin, job())
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "no deadline: the 95% quantile is" in found.said
    assert DURATION in found.annotations


def test_a_deadline_covers_what_a_job_leaves_open_at_its_longest(fitted: Fitted) -> None:
    carried = {"max_interval_ratio": 100, "refused_tiers": []}
    known = knowledge(fitted, deadline={"mode": "always"}, evidence=carried)

    def asked(command: str, **said: str) -> Admitted:
        obj = job({f"{OURS}{key}": value for key, value in said.items()})
        obj["spec"]["template"]["spec"]["containers"][0]["command"] = command.split()
        return admitted(known, obj)

    images = "python main.py -a resnet50 --batch-size 64 --epochs 90 /data"
    yolo = "yolo detect train model=yolov8m.pt epochs=9 imgsz=640 batch=16"
    for command in (images, yolo):
        found = deadline(asked(command, **{"dataset-size": "1281167"}).object)
        for precision in ("fp32", "tf32", "amp", "bf16"):
            said = asked(command, precision=precision, **{"dataset-size": "1281167"}).object
            assert found >= said["spec"].get("activeDeadlineSeconds", 0), precision
    # A text may be of any length, and no deadline rests on a usual one.
    texts = "python run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 --max_steps 900"
    found = asked(f"{texts} --per_device_train_batch_size 4")
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "no deadline: seq_len is not stated" in found.said
    assert found.annotations[UNFILLED].endswith("2 x: annotate precision-time.io/seq-len")
    assert deadline(asked(f"{texts} --per_device_train_batch_size 4", **{"seq-len": "1024"}).object)
    # What a program takes where nobody says otherwise is known: batch and length of run_qa.py.
    qa = "python run_qa.py --model_name_or_path bert-large-uncased --fp16 --max_steps 900"
    said = asked(f"{qa} --max_seq_length 384 --per_device_train_batch_size 8")
    assert deadline(asked(qa).object) == deadline(said.object)
    assert UNFILLED not in said.annotations
    for more in ("args.json", "--config x.yaml"):
        assert "activeDeadlineSeconds" not in asked(f"{qa} {more}").object["spec"], more


@pytest.mark.parametrize("gpu", ["v100-sxm2-32gb", "a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_no_precision_that_a_job_may_mean_takes_longer_by_the_shipped_predictor(gpu: str) -> None:
    known = Decider(store.load_predictor("shipped"), Config(), dict)
    command = ["python", "main.py", "-a", "resnet50", "--batch-size=64", "--epochs=90", "/data"]

    def covered(**said: str) -> float:
        made = pod({f"{OURS}dataset-size": "1281167"} | {OURS + k: v for k, v in said.items()})
        made["spec"]["containers"][0]["command"] = command
        asks = pod_job(made, Config())
        assert asks is not None
        return forecast(known, asks, GpuCandidates((gpus(gpu),))).deadline_s or 0.0

    native = ("fp32", "amp") if gpu.startswith("v") else ("fp32", "tf32", "amp", "bf16")
    assert covered() >= max(covered(precision=each) for each in native) > 0


def test_no_deadline_rests_on_plain_variables(fitted: Fitted) -> None:
    known = knowledge(
        fitted,
        deadline={"mode": "always"},
        evidence={"max_interval_ratio": 100, "refused_tiers": []},
    )
    obj = job({f"{OURS}fill-deadline": "true"})
    main = obj["spec"]["template"]["spec"]["containers"][0]
    said = "python main.py -a resnet50 --batch-size 64 --fp32 --dataset imagenet-1k --epochs 9"
    main["command"] = said.split()
    assert deadline(admitted(known, obj).object)
    main["command"], main["env"] = said.split()[:-2], [{"name": "EPOCHS", "value": "9"}]
    found = admitted(known, obj)
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "variables of its container are read as settings" in found.said


@pytest.mark.parametrize(
    ("start", "said"),
    [("torchrun", "deadline set"), ("python", "that its processes train together is assumed")],
)
def test_a_deadline_of_several_pods_rests_on_a_launcher(
    fitted: Fitted, start: str, said: str
) -> None:
    known = knowledge(
        fitted,
        deadline={"mode": "always"},
        evidence={"max_interval_ratio": 100, "refused_tiers": []},
    )
    template = job({})["spec"]["template"]
    words = (
        f"{start} train.py --model resnet50 --batch-size 64 --fp32 --dataset imagenet-1k --epochs 9"
    )
    template["spec"]["containers"][0]["command"] = words.split()
    replicas = {"Worker": {"replicas": 4, "template": template}}
    metadata = {"name": "train", "namespace": "default"}
    obj = {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": replicas}}
    found = admitted(known, obj)
    assert said in found.said
    assert "gpus=4" in found.annotations[f"{OURS}predicted-basis"]
    assert ("runPolicy" in found.object["spec"]) == (start == "torchrun")


def test_without_nodes_only_a_stated_gpu_is_predicted_and_no_deadline_set(fitted: Fitted) -> None:
    nowhere = knowledge(fitted, {})
    found = admitted(nowhere, job(STATED | {f"{OURS}gpu": "a100"}))
    assert DURATION in found.annotations
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "no deadline: no node with such a GPU is known" in found.said
    silent = admitted(nowhere, job())
    assert DURATION not in silent.annotations
    assert "no known node has a GPU that its pods may land on" in silent.said


def test_a_selector_names_the_gpu_of_nodes_that_are_yet_to_come(fitted: Fitted) -> None:
    wanted = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
    found = admitted(knowledge(fitted, BOTH), job(pod=wanted))
    only_fast = admitted(knowledge(fitted, nodes(fast=gpus("a100-sxm4-80gb", count=1))), job())
    assert deadline(found.object) == deadline(only_fast.object)


def test_a_cap_holds(known: Decider, fitted: Fitted) -> None:
    cap_s = deadline(admitted(known, job()).object) - 60
    found = admitted(knowledge(fitted, deadline={"mode": "always", "cap_s": cap_s}), job())
    assert deadline(found.object) == cap_s
    assert "the longest that is filled in" in found.said


def test_a_deadline_that_the_job_is_predicted_to_hit_is_not_filled(fitted: Fitted) -> None:
    found = admitted(knowledge(fitted, deadline={"mode": "always", "cap_s": 900}), job())
    assert "activeDeadlineSeconds" not in found.object["spec"]
    assert "no deadline: 15m would not be enough" in found.said


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_a_filled_deadline_closes_no_node_to_the_pod(fitted: Fitted, quantile: float) -> None:
    known = knowledge(fitted, filter={"deadline_quantile": quantile})
    stored = admitted(known, pod()).object
    asked = pod_job(stored, known.config)
    assert asked is not None
    assert asked.deadline_s == stored["spec"].get("activeDeadlineSeconds")
    decider = Decider(fitted.predictor, known.config, known.nodes)
    assert list(decider.filter(asked, list(BOTH)).passed) == list(BOTH)
