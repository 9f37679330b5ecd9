"""`precision-time k8s identify`: manifests as users write them, ConfigMaps included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from k8s_extender.cli.identify import identify

SCRIPT = "torchrun --nproc_per_node=8 run_clm.py --model_name_or_path gpt2 --bf16 --max_steps 50"
TRAIN = "torchrun --nproc_per_node=8 train.py"
MAPS: list[dict[str, Any]] = [
    {"kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"train.sh": SCRIPT}},
    {"kind": "ConfigMap", "metadata": {"name": "sizes"}, "data": {"MODEL": "resnet50", "B": "64"}},
]


def job(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    container |= {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"spec": {"containers": [container], **spec}}
    named = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    return named | {"spec": {"template": template}}


def identified(tmp_path: Path, objects: list[dict[str, Any]], *options: str) -> Result:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return CliRunner().invoke(identify, [str(file), *options])


def fields(result: Result) -> dict[str, str]:
    (found,) = json.loads(result.output)
    return {name: told["value"] for name, told in found["fields"].items()}


@pytest.mark.parametrize(
    ("mount", "items", "path"),
    [
        ({"mountPath": "/code"}, None, "/code/train.sh"),
        ({"mountPath": "/run.sh", "subPath": "train.sh"}, None, "/run.sh"),
        ({"mountPath": "/code/"}, [{"key": "train.sh", "path": "go.sh"}], "go.sh"),
    ],
)
def test_a_script_in_a_config_map_is_read(
    tmp_path: Path, mount: dict[str, str], items: Any, path: str
) -> None:
    volume = {"name": "v", "configMap": {"name": "code"} | ({"items": items} if items else {})}
    container = {"command": ["bash", path], "volumeMounts": [{"name": "v", **mount}]}
    container |= {"workingDir": "/code"}
    objects = [*MAPS, job(container, volumes=[volume])]
    told = fields(identified(tmp_path, objects, "--format", "json"))
    assert (told["model"], told["steps"]) == ("gpt2-124m", "50")


def test_variables_come_from_config_maps(tmp_path: Path) -> None:
    ref = {"name": "BATCH", "valueFrom": {"configMapKeyRef": {"name": "sizes", "key": "B"}}}
    container = {"command": ["sh", "-c", f"{TRAIN} --model $MODEL -b $BATCH --amp"], "env": [ref]}
    container["envFrom"] = [{"configMapRef": {"name": "sizes"}}]
    told = fields(identified(tmp_path, [*MAPS, job(container)], "--format", "json"))
    assert (told["model"], told["batch_size"]) == ("resnet50", "64")


def test_a_secret_is_not_read(tmp_path: Path) -> None:
    container = {"command": ["sh", "-c", "python main.py -a $MODEL -b 8"]}
    container["envFrom"] = [{"configMapRef": {"name": "sizes"}}]
    secret = MAPS[1] | {"kind": "Secret"}
    assert "model" not in fields(identified(tmp_path, [secret, job(container)], "--format", "json"))


def test_each_object_is_told_in_lines(tmp_path: Path) -> None:
    objects = [job({"command": SCRIPT.split()}), *MAPS]
    listed = identified(tmp_path, [{"kind": "List", "items": objects}])
    assert listed.output.startswith("Job/j: 8 GPUs, pods: 1\n")
    assert "gpt2-124m" in listed.output
    assert "asks for GPUs" in identified(tmp_path, MAPS).output


def test_what_is_no_yaml_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("kind: [")
    found = CliRunner().invoke(identify, [str(file)])
    assert found.exit_code == 2
    assert "is not YAML" in found.output


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        ("nvidia.com/a100", "2 GPUs of nvidia.com/a100"),
        ("nvidia.com/rtxa6000", "2 GPUs of nvidia.com/rtxa6000"),
        ("nvidia.com/mig-3g.40gb", "2 GPUs of nvidia.com/mig-3g.40gb"),
        ("nvidia.com/gpu", "2 GPUs,"),
        ("nvidia.com/gpumem", "no object of"),
        ("example.com/a100", "no object of"),
    ],
)
def test_resources_that_are_named_for_a_gpu_count_it(
    tmp_path: Path, resource: str, told: str
) -> None:
    manifest = job({"command": SCRIPT.split()})
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {resource: 2}}
    assert told in identified(tmp_path, [manifest]).output
