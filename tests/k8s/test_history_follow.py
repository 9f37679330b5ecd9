"""Live ingest from a cluster: nothing that ends is missed, whatever is away meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server_stand_in import CUT, JOBS, PODS, StandIn, eventually, served
from ended_objects import condition, job, moment_s, of_job, owner, pod, running
from gfd_nodes import a100
from k8s_configs import config_of

from k8s_extender.history import runs as table
from k8s_extender.history.runs import ClusterFollower
from predictor.errors import HistoryError
from predictor.site.history.run import EndedJob, JobState
from predictor.site.history.store import History, Merged

COMPLETE = condition("Complete", 61)


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with served() as stand_in:
        stand_in.fill([a100("a100-0")])
        yield stand_in


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def following(cluster: StandIn, path: Path) -> Iterator[Callable[..., ClusterFollower]]:
    started: list[ClusterFollower] = []

    def start() -> ClusterFollower:
        follower = ClusterFollower(
            cluster.client(), config_of({}), lambda: History.open(str(path)), page=2, retry_s=0.01
        )
        follower.start()
        started.append(follower)
        assert eventually(lambda: len(cluster.watchers) == 3 * len(started))
        return follower

    yield start
    for follower in started:
        follower.stop()


def jobs(path: Path) -> dict[str, EndedJob]:
    with History.open(str(path)) as store:
        return {run.ended.name: run.ended for run in store.runs()}


def stored(follower: ClusterFollower, path: Path, *names: str) -> dict[str, EndedJob]:
    """The jobs in the history, once those named are."""

    def there() -> bool:
        follower.store()
        return path.exists() and set(names) <= set(jobs(path))

    assert eventually(there)
    return jobs(path)


def ends(cluster: StandIn, name: str) -> None:
    """A Job and its pod complete."""
    cluster.put(pod(f"{name}-0", owned=of_job(name)), PODS)
    cluster.put(job(name, ended=COMPLETE), JOBS)


def begins(cluster: StandIn, name: str) -> None:
    cluster.put(job(name), JOBS)
    cluster.put(running(f"{name}-0", owned=of_job(name)), PODS)


def test_what_a_ttl_deletes_at_once_is_there(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    begins(cluster, "before")
    follower = following()
    begins(cluster, "short")
    for name in ("before", "short"):
        ends(cluster, name)
        cluster.delete(name, JOBS)
        cluster.delete(f"{name}-0", PODS)

    def whole() -> bool:  # a Job may be stored before the watch of its pods has told of them
        found = stored(follower, path, "before", "short").values()
        known = {(job.state, job.gpu_type) for job in found}
        return known == {(JobState.COMPLETED, "a100-sxm4-80gb")}

    assert eventually(whole)


def test_what_is_deleted_while_it_runs_was_cancelled(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    begins(cluster, "dropped")
    ready = [condition("Ready", 2), condition("PodScheduled", 1)]
    cluster.put(running("alone", conditions=ready), PODS)
    follower = following()
    cluster.delete("dropped", JOBS)
    cluster.delete("dropped-0", PODS)
    cluster.delete("alone", PODS)
    found = stored(follower, path, "dropped", "alone")
    assert {job.state for job in found.values()} == {JobState.CANCELLED}
    assert {job.gpus for job in found.values()} == {8}
    assert all(job.end_s > moment_s(61) for job in found.values())  # of the clock


def test_a_pod_that_is_preempted_does_not_end_its_job(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    begins(cluster, "held")
    follower = following()
    cluster.put(
        running(
            "held-0",
            owned=of_job("held"),
            conditions=[condition("DisruptionTarget", 5, "PreemptionByScheduler")],
        ),
        PODS,
    )
    cluster.delete("held-0", PODS)
    ends(cluster, "other")
    assert set(stored(follower, path, "other")) == {"other"}
    ends(cluster, "held")
    assert stored(follower, path, "held")["held"].state is JobState.COMPLETED


def test_the_gpu_is_known_after_its_node_is_gone(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    begins(cluster, "scaled")
    follower = following()
    cluster.delete("a100-0")
    assert eventually(lambda: not follower._nodes.table)
    ends(cluster, "scaled")
    assert stored(follower, path, "scaled")["scaled"].gpu_type == "a100-sxm4-80gb"


def test_changes_after_the_end_are_stored_and_nothing_twice(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    follower = following()
    mine = owner("PyTorchJob", "torch")
    cluster.put(pod("torch-0", owned=mine, phase="Failed"), PODS)
    assert stored(follower, path, "torch")["torch"].state is JobState.FAILED
    cluster.put(running("torch-1", owned=mine, ran=(70, None)), PODS)
    cluster.put(pod("torch-1", owned=mine, ran=(70, 90)), PODS)
    cluster.delete("torch-0", PODS)

    def updated() -> bool:
        return stored(follower, path, "torch")["torch"].end_s == moment_s(90)

    assert eventually(updated)
    assert len(jobs(path)) == 1
    assert follower.store().runs == 0


def test_while_the_database_is_away_runs_wait(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    follower = following()
    path.mkdir()  # where the file should be
    ends(cluster, "first")
    cluster.delete("first", JOBS)
    cluster.delete("first-0", PODS)
    assert eventually(lambda: "uid-first" in follower._table.ended())
    with pytest.raises(HistoryError):
        follower.store()
    ends(cluster, "second")
    path.rmdir()
    assert set(stored(follower, path, "first", "second")) == {"first", "second"}


def test_what_waits_is_bounded(
    cluster: StandIn,
    following: Callable[..., ClusterFollower],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(table, "MAX_WAITING", 3)
    monkeypatch.setattr(table, "LATE_S", 0.1)
    follower = following()
    for i in range(5):
        cluster.put(pod(f"p{i}"), PODS)
        cluster.delete(f"p{i}", PODS)
    kept = ["uid-p2", "uid-p3", "uid-p4"]
    assert eventually(lambda: list(follower._table.ended()) == kept)
    assert "runs are lost" in caplog.text


@pytest.mark.parametrize("outage", ["cut", "expired", "away"])
def test_an_outage_of_the_api_server_loses_nothing_that_it_still_has(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower], outage: str
) -> None:
    begins(cluster, "long")
    begins(cluster, "unseen")
    follower = following()
    if outage == "cut":
        cluster.send(CUT)
    if outage == "away":
        cluster.stop()
    ends(cluster, "long")
    if outage != "cut":
        cluster.delete("unseen", JOBS)
        cluster.delete("unseen-0", PODS)
        cluster.expire()
    if outage == "expired":
        cluster.send(CUT)
    if outage == "away":
        cluster.start()
    assert stored(follower, path, "long")["long"].state is JobState.COMPLETED


def test_an_event_that_cannot_be_read_makes_it_list_anew(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    follower = following()
    cluster.send(b'{"type": "MODIFIED", "object": {"metadata": 7}}\n')
    ends(cluster, "after")
    assert stored(follower, path, "after")


def test_starting_again_adds_nothing_twice(
    cluster: StandIn, path: Path, following: Callable[..., ClusterFollower]
) -> None:
    ends(cluster, "kept")
    stored(following(), path, "kept")
    again: Any = following()
    assert eventually(lambda: again._table.ended())
    tally = again.store()
    assert tally.added == Merged(same=1)


def test_a_heartbeat_tells_that_it_looks_also_while_the_history_is_away(
    cluster: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "blocked").write_text("")  # a file where the history's directory should be
    alive = tmp_path / "alive"
    command = [sys.executable, "-c", "from predictor.cli.main import main; main()"]
    command += ["history", "ingest", "kubernetes", "--follow", "--heartbeat", str(alive)]
    command += ["--kubeconfig", str(cluster.kubeconfig(tmp_path))]
    command += ["--history", str(tmp_path / "blocked" / "history.sqlite")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert eventually(alive.exists, timeout_s=120.0)
        alive.unlink()
        assert eventually(alive.exists, timeout_s=120.0)
    finally:
        process.terminate()
        process.communicate(timeout=60)
