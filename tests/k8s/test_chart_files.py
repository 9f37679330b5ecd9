"""The chart, judged without Helm: schema, values, templates and rights fit together."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_files import (
    CHART,
    MANIFESTS,
    ROOT,
    TEMPLATES,
    actions,
    documents,
    leaves,
    schema,
    used_values,
    values,
)
from jsonschema import Draft7Validator, ValidationError
from k8s_configs import config_of

from k8s_extender.config import Config, Section
from profiles.gpus import gpus, spelling

OPENING = {"if", "range", "with", "define", "block"}
# What the chart writes into the configuration itself.
WRITTEN = {"mode", "rules", "server.certificate", "server.key"}
# What only `history ingest kubernetes` reads, which the chart does not run.
UNREAD = "history"
# Kubernetes accepts no port 0, and the chart turns metrics off by a value of its own.
NARROWER = {"server.port", "server.metrics_port"}


def by_name(path: Path) -> str:
    return path.name


def test_chart_yaml_names_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["apiVersion"] == "v2"
    assert chart["name"] == CHART.name == project["name"]
    assert chart["appVersion"] == project["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", chart["version"])


def test_the_default_values_fit_the_schema() -> None:
    Draft7Validator.check_schema(schema())
    Draft7Validator(schema()).validate(values())


def test_the_schema_is_closed_and_knows_what_the_values_hold() -> None:
    _same_keys(schema(), values(), "")


def _same_keys(part: dict[str, Any], tree: dict[str, Any], path: str) -> None:
    assert part["additionalProperties"] is False, path
    assert set(part["properties"]) - {"global"} == set(tree), path
    for key, value in tree.items():
        inner = part["properties"][key]
        if "properties" in inner and value and key != "resources":
            _same_keys(inner, value, f"{path}.{key}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduler": "both"},
        {"mode": "extender"},
        {"probes": {"liveness": {"periodSeconds": 0}}},
        {"serviceAccount": {"annotation": {}}},
        {"metrics": {"prometheusRule": {"enable": True}}},
        {"config": {"placement": {"balanced": True}}},
        {"confg": {}},
        {"config": {"rules": "a"}},
        {"config": {"prioritize": {"policy": "speed"}}},
        {"admission": {"webhook": {"timeoutSeconds": 30}}},
        {"registration": {"httpTimeout": 2}},
    ],
)
def test_the_schema_refuses_slips(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Draft7Validator(schema()).validate(_over(values(), wrong))


def _over(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(tree)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(tree.get(key), dict)
        merged[key] = _over(tree[key], value) if both else value
    return merged


def test_the_names_of_gpus_that_the_chart_takes_are_those_of_the_program() -> None:
    """A new GPU or alias of ``profiles/gpus.yaml`` goes into ``files/gpus.txt``, too."""
    named = (name for gpu in gpus().values() for name in (gpu.name, gpu.product, *gpu.aliases))
    listed = (CHART / "files" / "gpus.txt").read_text("utf-8").split()
    assert listed == sorted({spelling(name) for name in named})


def test_the_schema_of_the_configuration_is_that_of_the_program() -> None:
    model = Config.model_json_schema()
    assert _bare(schema()["properties"]["config"], {}) == _bare(model, model["$defs"])


def _bare(part: Any, definitions: dict[str, Any], path: str = "") -> Any:
    """What values a schema accepts, without titles, and without what the chart decides itself."""
    if isinstance(part, list):
        return [_bare(item, definitions, path) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _bare(definitions[part["$ref"].rpartition("/")[2]], definitions, path)
    dropped = {"title", "default", "description", "format", "$defs", "required"}
    bare = {key: _bare(item, definitions, path) for key, item in part.items() if key not in dropped}
    if "properties" in part:
        prefix = f"{path}." if path else ""
        bare["properties"] = {
            key: _bare(item, definitions, f"{prefix}{key}")
            for key, item in part["properties"].items()
            if f"{prefix}{key}" not in WRITTEN | NARROWER | {UNREAD}
        }
    return bare


def test_the_values_have_every_field_of_the_configuration_with_its_default() -> None:
    assert config_of(values()["config"]) == Config()
    read = {path for path in _fields(Config()) if not path.startswith(f"{UNREAD}.")}
    assert set(leaves(values()["config"])) == read - WRITTEN


def _fields(part: Section, path: str = "") -> Iterator[str]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Section):
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_value_that_templates_use_exists() -> None:
    for path in used_values():
        tree: Any = values()
        for key in path.split("."):
            assert key in tree, path
            tree = tree[key]


def test_every_value_is_used() -> None:
    used = used_values()
    unused = [
        path for path in leaves(values()) if not any(f"{path}.".startswith(f"{u}.") for u in used)
    ]
    assert not unused


def test_every_value_is_explained() -> None:
    parents: list[tuple[int, bool]] = []
    previous, unexplained = "", []
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        key = re.match(r"^( *)(\w+):(.*)$", line)
        if key:
            depth, here = len(key[1]), previous.strip().startswith("#")
            parents = [(d, e) for d, e in parents if d < depth]
            if key[3].strip() and not here and not (parents and parents[-1][1]):
                unexplained.append(line)
            parents.append((depth, here))
        previous = line
    assert not unexplained


@pytest.mark.parametrize("path", TEMPLATES, ids=by_name)
def test_every_opened_action_is_closed(path: Path) -> None:
    open_actions: list[str] = []
    for code in actions(path.read_text("utf-8")):
        word = re.split(r"[\s(]", code, maxsplit=1)[0]
        if word in OPENING:
            open_actions.append(code)
        elif word == "else":
            assert open_actions, code
        elif word == "end":
            assert open_actions.pop()
    assert not open_actions


@pytest.mark.parametrize("path", MANIFESTS, ids=by_name)
def test_manifests_are_yaml_of_named_objects(path: Path) -> None:
    found = documents(path)
    assert found
    for document in found:
        assert document["apiVersion"]
        assert document["kind"]
        assert document["metadata"]["name"]


def test_every_included_template_is_defined() -> None:
    texts = [path.read_text("utf-8") for path in TEMPLATES]
    defined = {name for text in texts for name in re.findall(r'define "([^"]+)"', text)}
    included = {name for text in texts for name in re.findall(r'include "([^"]+)"', text)}
    assert included == defined


def test_no_namespace_is_written_down() -> None:
    for path in MANIFESTS:
        named = re.findall(r"^\s*namespace: *(.*)$", path.read_text("utf-8"), re.MULTILINE)
        fixed = {name for name in named if ".Release.Namespace" not in name}
        assert fixed <= ({"kube-system"} if path.name == "scheduler-rbac.yaml" else set())


def test_no_rights_on_secrets_nor_on_everything() -> None:
    rules = [
        rule
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
    ]
    assert rules
    for rule in rules:
        assert "secrets" not in rule["resources"]
        assert "*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])


def test_a_released_chart_names_its_sources(tmp_path: Path) -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    (step,) = (
        one["run"]
        for job in flow["jobs"].values()
        for one in job["steps"]
        if one.get("name") == "Chart"
    )
    chart = tmp_path / "charts/precision-time/Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.write_bytes((CHART / "Chart.yaml").read_bytes())
    where = {"GITHUB_SERVER_URL": "https://example.com", "GITHUB_REPOSITORY": "we/ours"}
    quiet = {"PATH": os.environ["PATH"], "VERSION": "1", "REGISTRY": "r"}
    script = f"helm() {{ :; }}\n{step}"
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=where | quiet, check=True)
    assert yaml.safe_load(chart.read_text())["sources"] == ["https://example.com/we/ours"]
