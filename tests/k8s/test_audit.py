"""`precision-time k8s audit` adds up what replicas counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from api_server_stand_in import kubeconfig, served
from click.testing import CliRunner
from k8s_metric_names import NoNodes
from prometheus_client import generate_latest

from k8s_extender.cli.audit import audit
from k8s_extender.config import config_of
from k8s_extender.errors import ConfigError
from k8s_extender.server.metrics import ExtenderMetrics
from k8s_extender.server.state import ServerState
from k8s_extender.writeback import Writeback


def page(path: Path, pods: int, *, mode: str = "observe") -> str:
    path.write_bytes(generate_latest(counted(pods, mode=mode).registry))
    return str(path)


def counted(pods: int, *, mode: str = "observe") -> ExtenderMetrics:
    metrics = ExtenderMetrics()
    metrics.watch_state(ServerState(config_of({"mode": mode}), NoNodes()))  # type: ignore[arg-type]
    for _ in range(pods):
        metrics.reviewed("H100", "", None)
    metrics.reviewed("", "model is not stated", 3600)
    metrics.reviewed("", "model my-net is not known", None)
    metrics.kept_off.labels("GPU has no BF16 tensor cores").inc()
    metrics.answered("mutate", "failed", 0.1, None)
    return metrics


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


def test_what_ended_replicas_kept_is_added_and_the_latest_mode_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with served() as cluster:
        cluster.config_map = {}
        writeback = Writeback(cluster.client())
        for started, pods, mode in ((100, 5, "place"), (200, 3, "observe"), (300, 4, "observe")):
            metrics = counted(pods, mode=mode)
            (kept,) = metrics.audited().values()
            kept = re.sub(r"(?m)^(process_start_time_seconds) .*", rf"\1 {started}", kept)
            writeback.counted("ns/kept", {f"replica.{started}": kept})
        writeback.stop()
        file = kubeconfig(tmp_path, cluster.port)
        options = ["--kubeconfig", str(file), "--kept", "ns/kept"]
        done = CliRunner().invoke(audit, [*options, "--format", "json"])
        found = json.loads(done.output)
        cluster.config_map = {}
        empty = CliRunner().invoke(audit, options)
    assert (found["since"], found["observing"]) == (200, True)
    assert found["placed"] == {"H100": 7}
    assert found["reviews_failed"] == {"mutate": 2}
    assert "nothing was kept" in str(empty.exception)
