"""Pods and Jobs put together to runs: what trains together is one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from predictor.site.ended_job import EndedJob, JobState
from predictor.site.history.run import LimitBy, Predicted, Reported, Run

from .seen import SeenObject, SeenPod
from .states import together

SCHEDULER = "kubernetes"
# Controllers whose pods serve, and do not end.
SERVICES = frozenset(("ReplicaSet", "StatefulSet", "DaemonSet"))
JOB = "Job"


@dataclass(slots=True)
class RunObjects:
    """The Jobs and pods of one run by uid, as they were last seen."""

    jobs: dict[str, SeenObject] = field(default_factory=dict)
    pods: dict[str, SeenPod] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """True once the Jobs have ended, or without a Job all pods; a Job's pods wait for it."""
        if self.jobs:
            return all(job.state is not None for job in self.jobs.values())
        return bool(self.pods) and all(
            pod.of.state is not None and pod.of.owner.kind != JOB for pod in self.pods.values()
        )

    @property
    def going(self) -> bool:
        """True while a Job or pod of it has not ended."""
        seen = (*self.jobs.values(), *(pod.of for pod in self.pods.values()))
        return not self.ended and any(one.state is None for one in seen)

    def runs(self, cluster: str) -> tuple[Run, ...]:
        """The runs of a group that has ended, one an attempt; the last stands for the group.

        Pods that ran together without a break are an attempt, and give start, nodes and GPUs (the
        most at one time). Attempts before the last held GPUs too: each is a run under the uid of
        its first pod. A Job whose pods are gone starts when the Job did, so that waiting for nodes
        is counted, and had the GPUs that its node selector names.
        """
        jobs = tuple(self.jobs.values())
        closing_s = max((job.end_s for job in jobs if job.end_s is not None), default=None)
        *earlier, last = _attempts(_spans(self.pods.values(), closing_s)) or [[]]
        run = _last_run(cluster, jobs, [span.pod for span in last] or [*self.pods.values()], last)
        return (*(_earlier_run(run, spans) for spans in earlier), run)


@dataclass(frozen=True, slots=True)
class _Span:
    """When a pod ran, in Unix seconds."""

    start_s: float
    end_s: float
    pod: SeenPod


def _spans(pods: Iterable[SeenPod], closing_s: float | None) -> Iterator[_Span]:
    """The pods that started; one that is still being deleted ends with its Job."""
    for pod in pods:
        end_s = closing_s if pod.of.end_s is None else pod.of.end_s
        if pod.of.start_s is not None and end_s is not None:
            yield _Span(pod.of.start_s, max(pod.of.start_s, end_s), pod)


def _attempts(spans: Iterable[_Span]) -> list[list[_Span]]:
    """Those that ran together, the first attempt first; between two there is a time without any."""
    found: list[list[_Span]] = []
    for span in sorted(spans, key=lambda span: (span.start_s, span.end_s)):
        attempt = found[-1] if found else []
        ends_s = max((other.end_s for other in attempt), default=-math.inf)
        if span.start_s < ends_s or (attempt and span.start_s == attempt[0].start_s):
            attempt.append(span)
        else:
            found.append([span])
    return found


def _earlier_run(last: Run, spans: Sequence[_Span]) -> Run:
    """An attempt that another one followed: what was asked is the same."""
    pods = [span.pod for span in spans]
    first, types, nodes = pods[0].of, {pod.gpu_type for pod in pods}, _nodes(pods)
    ended = replace(
        last.ended,
        job_id=first.uid,
        state=_state((), pods),
        submit_s=first.submit_s,
        start_s=spans[0].start_s,
        end_s=max(span.end_s for span in spans),
        gpus=_most_gpus(spans),
        gpu_type=types.pop() if len(types) == 1 else None,
        nodes=len(nodes),
        node_names=nodes,
    )
    predicted = _predicted(pods, [pod.of for pod in pods])
    return replace(last, ended=ended, predicted=predicted, reported=_reported(pods))


def _last_run(
    cluster: str, jobs: Sequence[SeenObject], pods: Sequence[SeenPod], spans: Sequence[_Span]
) -> Run:
    """The Jobs with the pods of the last attempt, and when those ran."""
    seen = (*jobs, *(pod.of for pod in pods))
    starts = [span.start_s for span in spans] or _known(job.start_s for job in jobs)
    ends = [span.end_s for span in spans] or _known(one.end_s for one in seen)
    submit_s, limits = min(one.submit_s for one in seen), _known(one.limit_s for one in seen)
    start_s, head = min(starts, default=None), seen[0]
    nodes = _nodes(pods)
    types = {pod.gpu_type for pod in pods} or {job.wanted_gpu for job in jobs}
    said = max(seen, key=lambda one: len(one.asked))
    return Run(
        ended=EndedJob(
            scheduler=SCHEDULER,
            cluster=cluster,
            job_id=job_id(head),
            name=head.name,
            user=head.namespace,
            account=head.namespace,
            partition=head.queue,
            qos=head.priority,
            state=_state(jobs, pods),
            submit_s=submit_s,
            start_s=start_s,
            end_s=max(ends, default=start_s or submit_s),
            limit_s=min(limits, default=None),
            gpus=_most_gpus(spans) or max(one.gpus for one in seen),
            gpu_type=types.pop() if len(types) == 1 else None,
            nodes=len(nodes),
            node_names=nodes,
            script=head.script,
        ),
        asked=said.asked,
        origin=said.origin,
        limit_by=_limit_by(seen, limits),
        predicted=_predicted(pods, seen),
        reported=_reported(pods),
    )


def _nodes(pods: Iterable[SeenPod]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pod.node for pod in pods if pod.node))


def _most_gpus(spans: Iterable[_Span]) -> int:
    """The most GPUs that were held at one time."""
    changes = [
        (at_s, change)
        for span in spans
        for at_s, change in ((span.end_s, -span.pod.of.gpus), (span.start_s, span.pod.of.gpus))
    ]
    held = accumulate(change for _, change in sorted(changes))
    return max(held, default=0)


def job_id(head: SeenObject) -> str:
    """The uid of the JobSet, controller, Job or pod that the head of a group belongs to."""
    return head.owner.uid if "/" in head.group and head.owner.uid else head.group


def _state(jobs: Sequence[SeenObject], pods: Iterable[SeenPod]) -> JobState:
    """A Job that only says it failed leaves it to its pods to say why."""
    ended = [job.state for job in jobs if job.state is not None]
    if ended and (told := together(ended)) is not JobState.FAILED:
        return told
    states = together(pod.of.state for pod in pods if pod.of.state is not None)
    return JobState.FAILED if ended and states is JobState.COMPLETED else states


def _limit_by(seen: Sequence[SeenObject], limits: Sequence[float]) -> LimitBy | None:
    if not limits:
        return None
    return LimitBy.US if min(limits) in {one.filled_s for one in seen} else LimitBy.USER


def _predicted(pods: Iterable[SeenPod], seen: Sequence[SeenObject]) -> Predicted | None:
    """What a pod tells was said last, for the nodes it could get; the limit stands on the Job."""
    told = [one.predicted for one in (*(pod.of for pod in pods), *seen)]
    found = next((predicted for predicted in told if predicted is not None), None)
    limit_s = next((one.filled_s for one in seen if one.filled_s is not None), None)
    return None if found is None else replace(found, limit_s=limit_s)


def _reported(pods: Iterable[SeenPod]) -> Reported | None:
    told = [pod.reported for pod in pods if pod.reported is not None]
    return max(told, key=lambda reported: reported.steps, default=None)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
