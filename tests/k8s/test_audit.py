"""`precision-time k8s audit` adds up what replicas counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from k8s_metric_names import NoNodes
from prometheus_client import generate_latest

from k8s_extender.cli.audit import audit
from k8s_extender.config import config_of
from k8s_extender.errors import ConfigError
from k8s_extender.server.metrics import ExtenderMetrics
from k8s_extender.server.state import ServerState


def page(path: Path, pods: int, *, mode: str = "observe") -> str:
    metrics = ExtenderMetrics()
    metrics.watch_state(ServerState(config_of({"mode": mode}), NoNodes()))  # type: ignore[arg-type]
    for _ in range(pods):
        metrics.reviewed("H100", "", None)
    metrics.reviewed("", "model is not stated", 3600)
    metrics.reviewed("", "model my-net is not known", None)
    metrics.kept_off.labels("GPU has no BF16 tensor cores").inc()
    metrics.answered("mutate", "failed", 0.1, None)
    path.write_bytes(generate_latest(metrics.registry))
    return str(path)


def test_the_counters_of_replicas_are_added(tmp_path: Path) -> None:
    pages = [page(tmp_path / "one", 3), page(tmp_path / "two", 4)]
    done = CliRunner().invoke(audit, [*pages, "--format", "json"])
    found = json.loads(done.output)
    assert found["observing"] is True
    assert found["placed"] == {"H100": 7}
    assert found["unplaced"] == {"model is not stated": 2, "unknown model": 2}
    assert sum(found["deadlines"].values()) == 2
    assert found["kept_off"] == {"GPU has no BF16 tensor cores": 2}
    assert found["reviews_failed"] == {"mutate": 2}


def test_it_says_whether_anything_was_done(tmp_path: Path) -> None:
    text = CliRunner().invoke(audit, [page(tmp_path / "a", 2)]).output
    assert text.startswith("what would have been done, by 1 replica")
    assert "pods given an order of GPU types" in text
    acted = CliRunner().invoke(audit, [page(tmp_path / "b", 2, mode="place")]).output
    assert acted.startswith("what was done")


def test_what_is_no_metrics_page_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("up 1\n")
    for source in (str(other), str(tmp_path / "none")):
        done = CliRunner().invoke(audit, [source])
        assert isinstance(done.exception, ConfigError)
        assert f"invalid source={source}" in str(done.exception)
    with pytest.raises(ConfigError, match="expected a metrics page"):
        CliRunner().invoke(audit, ["http://127.0.0.1:9/metrics"], catch_exceptions=False)
