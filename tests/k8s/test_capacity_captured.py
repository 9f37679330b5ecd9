"""The capacity report of what a real API server held: GPU-seconds are those of the objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server_stand_in import StandIn, served
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
from captured_objects import captured, serve
from k8s_configs import config_of
from object_sums import Object, rows_of, window_of

from k8s_extender.live_queue import NOWHERE, read
from predictor.estimate.fitting import Fitted
from predictor.site.expected_starts import HELD

RUNNING = ("on-cordoned", "running", "half")  # and a pod that serves, which is no training job
# Of the nodes that take pods; of the cordoned one what was in use.
GPUS = {"a100-sxm4-80gb": 16, "v100-sxm2-32gb": 4, "t4-16gb": 4, "NVIDIA-LAB-SAMPLE-900": 4}
OUTSIDE = ("ended-before", "starts-after")  # the period


@pytest.fixture
def objects() -> list[Object]:
    return captured()


@pytest.fixture
def cluster(
    objects: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandIn]:
    """A server that holds them, which $KUBECONFIG names."""
    with served() as stand_in:
        serve(stand_in, objects)
        monkeypatch.setenv("KUBECONFIG", str(stand_in.kubeconfig(tmp_path)))
        yield stand_in


def test_a_report_adds_up_to_the_second(cluster: StandIn, objects: list[Object]) -> None:
    found = report_of(objects)
    assert told(found) == sums_of(objects)
    assert found["gpus"] == GPUS


def test_all_shapes_are_in_it(objects: list[Object]) -> None:
    rows = rows_of(objects, window_of(objects))
    assert {row.outcome for row in rows} == {
        "completed",
        "failed",
        "timed_out",
        "preempted",
        "running",
    }
    attempts = {row.name: row.outcome for row in rows if row.name in ("low", "low-0-00000")}
    assert attempts == {"low-0-00000": "preempted", "low": "completed"}


def test_pods_of_a_job_hold_its_gpus_from_the_first_start_to_the_last_end(
    objects: list[Object],
) -> None:
    rows = rows_of(objects, window_of(objects))
    apart = {row.name: row.gpu_s - row.held_s for row in rows if row.gpu_s != row.held_s}
    assert apart == {"bert": 8 * (3 + 5)}  # seconds between its two pods


def test_an_ingested_history_adds_up_without_what_runs(
    cluster: StandIn, objects: list[Object], tmp_path: Path
) -> None:
    path, window = str(tmp_path / "history.sqlite"), window_of(objects)
    ingest = ("history", "ingest", "kubernetes", "--history", path)
    first = command(*ingest)
    ended = [row for row in rows_of(objects, window) if row.name not in RUNNING]
    found = command(*REPORT, "--history", path, *window.words)
    assert told(found) == added_up(ended)
    assert first["new"] == len(ended) + len(OUTSIDE)
    assert first["left_out"] == {"pods without GPUs, or of a service": 1}
    again = command(*ingest)
    assert (again["new"], again["changed"], again["same"]) == (0, 0, first["new"])


def test_what_runs_has_the_gpus_of_its_pods(cluster: StandIn, objects: list[Object]) -> None:
    found = read(cluster.client(), config_of({}), page=7)
    runs = {j.request.name: j.request.gpus for j in found.jobs if j.start_s is not None}
    assert runs == {name: running(objects)[name] for name in RUNNING}
    assert [job.request.name for job in found.jobs if job.held] == ["parked"]


def test_the_queue_is_what_waits(cluster: StandIn, objects: list[Object], fitted: Fitted) -> None:
    found = command("capacity", "queue", "--from", "kubernetes")
    waits, placed = waiting(objects), {job["name"]: job["gpus"] for job in found["queue"]}
    assert placed == {name: waits[name] for name in ("half", "waits", "queued")}
    assert waits.keys() - placed.keys() == {"parked", "waits-cordoned"}
    assert {aside["reason"]: aside["jobs"] for aside in found["set_aside"]} == {HELD: 1, NOWHERE: 1}
