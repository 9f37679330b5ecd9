"""Runs of a real control plane reach the history, with the rights that the chart gives and no more.

Skipped where KUBE_ASSETS_DIR does not name the programs.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chart_render import NAMESPACE as RELEASE_NAMESPACE
from chart_render import render
from click.testing import CliRunner
from kubernetes import client
from kubernetes.config import new_client_from_config

from predictor.cli.main import main

from ..slurm.processes import Daemon
from .control_plane import NAMESPACE, OURS, ControlPlane, wait_until
from .objects import FP32, p100, pods, ready

RAN_S = 5400


@pytest.fixture
def account(cluster: ControlPlane) -> Path:
    """A kubeconfig of the follower's service account."""
    rendered = render({"history": {"follow": True, "secret": {"name": "history"}}})
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    named = [o for kind in kinds for o in rendered.all(kind)]
    cluster.apply(o for o in named if o["metadata"]["name"].endswith("-history"))
    pod = rendered.one("Deployment", "-history")["spec"]["template"]["spec"]
    return cluster.kubeconfig_of(pod["serviceAccountName"], RELEASE_NAMESPACE)


def finish(cluster: ControlPlane, name: str) -> None:
    """What a kubelet says of a pod that ran and ended well."""
    end = datetime.now(UTC).replace(microsecond=0)
    start = end - timedelta(seconds=RAN_S)
    state = {
        "terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": start.isoformat(),
            "finishedAt": end.isoformat(),
        }
    }
    container = {
        "name": "train",
        "image": "i",
        "imageID": "i",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    status = {
        "phase": "Succeeded",
        "startTime": start.isoformat(),
        "containerStatuses": [container],
    }
    client.CoreV1Api(cluster.api).patch_namespaced_pod_status(name, NAMESPACE, {"status": status})


def runs(history: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(
        main, ["history", "show", "--history", str(history), "--format", "json"]
    )
    return list(json.loads(result.stdout)) if result.exit_code == 0 else []


def test_a_pod_that_ends_is_in_the_history(
    cluster: ControlPlane, account: Path, tmp_path: Path
) -> None:
    history = tmp_path / "history.sqlite"
    cluster.add_nodes(ready([p100("p100-0")]))
    follower = Daemon("history", tmp_path / "history.log")
    argv = [
        str(OURS),
        "history",
        "ingest",
        "kubernetes",
        "--follow",
        "--kubeconfig",
        str(account),
        "--history",
        str(history),
    ]
    follower.start(argv, dict(os.environ))
    try:
        cluster.add_pods(pods("ended", 1, FP32))
        (name,) = cluster.wait_placed("ended", 1)
        finish(cluster, name)
        wait_until(lambda: len(runs(history)) == 1, 60.0)
    finally:
        follower.stop()
    (run,) = runs(history)
    ended = run["ended"]
    assert (ended["gpu_type"], ended["gpus"], ended["state"]) == ("p100-pcie-16gb", 1, "completed")
    assert ended["end_s"] - ended["start_s"] == RAN_S


def test_the_account_may_change_nothing(cluster: ControlPlane, account: Path) -> None:
    api = client.AuthorizationV1Api(new_client_from_config(str(account)))
    asked = {"spec": {"namespace": NAMESPACE}}
    rules = api.create_self_subject_rules_review(asked).status.resource_rules
    granted = {(r, verb) for rule in rules for r in rule.resources for verb in rule.verbs}
    assert {("pods", "watch"), ("nodes", "list"), ("jobs", "watch")} <= granted
    about_itself = {"create"}  # reviews of its own rights, which everyone may ask for
    assert {verb for _, verb in granted} - about_itself == {"get", "list", "watch"}
