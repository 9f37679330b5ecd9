"""docs/how-to/kubernetes.md tells of: fields, defaults, keys, metrics, values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from chart_files import values
from docs_tables import fields, section
from k8s_configs import config_of
from k8s_metric_names import shown_names

from k8s_extender import rank, workload, writeback
from k8s_extender.admission import BEST, FACTOR, PLACED, Outcome, limits
from k8s_extender.bound import BASIS
from k8s_extender.config import PREFIX, Config
from k8s_extender.plain import seconds_of
from k8s_extender.pods import PODS
from k8s_extender.server.state import PREFIX as METRICS
from k8s_extender.writeback import BY_GPU
from predictor.identify.grammar import parse_mapping
from predictor.identify.keys import ALIASES, FIELD_OF
from predictor.job.words import key_of

PAGES = Path(__file__).parents[2] / "docs"
TEXT = "\n".join((PAGES / f / "kubernetes.md").read_text("utf-8") for f in ("how-to", "reference"))
FIELD = re.compile(r"^\| `([\w.]+)` \| `(.+?)` \| (.+) \|$", re.MULTILINE)


def manifests(text: str) -> Iterator[Any]:
    for shown in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        yield yaml.safe_load(shown)


def scheduler_profile() -> Any:
    """The configuration that makes our order outweigh other scores."""
    (found,) = manifests(section(TEXT, "## Placement"))
    return found


def test_the_profile_makes_a_step_of_our_order_outweigh_a_taint() -> None:
    """A taint PreferNoSchedule is worth 300 points, a term 100 times the weight at most."""
    told = scheduler_profile()
    (changed,) = told["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    assert (told["kind"], changed["name"]) == ("KubeSchedulerConfiguration", "NodeAffinity")
    assert changed["weight"] * BEST * (1 - FACTOR) > 300 > 2 * BEST * (1 - FACTOR)


def test_every_field_of_the_configuration_is_there_with_its_default() -> None:
    rows = FIELD.findall(section(TEXT, "## Configuration"))
    assert {name: json.loads(default) for name, default, _ in rows} == dict(fields(Config()))
    assert all(meaning for _, _, meaning in rows)


def test_every_key_users_may_write_is_there() -> None:
    table = section(TEXT, "## What users write")
    rows = re.findall(r"^\| (`[a-z].+?) \|(.*?)\| .* \|$", table, re.MULTILINE)
    named = {key_of(key) for first, _ in rows for key in re.findall(r"`([\w-]+)`", first)}
    assert set(ALIASES) <= named
    for first, also in rows:
        fields_meant = {key_of(key) for key in re.findall(r"`([\w-]+)`", first)}
        for key in set(re.findall(r"`([\w-]+)`", also)) - {"on"}:
            assert FIELD_OF[key_of(key)] in fields_meant, key


def test_the_annotations_shown_are_understood() -> None:
    shown = [m["metadata"]["annotations"] for m in manifests(section(TEXT, "## What users write"))]
    shown += [{f"{PREFIX}job": text} for text in re.findall(r'io/job: "(.+?)"', TEXT)]
    assert len(shown) == 2
    for written in shown:
        stated = parse_mapping(written, "annotation")
        assert stated.problems == ()
        assert {"model", "precision", "batch_size", "steps"} <= set(stated.values)


def test_the_other_annotations_are_those_that_are_read() -> None:
    text = section(TEXT, "## What users write")
    for name in (workload.DEADLINE, workload.HARD, workload.GPU_MEMORY, workload.POLICY, PODS):
        assert f"| `{name}` |" in text
    for value in re.findall(r"`(\w+)`", text.partition("the job has: ")[2].partition("|")[0]):
        assert seconds_of(value)
    assert f'`{limits.FILL}: "true"`' in section(TEXT, "## Deadlines")
    assert f"`{limits.KUEUE_LIMIT}`" in section(TEXT, "## Deadlines")
    assert f"`{limits.SLINKY_LIMIT}`" in section(TEXT, "## Deadlines")


def test_every_annotation_and_event_written_is_there() -> None:
    text = section(TEXT, "## What is written back")
    rows = re.findall(r"^\| `(precision-time\.io/\S+)` \|", text, re.MULTILINE)
    assert set(rows) == {
        limits.DURATION,
        workload.PREDICTED_FOR,
        limits.P95,
        limits.STEP,
        limits.BASIS,
        BY_GPU,
        PODS,
        limits.FILLED,
        limits.EXPECTED,
        limits.UNFILLED,
        PLACED,
        BASIS,
    }
    reasons = {writeback.REFUSED, writeback.UNCLEAR, writeback.OBSERVED, writeback.MOVED}
    assert reasons == set(re.findall(r"`(P\w+)`", text))


def test_the_weights_shown_are_those_that_are_written() -> None:
    shown = re.search(rf"^\| `{PLACED}` \| `(\S+)` \|", TEXT, re.MULTILINE)
    assert shown is not None
    weights = [int(one.rpartition("=")[2]) for one in shown[1].split(",")]
    assert weights == [round(BEST * FACTOR**place) for place in range(len(weights))]


def test_every_policy_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \| ", section(TEXT, "## Placement"), re.MULTILINE))
    assert explained == set(workload.POLICIES)


def test_the_reasons_quoted_are_those_given() -> None:
    quoted = re.findall(
        r"^\| pod pending: `(.+?)`", section(TEXT, "## Troubleshooting"), re.MULTILINE
    )
    given = {*rank.PRECISION.values(), rank.MEMORY, rank.DEADLINE}
    assert quoted
    assert set(quoted) <= given


def test_every_metric_is_there() -> None:
    table = section(TEXT, "## Metrics")
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = {f"{METRICS}_{name}" for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == shown_names()
    assert f"`{METRICS}_`" in table
    assert all(f"`{outcome}`" in table for outcome in Outcome)


def test_the_values_named_exist_in_the_chart() -> None:
    groups = (
        "admission",
        "certificates",
        "registration",
        "secondScheduler",
        "metrics",
        "service",
        "networkPolicy",
        "podSecurityContext",
    )
    named = re.findall(rf"`((?:{'|'.join(groups)})(?:\.[A-Za-z]\w*)+)", TEXT)
    sets = re.findall(r"--set (\S+?)[`\s]", TEXT)
    named += [re.sub(r"=.*", "", one) for each in sets for one in each.split(",")]
    assert len(named) > 10
    for path in named:
        tree: Any = values()
        for key in path.split("."):
            assert key in tree, path
            tree = tree[key]


def test_settings_advised_are_possible() -> None:
    advised = re.findall(r"`((?:filter|annotate)\.\w+): (\w+)`", TEXT)
    assert advised
    for path, value in advised:
        part, name = path.split(".")
        config_of({part: {name: yaml.safe_load(value)}})
