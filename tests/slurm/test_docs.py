"""docs/how-to/slurm.md says what the program does: fields, defaults, keys, metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from clusters import cluster, submit
from docs_tables import fields, section
from prometheus_client import CollectorRegistry
from site_runs import run_of
from test_ahead import running

import slurm_plugin
from predictor.identify.identify import identify
from predictor.identify.keys import ALIASES, FIELD_OF
from predictor.identify.rules import RuleContext, read_rules
from predictor.site.calibration.site_state import SiteState
from predictor.site.step_rate import FILE_NAME, StepReport, parse_line, read_report
from slurm_plugin.ahead import QueueAhead
from slurm_plugin.config import Slurm, SlurmPolicy, Watch
from slurm_plugin.daemon.metrics import PREFIX, DaemonMetrics
from slurm_plugin.daemon.views import Snapshots
from slurm_plugin.decide import SlurmDecider

Decide = Callable[..., SlurmDecider]
PAGES = Path(__file__).parents[2] / "docs"
TEXT = "\n".join((PAGES / f / "slurm.md").read_text("utf-8") for f in ("how-to", "reference"))
ROW = re.compile(r"^\| `([\w.]+)` \| `(.+?)` \| ", re.MULTILINE)


def shape(text: str) -> str:
    """A line but for its figures."""
    return re.sub(r"\d+", "0", " ".join(text.split()))


def test_every_line_quoted_at_submit_is_told(decider: Decide) -> None:
    """To a user of twelve runs before a full cluster, and of a network that is known."""
    full = [running(4, 25 / 60, node.name) for node in cluster().nodes]
    view = cluster(queue=tuple(full))
    runs = [
        run_of(
            n,
            asked="",
            elapsed_s=7500.0 + 300 * (n % 5),
            user="u1",
            name=f"sim-{n}",
            submit_line="",
        )
        for n in range(12)
    ]
    decide = decider(view)
    (comment,) = re.findall(r'--comment "(.*?)" \\$', TEXT, re.MULTILINE)
    known = submit(comment=comment, tres_per_node="gres:gpu:a100:4", min_nodes=2)
    told = decide.decide(known).message or ""
    decide.memory = SiteState.learn(runs).memory
    decide.look(view, QueueAhead.of(view))
    told += "\n" + (decide.decide(submit(comment="", name="sim-99")).message or "")
    quoted = re.findall(r"sbatch: precision-time: (.*?)\n\n", TEXT, re.DOTALL)
    assert len(quoted) == 2
    assert sorted(map(shape, quoted)) == sorted(map(shape, told.splitlines()))


def test_every_field_of_the_policy_is_there_with_its_default() -> None:
    table = section(TEXT, "## The policy file")
    said = {name: json.loads(default) for name, default in ROW.findall(table)}
    assert said == dict(fields(SlurmPolicy()))


def test_every_key_users_may_write_is_there() -> None:
    table = section(TEXT, "## What users write")
    rows = re.findall(r"^\| (`.+?) \|(.*?)\| .* \|$", table, re.MULTILINE)
    named = {key for first, _ in rows for key in re.findall(r"`(\w+)`", first)}
    assert set(ALIASES) <= named
    for first, also in rows:
        for key in re.findall(r"`(\w+)[`=]", also):
            assert FIELD_OF[key] in first


def test_what_users_are_told_to_write_is_understood() -> None:
    table = section(TEXT, "## What users write")
    comments = re.findall(r'--comment "(model=[^"]+)"', TEXT)
    notes = re.findall(r"`(#PT [^`]+)`", table)
    assert len(comments) == 2
    assert notes
    for stated in (*(identify(comment=c) for c in comments), *(identify(script=n) for n in notes)):
        assert stated.model is not None
        assert stated.values["precision"]
        assert stated.problems == ()


def test_the_site_rules_shown_are_a_file_of_rules(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", section(TEXT, "### Site rules"), re.DOTALL)
    path = tmp_path / "rules.yaml"
    path.write_text(shown)
    context = RuleContext(name="rn50-nightly", account="vision")
    assert identify(rules=read_rules(path), context=context).model == "resnet50"
    for field in dataclass_fields(RuleContext):
        assert f"`{field.name}`" in section(TEXT, "### Site rules")


def test_every_metric_is_there() -> None:
    metrics = DaemonMetrics()
    metrics.watch_snapshots(lambda: Snapshots(Slurm()))
    table = section(TEXT, "## What it says")
    named = {f"{PREFIX}_{name}" for name in re.findall(r"`(\w+)`", table)}
    assert set(_shown(metrics.registry)) <= named


def _shown(registry: CollectorRegistry) -> Iterator[str]:
    endings = {"counter": "_total", "info": "_info"}
    for family in registry.collect():
        yield family.name + endings.get(family.type, "")


def test_the_reports_shown_are_understood(tmp_path: Path) -> None:
    text = section(TEXT, "## Limits of running jobs")
    (shown,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    path = tmp_path / FILE_NAME
    path.write_text(shown)
    report = read_report(path)
    assert report is not None
    assert report.job_id == "123"
    (line,) = re.findall(r"`(precision-time: step=.*?)`", text)
    assert parse_line(line) == StepReport(step=1200, total_steps=56302, step_s=0.118)


def test_the_file_jobs_write_is_the_one_looked_for() -> None:
    assert Watch().rate_file == FILE_NAME


STATED = "model=resnet50 precision=amp epochs=3 samples=1281167 batch=256"
REASONS: dict[str, tuple[str, str, bool, dict[str, Any]]] = {  # comment, GRES, a view, the policy
    "no-model": ("epochs=3", "gres:gpu:1", True, {}),
    "no-batch": (STATED.replace("batch=256", ""), "gres:gpu:1", True, {}),
    "no-length": (STATED.replace("epochs=3", ""), "gres:gpu:1", True, {}),
    "unknown-gpu": (STATED, "gres:gpu:voodoo:1", False, {}),
    "thin-evidence": (
        STATED,
        "gres:gpu:1",
        True,
        {"limits": {"evidence": {"max_interval_ratio": 1.001}}},
    ),
    "no-node-data": (STATED, "gres:gpu:1", False, {}),
}


def test_every_quoted_reason_is_given(decider: Decide) -> None:
    quoted = re.findall(
        r"^\| (.*`reason=.+?) \|", section(TEXT, "## Troubleshooting"), re.MULTILINE
    )
    words = [text.split("=")[-1] for row in quoted for text in re.findall(r"`([^`]+)`", row)]
    assert words == list(REASONS)
    for reason, (comment, gres, seen, policy) in REASONS.items():
        decide = decider(**policy) if seen else decider(None, **policy)
        answer = decide.decide(submit(comment=comment, tres_per_node=gres))
        assert f"reason={reason} " in f"{answer.log} "


def test_every_quoted_line_of_a_log_is_one_that_is_written() -> None:
    """The parts that vary, in parentheses in the document, are not looked for."""
    package = Path(slurm_plugin.__file__).parent
    written = "".join(path.read_text("utf-8") for path in package.rglob("*.lua"))
    written += "".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    rows = re.findall(r"^\| (.+?) \|", section(TEXT, "## Troubleshooting"), re.MULTILINE)
    quoted = [part for row in rows for part in re.findall(r"`([^`]+)`", row)]
    quoted += re.findall(r"grep '\"?precision-time: ([^']+)'", TEXT)
    texts = [text.split("=")[-1].partition("(")[0].strip() for text in quoted]
    assert len(texts) > 10
    assert [text for text in texts if text not in written] == []
