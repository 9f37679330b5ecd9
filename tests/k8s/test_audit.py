"""`precision-time k8s audit` adds up what replicas counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from api_server_stand_in import StandIn, kubeconfig, served
from click.testing import CliRunner, Result
from k8s_configs import config_of
from k8s_metric_names import NoNodes

from k8s_extender.cli.audit import audit
from k8s_extender.server.state import ExtenderMetrics, ServerState
from k8s_extender.writeback import Writeback


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


def kept(cluster: StandIn, *replicas: tuple[int, int, str]) -> None:
    """Counts of replicas as they keep them: when each began, its pods and mode."""
    cluster.config_map = {}
    writeback = Writeback(cluster.client())
    for started, pods, mode in replicas:
        (page,) = counted(pods, mode=mode).audited().values()
        page = re.sub(r"(?m)^(process_start_time_seconds) .*", rf"\1 {started}", page)
        writeback.counted("ns/kept", {f"replica.{started}": page})
    writeback.queue.stop()


def audited(cluster: StandIn, tmp_path: Path, *options: str) -> Result:
    file = kubeconfig(tmp_path, cluster.port)
    return CliRunner().invoke(
        audit, ["--kubeconfig", str(file), "--kept", "ns/kept", *options], prog_name="audit"
    )


def test_the_counters_of_replicas_are_added_and_the_latest_mode_counts(tmp_path: Path) -> None:
    with served() as cluster:
        kept(cluster, (100, 5, "place"), (200, 3, "observe"), (300, 4, "observe"))
        found = json.loads(audited(cluster, tmp_path, "--format", "json").output)
    assert (found["since"], found["observing"]) == (200, True)
    assert found["placed"] == {"H100": 7}
    assert found["unplaced"] == {"model is not stated": 2, "unknown model": 2}
    assert sum(found["deadlines"].values()) == 2
    assert found["kept_off"] == {"GPU has no BF16 tensor cores": 2}
    assert found["reviews_failed"] == {"mutate": 2}


def test_it_says_whether_anything_was_done(tmp_path: Path) -> None:
    with served() as cluster:
        kept(cluster, (100, 2, "observe"))
        text = audited(cluster, tmp_path).output
        kept(cluster, (100, 2, "place"))
        acted = audited(cluster, tmp_path).output
        kept(cluster)
        empty = audited(cluster, tmp_path)
    assert text.startswith("what would have been done, by 1 replica, the first began ")
    assert "pods given an order of GPU types" in text
    assert acted.startswith("what was done")
    assert "nothing was kept" in str(empty.exception)
