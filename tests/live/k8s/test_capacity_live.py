"""The capacity report of a real API server: its sums are those of the objects, to the second.

PRECISION_TIME_CAPTURE=1 writes the objects to tests/k8s/payloads/site.json, which tests without a
control plane read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captured_objects
import pytest
from capacity_of_objects import (
    REPORT,
    added_up,
    command,
    report_of,
    running,
    sums_of,
    told,
    waiting,
)
from object_sums import rows_of, window_of

from . import a_day
from .control_plane import ControlPlane
from .site import Site

QUEUE = ("capacity", "queue", "--from", "kubernetes")


@pytest.fixture
def objects(cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A day of jobs, which $KUBECONFIG reaches."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    site = Site(cluster)
    try:
        a_day.live_through(site)
        told = site.dump()
        if os.environ.get("PRECISION_TIME_CAPTURE"):
            captured_objects.write(told)
        yield told["items"]
    finally:
        site.clear()


def test_a_report_adds_up_to_the_second(objects: list[Any], tmp_path: Path) -> None:
    found = report_of(objects)
    assert told(found) == sums_of(objects)
    history, window = str(tmp_path / "history.sqlite"), window_of(objects)
    command("history", "ingest", "kubernetes", "--history", history)
    ended = [row for row in rows_of(objects, window) if row.name not in running(objects)]
    assert told(command(*REPORT, "--history", history, *window.words)) == added_up(ended)
    placed = {job["name"]: job["gpus"] for job in command(*QUEUE)["queue"]}
    waits = waiting(objects)
    assert placed == {name: waits[name] for name in ("half", "waits", "queued")}
