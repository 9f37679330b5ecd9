"""When a job would start that is not in the queue yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.ahead import OVERDUE_S, NewJob, QueueAhead
from slurm_plugin.cluster import Cluster, GpuGres, Partition, SlurmJob, SlurmNode
from slurm_plugin.nodes import GpuRequest
from slurm_plugin.order import BASE

NOW = 1.8e9
HOUR = 3600.0


def gpu_node(name: str, gpus: int = 4, kind: str = "a100", **changes: Any) -> SlurmNode:
    node = SlurmNode(name=name, partitions=("gpu",), gpus=(GpuGres(kind, gpus),))
    return replace(node, **changes)


def job(state: str, gpus: int, hours: float | None, **changes: Any) -> SlurmJob:
    limit = None if hours is None else round(hours * 60)
    made = SlurmJob(
        job_id=1,
        user="u1",
        name="j",
        state=state,
        partitions=("gpu",),
        gpus=gpus,
        limit_min=limit,
        start_s=NOW if state == "RUNNING" else None,
    )
    return replace(made, **changes)


def running(gpus: int, hours: float | None, *nodes: str, **changes: Any) -> SlurmJob:
    return job("RUNNING", gpus, hours, node_names=nodes, nodes=len(nodes), **changes)


def pending(gpus: int, hours: float | None, **changes: Any) -> SlurmJob:
    return job("PENDING", gpus, hours, **changes)


def cluster(*parts: SlurmNode | SlurmJob, **changes: Any) -> Cluster:
    nodes = tuple(part for part in parts if isinstance(part, SlurmNode))
    queue = tuple(part for part in parts if isinstance(part, SlurmJob))
    return Cluster(taken_s=NOW, nodes=nodes, queue=queue, **changes)


def wait(
    view: Cluster,
    gpus: int,
    per_node: int | None = None,
    only: set[str] | None = None,
    partition: str = "gpu",
    **options: Any,
) -> float | None:
    nodes = frozenset(node.name for node in view.nodes if only is None or node.name in only)
    limits = {name: options.pop(name) for name in ("limit_s", "priority") if name in options}
    wanted = GpuRequest(
        gpus=gpus, nodes=None, gpus_per_node=per_node, type=options.pop("gpu_type", None)
    )
    assert not options
    new = NewJob(wanted, nodes, [partition], **limits)
    return QueueAhead.of(view).wait(new)


def seconds(view: Cluster, gpus: int, per_node: int | None = None, **options: Any) -> float:
    found = wait(view, gpus, per_node, **options)
    assert found is not None
    return found


N1, N2 = gpu_node("n1"), gpu_node("n2")


def test_an_idle_cluster_starts_a_job_at_once() -> None:
    assert wait(cluster(N1, N2), 8, 4) == 0.0


def test_a_job_starts_beside_others_on_the_gpus_they_leave() -> None:
    view = cluster(N1, running(3, 2, "n1"))
    assert seconds(view, 1) == 0.0
    assert seconds(view, 2) == 2 * HOUR


def test_a_job_waits_for_the_first_node_that_can_hold_it() -> None:
    view = cluster(N1, N2, running(4, 5, "n1"), running(2, 3, "n2"))
    assert seconds(view, 2, 2) == 0.0
    assert seconds(view, 4, 4) == 3 * HOUR
    assert seconds(view, 8, 4) == 5 * HOUR


def test_time_already_run_is_not_waited_for_again() -> None:
    assert seconds(cluster(N1, running(4, 5, "n1", start_s=NOW - 2 * HOUR)), 1) == 3 * HOUR


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_job_past_its_end_goes_soon(state: str) -> None:
    overdue = replace(running(4, 1, "n1", start_s=NOW - 2 * HOUR), state=state)
    assert seconds(cluster(gpu_node("n1", gpus_used=4), overdue), 1) == OVERDUE_S


def test_a_longer_limit_does_not_fit_into_the_gap() -> None:
    view = cluster(N1, N2, running(4, 3, "n1"), pending(8, 1, nodes=2))
    assert seconds(view, 1, limit_s=HOUR) == 0.0
    assert seconds(view, 1, limit_s=20 * HOUR) == 4 * HOUR


def test_pending_jobs_ahead_go_first() -> None:
    view = cluster(N1, running(4, 1, "n1"), pending(4, 2), pending(4, 3))
    assert seconds(view, 1) == 6 * HOUR


def test_jobs_go_by_priority_and_then_by_age() -> None:
    late, early = pending(4, 1, submit_s=9.0), pending(1, 5, submit_s=1.0)
    last = pending(4, 2, submit_s=10.0)
    assert seconds(cluster(N1, late, early, last), 4) == 8 * HOUR
    assert seconds(cluster(N1, late, early), 4) == 6 * HOUR
    urgent = replace(late, priority=1)
    assert seconds(cluster(N1, urgent, early), 3) == 1 * HOUR


def test_where_the_queue_is_ordered_a_job_waits_for_those_before_it_alone() -> None:
    places = [BASE - HOUR * n for n in range(8)]
    jobs = (pending(4, 1, priority=round(place), job_id=n) for n, place in enumerate(places))
    view = cluster(N1, running(4, 1, "n1"), *jobs)
    waits = [seconds(view, 1, priority=place + 1) / HOUR for place in (*places, 0)]
    assert waits[::2] == [1, 3, 5, 7, 9]  # shares of the queue, and in between never too soon
    assert all(w >= 1 + n for n, w in enumerate(waits))
    assert waits == sorted(waits)


def test_jobs_that_have_come_since_are_before_the_next_that_stand_no_higher() -> None:
    first = pending(4, 1, priority=BASE - 50)
    queue = QueueAhead.of(cluster(N1, N2, running(8, 2, "n1", "n2"), first))
    wanted = GpuRequest(gpus=3, nodes=None, gpus_per_node=None, type=None)
    high = NewJob(wanted, frozenset({"n1", "n2"}), ["gpu"], run_s=5 * HOUR, priority=BASE)
    low = replace(high, priority=BASE - 100)
    before = []
    for job in (low, low, high, high):
        before.append((queue.wait(high), queue.wait(low)))
        queue.add(job)
    # Beside the first, behind it, behind both; of what stands below nobody above hears.
    hours = [(2, 2), (2, 3), (2, 7), (2, 8)]
    assert before == [tuple(h * HOUR for h in both) for both in hours]
    assert queue.wait(replace(low, wanted=replace(wanted, gpus=1))) == 2 * HOUR


@pytest.mark.parametrize(
    "other",
    [
        pending(4, 9, held=True),
        pending(4, 9, partitions=("elsewhere",)),
        pending(4, 9, gpu_type="v100"),
        pending(4, 9, features="bigmem"),
        pending(8, 9, nodes=1),
        pending(0, 9),
        running(0, 9, "n1"),
        running(4, 9, "unknown"),
    ],
)
def test_jobs_that_cannot_take_these_gpus_are_not_waited_for(other: SlurmJob) -> None:
    assert seconds(cluster(N1, other), 4) == 0.0


def test_jobs_of_other_partitions_on_the_same_nodes_are_waited_for() -> None:
    shared = gpu_node("n1", partitions=("gpu", "long"))
    assert seconds(cluster(shared, pending(4, 2, partitions=("long",))), 1) == 2 * HOUR


def test_jobs_keep_to_the_nodes_of_their_constraint() -> None:
    big = gpu_node("n2", features=frozenset({"bigmem"}))
    view = cluster(N1, big, pending(4, 2, features="bigmem&(bigmem|other)"))
    assert seconds(view, 4, 4, only={"n1"}) == 0.0
    assert seconds(view, 4, 4, only={"n2"}) == 2 * HOUR


def test_a_gap_before_a_big_job_takes_one_of_an_hour() -> None:
    big = pending(8, 1, nodes=2)
    assert seconds(cluster(N1, N2, running(4, 3, "n1"), big), 1) == 0.0
    assert seconds(cluster(N1, N2, running(4, 0.5, "n1"), big), 1) == 1.5 * HOUR


def test_a_type_is_waited_for_on_its_own_gpus() -> None:
    mixed = replace(N1, gpus=(GpuGres("a100", 2), GpuGres("v100", 2)))
    view = cluster(mixed, running(2, 3, "n1", gpu_type="v100"))
    assert seconds(view, 2, gpu_type="a100") == 0.0
    assert seconds(view, 1, gpu_type="v100") == 3 * HOUR
    assert seconds(view, 2) == 0.0


def test_gpus_that_no_known_job_holds_stay_with_the_others_of_their_node() -> None:
    view = cluster(gpu_node("n1", gpus_used=4), running(1, 2, "n1"))
    assert seconds(view, 1) == 2 * HOUR


def test_gpus_held_by_nobody_we_know_are_not_counted_on() -> None:
    assert seconds(cluster(gpu_node("n1", gpus_used=4), N2), 8, 4) > 30 * 24 * HOUR


def test_an_unlimited_job_is_taken_to_run_for_long() -> None:
    assert seconds(cluster(N1, running(4, None, "n1")), 1) > 30 * 24 * HOUR


@pytest.mark.parametrize(
    ("gpus", "per_node", "options"),
    [
        (5, 5, {}),
        (12, 4, {}),
        (9, None, {}),
        (0, None, {}),
        (1, None, {"partition": "elsewhere"}),
        (1, None, {"gpu_type": "v100"}),
        (5, None, {"only": {"n1"}}),
        (1, None, {"only": set()}),
    ],
)
def test_a_job_that_can_never_run_has_no_start(
    gpus: int, per_node: int | None, options: dict[str, Any]
) -> None:
    assert wait(cluster(N1, N2), gpus, per_node, **options) is None


def test_nodes_that_are_down_or_in_a_closed_partition_hold_nothing() -> None:
    drained = gpu_node("n1", states=frozenset({"IDLE", "DRAIN"}))
    assert wait(cluster(drained), 1) is None
    assert wait(cluster(N1, partitions=(Partition(name="gpu", up=False),)), 1) is None
    assert wait(cluster(), 1) is None


def test_every_job_of_a_long_queue_counts() -> None:
    assert seconds(cluster(N1, *(pending(4, 1, job_id=i) for i in range(5000))), 4) == 5000 * HOUR


SMALL = st.integers(1, 8)
HOURS = st.integers(1, 9)
PENDING = st.builds(
    pending,
    st.sampled_from([1, 2, 3, 4, 8, 12]),
    HOURS,
    nodes=st.integers(1, 3),
    priority=st.integers(0, 3),
    gpu_type=st.sampled_from([None, "a100", "v100"]),
)
RUNNING = st.builds(running, st.integers(1, 4), HOURS, st.sampled_from(["n1", "n2", "n3"]))
NODES = (N1, N2, gpu_node("n3", 8, "v100"))
VIEWS = st.builds(lambda jobs: cluster(*NODES, *jobs), st.lists(PENDING | RUNNING, max_size=12))
NEEDS = st.tuples(SMALL, st.none()) | st.sampled_from([(1, 1), (3, 1), (5, 2), (4, 4)])


@given(VIEWS, SMALL, SMALL)
def test_more_gpus_never_start_earlier(view: Cluster, gpus: int, more: int) -> None:
    assert seconds(view, max(gpus, more)) >= seconds(view, min(gpus, more))


@given(VIEWS, NEEDS, st.sets(st.sampled_from(["n1", "n2", "n3"])))
def test_more_nodes_to_choose_from_never_start_later(
    view: Cluster, need: tuple[int, int | None], only: set[str]
) -> None:
    fewer = wait(view, *need, only=only)
    assert fewer is None or seconds(view, *need) <= fewer


def test_hundreds_of_nodes_and_thousands_of_jobs_are_answered() -> None:
    kinds = ("a100", "v100")
    nodes = [gpu_node(f"n{i}", 8, kinds[i % 2]) for i in range(400)]
    jobs = [running(8, 1 + i % 48, f"n{i}", job_id=i) for i in range(400)]
    sizes = (1, 2, 4, 8, 16, 64)
    waiting = [
        pending(size, 1 + i % 48, job_id=i, nodes=max(1, size // 8), gpu_type=kinds[i % 2])
        for i in range(1000, 6000)
        for size in (sizes[i % len(sizes)],)
    ]
    names = frozenset(node.name for node in nodes)
    model = QueueAhead.of(cluster(*nodes, *jobs, *waiting))
    wanted = GpuRequest(gpus=16, nodes=None, gpus_per_node=8, type="a100")
    new = NewJob(wanted, names, ["gpu"])
    waits = {model.wait(new) for _ in range(100)}
    (found,) = waits
    assert found is not None
    assert found > HOUR
