"""Which training job a pod, or what makes pods, is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from k8s_configs import config_of, pod_job
from mutants import mutants

from k8s_extender.plain import PodName, go_duration, pod_name, seconds_of
from k8s_extender.pods import GROUPS, VOLCANO
from k8s_extender.workload import POLICIES, PodJob, template_job
from predictor.identify.rules import read_rules
from predictor.job.precision import Precision

HERE = Path(__file__).parent
CONFIG = config_of({})
GPU = "nvidia.com/gpu"


def manifest(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((HERE / "manifests" / f"{name}.yaml").read_text())
    return raw


def captured(name: str) -> Any:
    return json.loads((HERE / "payloads" / f"{name}.json").read_text())["request_body"]


def admitted(name: str) -> Any:
    body = json.loads((HERE / "payloads" / f"admissionreview-{name}-request.json").read_text())
    return body.get("request_body", body)["request"]["object"]


def container(gpus: int | str | None = 1, resource: str = GPU, **more: Any) -> dict[str, Any]:
    resources = {} if gpus is None else {"limits": {resource: gpus}}
    return {"name": "train", "resources": resources} | more


def pod(
    *containers: dict[str, Any],
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"containers": list(containers or [container()]), **spec},
    }


def job(raw: Any, **config: Any) -> PodJob:
    found = pod_job(raw, config_of(config))
    assert found is not None
    return found


def made(kind: str, raw: Any) -> PodJob:
    found = template_job(kind, raw, CONFIG)
    assert found is not None
    return found


def test_the_captured_pod_of_a_filter_call() -> None:
    raw = captured("filter-nodeCacheCapable-true")["Pod"]
    assert pod_name(raw) == PodName("327bc749-fb7b-4200-83f8-9854638d0124", "default", "p1")
    found = job(raw)
    assert (found.gpus_per_pod, found.pods, found.deadline_s) == (2, 1, None)


@pytest.mark.parametrize(
    "odd", [{}, {"metadata": None}, {"metadata": {"name": 7, "uid": "u" * 999}}]
)
def test_a_pod_that_does_not_say_who_it_is_has_an_empty_name(odd: Any) -> None:
    assert pod_name(odd) == PodName("", "", "")


def test_a_pod_to_be_named_goes_by_the_start_of_its_name() -> None:
    assert pod_name({"metadata": {"generateName": "train-"}}).name == "train-"


def test_captured_admission_objects() -> None:
    assert made("Pod", admitted("pod")).gpus == 1
    assert made("Job", admitted("job")).gpus == 1


def test_a_pod_without_gpus_is_no_job() -> None:
    assert pod_job(pod(container(None)), CONFIG) is None
    assert pod_job(pod(container(0)), CONFIG) is None
    assert pod_job({}, CONFIG) is None


@pytest.mark.parametrize("value", [2, "2"])
@pytest.mark.parametrize("part", ["limits", "requests"])
def test_gpus_are_read_from_limits_or_requests(value: int | str, part: str) -> None:
    assert job(pod({"resources": {part: {GPU: value}}})).gpus_per_pod == 2


@pytest.mark.parametrize(
    ("quantity", "gpus"),
    [
        ("2e0", 2),
        ("2E+0", 2),
        ("2e00", 2),
        ("+2", 2),
        ("02", 2),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1e2", 100),
    ],
)
def test_quantities_are_read_as_the_api_server_keeps_them(quantity: str, gpus: int) -> None:
    assert job(pod(container(quantity))).gpus_per_pod == gpus


@pytest.mark.parametrize("quantity", ["-2", "2e99", "1e-1", "two", "2 ", "", "1Mi"])
def test_other_quantities_are_no_gpus(quantity: str) -> None:
    assert pod_job(pod(container(quantity)), CONFIG) is None


def test_gpus_of_all_containers_add_up() -> None:
    assert job(pod(container(2), container(None), container(1))).gpus_per_pod == 3


def test_init_containers_run_before_and_sidecars_beside() -> None:
    sidecar = container(1, restartPolicy="Always")
    assert job(pod(container(2), initContainers=[container(4)])).gpus_per_pod == 4
    assert job(pod(container(2), initContainers=[container(1)])).gpus_per_pod == 2
    assert job(pod(container(2), initContainers=[sidecar])).gpus_per_pod == 3
    assert job(pod(container(2), initContainers=[sidecar, container(3)])).gpus_per_pod == 4
    assert job(pod(container(2), initContainers=[container(3), sidecar])).gpus_per_pod == 3


def test_slices_and_resources_of_the_site_count() -> None:
    mig = job(pod(container(2, "nvidia.com/mig-1g.5gb")))
    assert (mig.gpus_per_pod, mig.resource) == (2, "nvidia.com/mig-1g.5gb")
    shared = job(
        pod(container(1, "nvidia.com/gpu.shared")),
        hardware={"resources": [GPU, "nvidia.com/gpu.shared"]},
    )
    assert shared.resource == "nvidia.com/gpu.shared"
    assert pod_job(pod(container(1, "nvidia.com/gpu.shared")), CONFIG) is None


def test_fractions_of_kai_are_part_of_a_gpu() -> None:
    found = job(pod(container(None), annotations={"gpu-fraction": "0.5"}))
    assert (found.gpus_per_pod, found.gpu_fraction) == (1, 0.5)
    several = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    assert job(pod(container(None), annotations=several)).gpus_per_pod == 2
    for text in ("0", "1.5", "nan", "half", "-0.5"):
        assert pod_job(pod(container(None), annotations={"gpu-fraction": text}), CONFIG) is None


def test_annotations_say_what_is_trained() -> None:
    found = job(
        pod(
            annotations={
                "precision-time.io/model": "bert-large",
                "precision-time.io/precision": "mixed_bf16_fp32",
                "precision-time.io/steps": "7038",
                "precision-time.io/batch-size": "64",
            }
        )
    )
    assert found.stated.values == {
        "model": "bert-large",
        "precision": Precision.MIXED_BF16_FP32,
        "steps": 7038,
        "batch_size": 64,
    }
    assert not found.stated.problems


def test_what_is_written_back_is_not_taken_for_a_statement() -> None:
    written = {
        f"precision-time.io/predicted-{name}": "3h"
        for name in ("duration", "duration-p95", "step-seconds", "basis")
    }
    assert not job(pod(annotations=written)).stated.problems


def test_commands_and_their_variables_are_read() -> None:
    train = container(
        command=["python", "train.py"],
        args=["--model", "$(MODEL)", "--batch-size", "$(BATCH)", "--epochs", "$(EPOCHS)"],
        env=[
            {"name": "MODEL", "value": "$(FAMILY)50"},
            {"name": "FAMILY", "value": "resnet"},
            {"name": "MODEL", "value": "$(FAMILY)50"},
            {"name": "BATCH", "value": "64"},
            {"name": "EPOCHS", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        ],
    )
    found = job(pod(train)).stated
    assert (found.values["model"], found.values["batch_size"]) == ("resnet50", 64)
    assert [p.field for p in found.problems] == ["epochs"]


def test_the_image_of_a_framework_dates_it() -> None:
    words = ["torchrun", "train.py", "--model", "resnet50", "--batch-size", "64", "--epochs", "3"]
    dates = [
        job(pod(container(command=words, image=image))).stated.values.get("framework_date")
        for image in ("nvcr.io/nvidia/pytorch:23.01-py3", "me/train:23.01", "pytorch/pytorch:2.1.0")
    ]
    assert dates == [pytest.approx(2023, abs=0.1), None, pytest.approx(2023.75)]


def test_an_escaped_variable_stays_as_it_is() -> None:
    train = container(
        command=["python", "train.py", "--model", "$$(MODEL)"],
        env=[{"name": "MODEL", "value": "resnet50"}],
    )
    assert job(pod(train)).stated.model is None


def test_the_container_with_the_gpus_is_the_one_that_trains() -> None:
    other = container(None, command=["python", "train.py", "--model", "vgg16"])
    main = container(command=["python", "train.py", "--model", "resnet50"])
    assert job(pod(other, main)).stated.model == "resnet50"


def test_a_pod_says_all_that_it_bears_and_a_job_may_be_lent_the_taint_of_its_gpus() -> None:
    template = pod(tolerations=[{"key": "team", "operator": "Exists"}])
    own = template["spec"]["tolerations"]
    assert list(job(template).tolerations) == own
    lent = {"key": GPU, "operator": "Exists"}
    assert list(made("Job", {"spec": {"template": template}}).tolerations) == [*own, lent]


def test_an_annotation_goes_before_what_is_read_from_the_command() -> None:
    train = container(command=["python", "train.py", "--model", "vgg16", "--batch-size", "32"])
    found = job(pod(train, annotations={"precision-time.io/model": "resnet50"}))
    assert (found.stated.model, found.stated.values["batch_size"]) == ("resnet50", 32)
    assert found.stated.origins == {"model": "annotation", "batch_size": "script"}


def test_our_variables_are_read_among_hundreds_of_others() -> None:
    env = [{"name": f"SERVICE_{i}", "value": "x"} for i in range(400)]
    ours = [{"name": "PRECISION_TIME_MODEL", "value": "resnet50"}]
    assert job(pod(container(env=env + ours))).stated.model == "resnet50"


def test_rules_of_the_site_know_pods_by_owner_namespace_and_queue(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n"
        "  - name: nightly\n"
        '    match: {name: "^nightly-", account: "^vision$", partition: "^prod$"}\n'
        "    job: {model: resnet50, batch: 128, precision: amp}\n"
    )
    raw = pod(
        labels={"batch.kubernetes.io/job-name": "nightly-7", "kueue.x-k8s.io/queue-name": "prod"}
    )
    raw["metadata"]["namespace"] = "vision"
    found = pod_job(raw, CONFIG, read_rules(path))
    assert found is not None
    assert found.stated.model == "resnet50"


ENV = [
    ({"PET_NNODES": "4", "PET_NPROC_PER_NODE": "8", "WORLD_SIZE": "32"}, {}, 4),
    ({"PET_NNODES": "2:6"}, {}, 2),
    ({"NNODES": "3"}, {}, 3),
    ({"WORLD_SIZE": "16"}, {}, 2),
    ({"WORLD_SIZE": "2"}, {}, 2),
    ({"WORLD_SIZE": "16", "NPROC_PER_NODE": "4"}, {}, 4),
    ({"WORLD_SIZE": "9"}, {"training.kubeflow.org/job-name": "j"}, 9),
    ({"WORLD_SIZE": "16", "RANK": "3"}, {"volcano.sh/job-name": "j"}, 16),
    ({"WORLD_SIZE": "16"}, {"volcano.sh/job-name": "j"}, 2),  # not from its plugin
    ({"WORLD_SIZE": "many"}, {}, 1),
    ({"NNODES": "0"}, {}, 1),
    ({}, {}, 1),
]


@pytest.mark.parametrize(("env", "labels", "pods"), ENV)
def test_the_environment_tells_the_pods_of_the_job(
    env: dict[str, str], labels: dict[str, str], pods: int
) -> None:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    found = job(pod(container(8, env=variables), labels=labels))
    assert (found.pods, found.gpus) == (pods, pods * 8)


@pytest.mark.parametrize(
    ("command", "pods"),
    [
        ("torchrun --nnodes=4 --nproc-per-node=8 train.py", 4),
        ("torchrun --nnodes 2:4 train.py", 2),
        ("python -m torch.distributed.run --nnodes=$NNODES_ train.py", 1),
        ("accelerate launch --num_machines 2 --num_processes 16 train.py", 2),
        ("accelerate launch --num_processes 16 train.py", 2),
        ("deepspeed --num_nodes 3 train.py", 3),
        ("python train.py --nnodes 7", 1),
    ],
)
def test_the_launcher_tells_the_pods_of_the_job(command: str, pods: int) -> None:
    assert job(pod(container(8, command=["bash", "-c", command]))).pods == pods
    if "$" not in command:
        assert job(pod(container(8, command=command.split()))).pods == pods


@pytest.mark.parametrize(
    ("command", "pods"),
    [
        ("python -m torch.distributed.run --nproc_per_node=8 train.py", 1),
        ("torchrun --nnodes=2 --nproc_per_node=8 train.py", 2),
        ("torchrun --nnodes=$NNODES_ train.py", 2),  # of a variable that nobody knows
        ("python train.py", 2),
    ],
)
def test_pods_of_volcano_train_alone_where_their_launcher_is_of_one_node(
    command: str, pods: int
) -> None:
    template = {"spec": {"containers": [container(8, command=["bash", "-c", command])]}}
    found = made("Job of Volcano", {"spec": {"tasks": [{"replicas": 2, "template": template}]}})
    assert (found.pods, found.gpus) == (pods, pods * 8)


def test_annotations_tell_the_pods_before_anything_else() -> None:
    env = [{"name": "NNODES", "value": "3"}]
    stated = {"precision-time.io/pods": "5"}
    assert job(pod(container(8, env=env), annotations=stated)).pods == 5
    stated = {"precision-time.io/gpus": "20"}
    assert job(pod(container(8, env=env), annotations=stated)).pods == 3
    assert job(pod(container(8, env=env), annotations={"precision-time.io/pods": "-2"})).pods == 3


def test_owners_tell_the_pods_of_a_group() -> None:
    for name in (
        "kueue.x-k8s.io/pod-group-total-count",
        "leaderworkerset.sigs.k8s.io/size",
        "jobset.sigs.k8s.io/replicatedjob-replicas",
    ):
        assert job(pod(annotations={name: "4"})).pods == 4
        assert job(pod(labels={name: "4"})).pods == 4


def test_a_pytorch_job_is_all_of_its_replicas() -> None:
    found = made("PyTorchJob", manifest("pytorchjob"))
    assert (found.gpus_per_pod, found.pods, found.gpus) == (8, 4, 32)
    assert found.deadline_s == 86400
    assert found.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert found.stated.values["model"] == "bert-large"
    assert found.stated.values["steps"] == 7038


def test_a_tf_job_is_its_replicas_with_gpus() -> None:
    raw = manifest("pytorchjob")
    worker = raw["spec"].pop("pytorchReplicaSpecs")["Worker"]
    server = {"replicas": 2, "template": {"spec": {"containers": [{"name": "server"}]}}}
    raw["spec"]["tfReplicaSpecs"] = {"Worker": worker, "PS": server}
    found = made("TFJob", raw)
    assert (found.gpus_per_pod, found.pods, found.deadline_s) == (8, 3, 86400)


def workers(kind: str, place: str, replicas: int, gpus: int, command: list[str]) -> Any:
    spec = pod(container(gpus, command=command))["spec"]
    return {
        "kind": kind,
        "spec": {place: {"Worker": {"replicas": replicas, "template": {"spec": spec}}}},
    }


TRAIN = ["train.py", "--model", "resnet50", "--batch-size", "64", "--epochs", "3"]


@pytest.mark.parametrize(
    ("command", "replicas", "gpus", "proven"),
    [
        (["python", *TRAIN], 1, 1, True),
        (["python", *TRAIN], 4, 1, False),
        (["python", *TRAIN], 1, 4, False),
        (["torchrun", *TRAIN], 4, 8, True),
    ],
)
def test_a_plain_program_of_several_gpus_may_not_train_together(
    command: list[str], replicas: int, gpus: int, proven: bool
) -> None:
    for kind, place in (("PyTorchJob", "pytorchReplicaSpecs"), ("TFJob", "tfReplicaSpecs")):
        found = made(kind, workers(kind, place, replicas, gpus, command))
        fields = found.stated.job_fields(gpu="a100", precision="fp32", gpus=found.gpus)
        assert (fields["gpus"], not found.unproven) == (replicas * gpus, proven)


def test_a_pod_of_a_tf_job_knows_the_others() -> None:
    address = ["a.ns.svc:2222"]
    cluster = {"worker": address * 3, "chief": address, "ps": address * 2}
    told = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    command = ["python", *TRAIN]
    found = job(pod(container(2, command=command, env=[{"name": "TF_CONFIG", "value": told}])))
    fields = found.stated.job_fields(gpu="a100", precision="fp32", gpus=found.gpus)
    assert (found.pods, fields["gpus"]) == (4, 8)
    assert found.unproven
    for odd in ("", "[]", "{", '{"cluster": [1]}', '{"cluster": {"worker": {}}}'):
        env = [{"name": "TF_CONFIG", "value": odd}]
        assert job(pod(container(2, command=command, env=env))).pods == 1


@pytest.mark.parametrize("shell", [["bash", "-c"], ["bash", "-euo", "pipefail", "-c", "--"]])
def test_arguments_stand_behind_the_text_of_a_shell(shell: list[str]) -> None:
    command = [*shell, 'cd /code; python train.py "$@"', "name"]
    found = job(pod(container(command=command, args=TRAIN[1:]))).stated
    assert found.values == {"model": "resnet50", "batch_size": 64, "epochs": 3}


def test_variables_that_controllers_set_are_no_commands() -> None:
    script = "torchrun --node_rank $(JOB_COMPLETION_INDEX) --nnodes $(NODES) " + " ".join(TRAIN)
    found = job(pod(container(command=["bash", "-c", script])))
    assert (found.stated.model, found.stated.unclear, found.pods) == ("resnet50", (), 1)
    given = {"name": "NODES", "value": "4"}
    assert job(pod(container(command=["bash", "-c", script], env=[given]))).pods == 4
    words = ["python", *TRAIN, "--train-data", "$(pwd)"]
    assert job(pod(container(command=words))).stated.model == "resnet50"


def test_a_ray_job_has_the_variables_of_its_runtime() -> None:
    raw = manifest("rayjob")
    raw["spec"]["entrypoint"] = "python train.py --batch-size 8 --epochs $EPOCHS"
    raw["spec"]["runtimeEnvYAML"] = "pip: [torch]\nenv_vars: {MODEL_ID: gpt2, EPOCHS: '3'}\n"
    found = made("RayJob", raw)
    assert (found.stated.model, found.stated.values["epochs"]) == ("gpt2-124m", 3)
    assert found.unproven
    for odd in ("- 1", "a: [", "env_vars: 3", "{env_vars: {A: {B: c}}}"):
        raw["spec"]["runtimeEnvYAML"] = odd
        assert made("RayJob", raw).stated.model is None


def test_a_problem_that_flags_and_variables_have_is_told_once() -> None:
    env = [{"name": "BATCH", "value": "64"}]
    words = ["torchrun", "train.py", "--model", "gpt2", "--epochs", "3", "--batch", "64"]
    problems = job(pod(container(4, command=words, env=env))).stated.problems
    assert len(problems) == len(set(problems)) == 1


def test_plain_variables_are_settings_that_flags_override() -> None:
    told = {"BATCH_SIZE": "32", "NUM_EPOCHS": "5", "DATA_PATH": "/data", "LOG_LEVEL": "info"}
    env = [{"name": name, "value": text} for name, text in told.items()]
    words = ["python", "train.py", "--model", "resnet50", "--batch-size", "64"]
    found = job(pod(container(command=words, env=env))).stated
    assert found.values == {"model": "resnet50", "batch_size": 64, "epochs": 5}
    assert not found.problems
    assert not job(pod(container(command=["sleep", "9"], env=env))).stated.values


@pytest.mark.parametrize(
    ("script", "read"),
    [
        (None, True),
        ("cd /code && accelerate launch fine_tune.py", True),
        ("nvidia-smi\nsleep infinity", False),
        ("python evaluate.py --checkpoint last", False),
        ("accelerate launch tune.py --epochs 3", True),
    ],
)
def test_plain_variables_tell_a_script_or_an_image_that_trains(
    script: str | None, read: bool
) -> None:
    told = {"MODEL_NAME": "google/gemma-2b", "EPOCHS": "3", "GRADIENT_ACCUMULATION_STEPS": "2"}
    env = [{"name": name, "value": text} for name, text in told.items()]
    words = {} if script is None else {"command": ["bash", "-c", script]}
    found = job(pod(container(env=env, **words)))
    values = found.stated.values
    known = (values.get("model"), values.get("epochs"), values.get("grad_accum"))
    assert known == (("gemma-2b", 3, 2) if read else (None, None, None))
    assert bool(found.unproven) == read
    serving = job(pod(container(image="vllm/vllm-openai:latest", env=env)))
    assert not serving.stated.values
    alone = job(pod(container(env=env[:1], **words)))  # what serves has a model too
    assert alone.stated.model is None
    assert not found.stated.alone or script is not None
    assert not any("--comment" in problem.text for problem in found.stated.problems)


@pytest.mark.parametrize(
    ("more", "read"),
    [
        ({"NUM_EPOCHS": "3"}, True),
        ({"GRADIENT_ACCUMULATION_STEPS": "8"}, True),
        ({"MAX_STEPS": "30"}, False),  # of an agent, maybe
        ({"NUM_EPOCHS": "3", "USE_VLLM": "true"}, False),
        ({"NUM_EPOCHS": "3", "EVAL": "true"}, False),
        ({"NUM_EPOCHS": "0"}, False),
    ],
)
def test_variables_of_an_image_count_where_they_are_a_trainings(
    more: dict[str, str], read: bool
) -> None:
    told = {"MODEL_ID": "google/gemma-2b", "BATCH_SIZE": "2"} | more
    env = [{"name": name, "value": text} for name, text in told.items()]
    assert job(pod(container(env=env))).stated.model == ("gemma-2b" if read else None)


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["bash", "llm-train.sh"], True),
        (["/opt/entrypoint.sh", "--verbose"], True),
        (["bash", "evaluate.sh"], False),
        (["./serve.sh"], False),
        (["nvidia-smi"], False),
    ],
)
def test_variables_are_settings_of_a_script_that_nobody_can_read(
    words: list[str], read: bool
) -> None:
    told = {"MODEL": "google/gemma-2b", "BATCH_SIZE": "2", "EPOCHS": "3"}
    env = [{"name": name, "value": text} for name, text in told.items()]
    found = job(pod(container(command=words, env=env)))
    assert found.stated.model == ("gemma-2b" if read else None)
    assert bool(found.unproven) == read


def test_an_image_that_serves_trains_only_where_it_says_so() -> None:
    words = ["python", "run.py", "--model", "gpt2", "--batch-size", "8", "--dtype", "bf16"]
    assert not job(pod(container(image="example.invalid/vllm:1", command=words))).stated.values
    learns = [words[0], "train.py", *words[2:]]
    assert (
        job(pod(container(image="example.invalid/vllm:1", command=learns))).stated.model
        == "gpt2-124m"
    )


def test_a_job_set_is_its_replicated_jobs_with_gpus() -> None:
    found = made("JobSet", manifest("jobset"))
    assert (found.gpus_per_pod, found.pods, found.deadline_s) == (4, 8, 7200)
    assert found.stated.values["epochs"] == 90


def test_a_ray_job_is_its_workers_and_its_entry_point() -> None:
    found = made("RayJob", manifest("rayjob"))
    assert (found.gpus_per_pod, found.pods, found.deadline_s) == (2, 4, 3600)
    assert (found.stated.model, found.stated.values["batch_size"]) == ("resnet50", 256)


def test_a_workload_of_kueue_is_its_pod_sets() -> None:
    found = made("Workload", manifest("workload"))
    assert (found.gpus, found.deadline_s, found.stated.model) == (3, 5400, "resnet50")


def test_an_indexed_job_trains_with_all_pods_that_run_at_once() -> None:
    found = made("Job", manifest("job"))
    assert (found.gpus_per_pod, found.pods, found.deadline_s) == (2, 4, 10800)
    assert found.stated.values == {
        "model": "resnet50",
        "batch_size": 128,
        "epochs": 90.0,
        "precision": Precision.FP32,
        "framework": "pytorch",  # of its launcher
    }


@pytest.mark.parametrize("change", [{"completionMode": "NonIndexed"}, {"completions": 100}])
def test_a_job_of_independent_pods_trains_with_one(change: dict[str, Any]) -> None:
    raw = manifest("job")
    raw["spec"] |= change
    assert made("Job", raw).pods == 1


def test_kinds_without_known_pods_are_no_jobs() -> None:
    assert template_job("Deployment", manifest("job"), CONFIG) is None
    kinds = {
        "Pod",
        "Job",
        "PyTorchJob",
        "TFJob",
        "MPIJob",
        "TrainJob",
        "RayJob",
        "JobSet",
        "Workload",
    }
    assert set(GROUPS) == kinds | {VOLCANO}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("PT4H", 14400),
        ("14400", 14400),
        ("1h30m", 5400),
        ("P1DT30M", 88200),
        ("2d", 172800),
        ("1.5h", 5400),
        ("90.5", 90.5),
    ],
)
def test_deadlines_are_read_as_people_write_them(text: str, seconds: float) -> None:
    found = job(pod(annotations={"precision-time.io/deadline": text}))
    assert found.deadline_s == seconds
    assert not found.stated.problems


@pytest.mark.parametrize("text", ["soon", "0", "-4h", "4 hours", "PT", "", "1e9", "9" * 80, "4h5"])
def test_a_deadline_that_cannot_be_read_is_told(text: str) -> None:
    found = job(pod(annotations={"precision-time.io/deadline": text}))
    assert found.deadline_s is None
    assert "1h30m" in found.stated.problems[0].text


def test_the_shortest_deadline_counts() -> None:
    annotated = {"precision-time.io/deadline": "2h"}
    assert job(pod(annotations=annotated, activeDeadlineSeconds=3600)).deadline_s == 3600
    assert job(pod(annotations=annotated, activeDeadlineSeconds=9999)).deadline_s == 7200
    assert job(pod(activeDeadlineSeconds=600)).deadline_s == 600
    assert job(pod(activeDeadlineSeconds=2**31 - 1)).deadline_s == 2**31 - 1


@given(st.floats(min_value=1, max_value=1e9))
def test_written_durations_read_back(seconds: float) -> None:
    assert seconds_of(go_duration(seconds)) == round(seconds)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_may_ask_for_a_policy(policy: str) -> None:
    found = job(pod(annotations={"precision-time.io/policy": policy}))
    assert found.scheduling_policy == policy


def test_a_policy_that_does_not_exist_is_told() -> None:
    found = job(pod(annotations={"precision-time.io/policy": "fastest"}))
    assert found.scheduling_policy is None
    assert "reserve" in found.stated.problems[0].text


ORIGINALS = [
    ("Pod", captured("filter-nodeCacheCapable-true")["Pod"]),
    (
        "Pod",
        pod(
            container(
                8,
                command=["bash", "-c", "torchrun --nnodes=2 train.py --model resnet50"],
                env=[{"name": "A", "value": "$(B)"}, {"name": "WORLD_SIZE", "value": "16"}],
            ),
            annotations={
                "precision-time.io/deadline": "4h",
                "gpu-fraction": "0.5",
                "precision-time.io/pods": "2",
                "precision-time.io/policy": "time",
            },
            initContainers=[container(1, restartPolicy="Always")],
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                        ]
                    }
                }
            },
        ),
    ),
    *(
        (name, manifest(name.lower()))
        for name in ("Job", "PyTorchJob", "JobSet", "RayJob", "Workload")
    ),
]


@given(st.sampled_from(ORIGINALS).flatmap(lambda o: st.tuples(st.just(o[0]), mutants([o[1]]))))
def test_no_object_makes_it_raise(case: tuple[str, Any]) -> None:
    found = template_job(*case, CONFIG)
    assert found is None or (found.gpus >= 1 and found.pods >= 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=20,
    ),
    st.sampled_from(tuple(GROUPS)),
)
def test_no_json_makes_it_raise(raw: Any, kind: str) -> None:
    assert template_job(kind, raw, CONFIG) is None


def test_users_are_sent_to_annotations_and_not_to_an_option_of_sbatch() -> None:
    command = ["torchrun", "--standalone", "--nproc_per_node=8", "train.py", "config/train_gpt2.py"]
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    found = made("Pod", {"spec": {"containers": [{"command": command, "resources": limits}]}})
    (problem,) = found.stated.problems
    assert "epochs or steps in annotations would tell" in problem.text


def test_arguments_alone_stand_behind_the_entry_point_of_the_image() -> None:
    args = ["--nproc_per_node=8", "main.py", "--arch=resnet18", "--epochs=20", "/data/cifar10"]
    found = job(pod(container(8, args=args)))
    assert found.stated.model == "resnet18"
    assert found.stated.values["epochs"] == 20
    assert not found.stated.alone
    text = job(pod(container(8, args=["bash", "-c", "torchrun train.py --model vgg16 --epochs 3"])))
    assert text.stated.model == "vgg16"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("deadine", "deadline"),
        ("gpu-memry", "gpu-memory"),
        ("polcy", "policy"),
        ("podds", "pods"),
        ("deadline-hrd", "deadline-hard"),
        ("placemnt", "placement"),
        ("fil-deadline", "fill-deadline"),
        ("colour", "'colour' is not an annotation of ours"),
    ],
)
def test_a_misspelt_annotation_of_ours_is_told_even_alone(key: str, meant: str) -> None:
    (problem,) = job(pod(annotations={f"precision-time.io/{key}": "1"})).stated.problems
    assert meant in problem.text


def test_what_we_write_ourselves_is_no_slip() -> None:
    written = (
        *("deadline-gpu", "filled-deadline-seconds", "expected-run-time", "predicted-duration"),
        *("predicted-by-gpu", "why-no-deadline", "placement", "predicted-p95", "predicted-basis"),
    )
    ours = {f"precision-time.io/{key}": "1" for key in written}
    assert not job(pod(annotations=ours)).stated.problems
