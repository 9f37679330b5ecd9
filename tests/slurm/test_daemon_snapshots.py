"""The view of Slurm that a child process reads for the daemon."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemon_process import START_S, running
from snapshot_stand_in import view

from slurm_plugin.config import Slurm
from slurm_plugin.daemon.views import CHILD, Snapshots

STAND_IN = (sys.executable, str(Path(__file__).with_name("snapshot_stand_in.py")))
QUICK = Slurm(refresh_s=1.0, command_timeout_s=1.0)


@contextmanager
def following(*arguments: str, policy: Slurm = QUICK) -> Iterator[Snapshots]:
    snapshots = Snapshots(policy, command=(*STAND_IN, *arguments))
    snapshots.start()
    try:
        yield snapshots
    finally:
        snapshots.close()


def until(done: Callable[[], bool]) -> None:
    """Return once it is so."""
    latest = time.monotonic() + START_S
    while not done():
        assert time.monotonic() < latest
        time.sleep(0.02)


def test_a_view_arrives_whole() -> None:
    with following("30", "1234") as snapshots:
        until(lambda: snapshots.latest is not None)
        found = snapshots.latest
        assert snapshots.packed is not None
        whole, _ = pickle.loads(snapshots.packed)
    assert found is not None
    assert found.nodes == ()
    assert whole.nodes == view(30, 0).nodes
    assert whole.queue == ()  # decisions need of it only what QueueAhead tells
    assert found.settings.version != str(os.getpid())


def test_views_follow_each_other_and_show_their_age() -> None:
    with following("1", "1") as snapshots:
        until(lambda: snapshots.latest is not None)
        first = snapshots.latest
        assert first is not None
        until(lambda: snapshots.latest is not first)
        assert snapshots.age_s < START_S
        assert snapshots.latest is not None
        assert snapshots.latest.taken_s > first.taken_s


def test_there_is_no_view_and_no_age_before_the_first() -> None:
    with following("1", "1", "hang", policy=Slurm()) as snapshots:
        assert snapshots.latest is None
        assert snapshots.age_s == float("inf")
        assert not snapshots.settled.is_set()


def test_a_child_that_dies_is_started_again() -> None:
    with following("1", "1") as snapshots:
        until(lambda: snapshots.latest is not None)
        before, child = snapshots.latest, snapshots.child
        assert before is not None
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: snapshots.latest is not before)
        assert snapshots.latest is not None
        assert snapshots.latest.settings.version != before.settings.version
        assert snapshots.failures == 1


@pytest.mark.slow
def test_a_child_that_says_nothing_is_ended_and_started_again() -> None:
    with following("1", "1", "hang") as snapshots:
        until(lambda: snapshots.child is not None)
        first = snapshots.child
        until(lambda: snapshots.child is not first)
        assert snapshots.failures >= 1


def test_a_failure_of_slurm_is_counted_and_the_last_view_stays() -> None:
    with following("1", "1", "fail") as snapshots:
        until(lambda: snapshots.failures >= 2)
        assert snapshots.settled.is_set()
        assert snapshots.latest is None


def test_a_failure_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with following("1", "1", "fail") as snapshots:
        until(lambda: snapshots.failures >= 3)
    assert [r.getMessage() for r in caplog.records] == [
        "no view of Slurm: squeue: no answer, as asked for"
    ]


def test_a_program_that_cannot_be_started_is_a_failure_not_a_crash() -> None:
    snapshots = Snapshots(QUICK, command=("/no/such/program",))
    snapshots.start()
    until(lambda: snapshots.failures >= 1)
    snapshots.close()


def test_the_child_ends_with_the_daemon(tmp_path: Path) -> None:
    with running(tmp_path / "run", slurm={"refresh_s": 1.0}) as daemon:
        children = _children(daemon.process.pid)
        assert children
        daemon.process.kill()
        daemon.process.wait()
        until(lambda: not any(_alive(pid) for pid in children))


def test_the_real_child_says_what_it_misses_where_there_is_no_slurm(tmp_path: Path) -> None:
    policy = Slurm(bin_dir=tmp_path, refresh_s=1.0)
    snapshots = Snapshots(policy, command=CHILD)
    snapshots.start()
    until(lambda: snapshots.failures >= 1)
    child = snapshots.child
    assert child is not None
    assert child.poll() is None
    snapshots.close()
    assert snapshots.latest is None


def test_decisions_see_the_view(tmp_path: Path) -> None:
    with running(tmp_path / "run", "4", "500") as daemon:
        assert "view=4" in daemon.ask("view")["log"]


@pytest.mark.slow
def test_answers_do_not_wait_for_a_view_of_a_long_queue(tmp_path: Path) -> None:
    def slowest_s(nodes: str, jobs: str) -> float:
        """Of a hundred answers the second slowest."""
        waits = []
        with running(tmp_path / nodes, nodes, jobs, slurm={"refresh_s": 1.0}) as daemon:
            until(lambda: f"view={nodes}" in daemon.ask("view")["log"])
            for n in range(1000):
                started = time.perf_counter()
                daemon.ask("limit=5", name=str(n))
                waits.append(time.perf_counter() - started)
                time.sleep(0.001)
        return sorted(waits)[990]

    assert slowest_s("500", "20000") < 20 * slowest_s("4", "500")


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for t in tasks for child in (t / "children").read_text().split()]


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
