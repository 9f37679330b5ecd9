"""From a request of the hook to the answer: identify, place, predict, limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from predictor.identify.grammar import pairs_of, parse_text
from predictor.identify.identify import SCRIPTS_KEPT, alike, identify, sbatch_options
from predictor.identify.rules import RuleContext, Rules
from predictor.identify.stated import Problem, Stated
from predictor.service.process import CpuBoundError, time_bound
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import command_signature, script_signature

from . import limit
from .ahead import NewJob, QueueAhead
from .cluster import Cluster
from .config import SlurmPolicy
from .estimate import JobPredictions, MadeBefore, Predictors, UnknownYetError, estimate
from .limit import ReadTexts
from .mark import parse_mark
from .nodes import (
    CandidateNodes,
    GpuRequest,
    NodePool,
    candidates,
    gpu_named,
    gpu_request,
    pools_of,
)
from .order import LEVEL, OrderField, delay_s, new_priority, order_field, told_order
from .outcome import JobDecision, log_words
from .placement import Elsewhere, Placed, elsewhere, place
from .protocol import ANSWER_TTL_S, HookAnswer, HookRequest

# How long an answer may be repeated that lacked node data, in seconds.
RETRY_TTL_S = 5
KEPT_ANSWERS, KEPT_CAME, KEPT_READINGS = 1024, 1024, 128
_signature = lru_cache(SCRIPTS_KEPT)(script_signature)
_alike = lru_cache(KEPT_READINGS)(alike)
# A view of Slurm, as it is looked at: its nodes, who waits, and where the order is written.
View = tuple[Cluster | None, QueueAhead, tuple[NodePool, ...], OrderField | None]
# Of a request: what counts by what it comes to alone.
NO_TEXTS: Mapping[str, Any] = {"argv": (), "environment": {}, "uid": 0} | dict.fromkeys(
    ("comment", "extra", "admin_comment", "script", "within")
)
_counting = attrgetter(*({f.name for f in fields(HookRequest)} - {"name", *NO_TEXTS}))


@dataclass(eq=False)
class SlurmDecider:
    """Decides jobs.

    ``cluster`` and ``ahead`` are a view of Slurm, None while there is none; ``version`` is the
    predictor's, written on every job; ``memory`` is of the site's runs. ``is_open`` says of the
    last decision that a prediction, or a script that takes long to read, is still to come.
    """

    predictor: Predictors
    policy: SlurmPolicy
    cluster: InitVar[Cluster | None] = None
    rules: Rules | None = None
    version: str = ""
    memory: SiteMemory = field(default_factory=SiteMemory)
    ahead: InitVar[QueueAhead | None] = None
    # of processor time for what a user wrote, whatever it holds
    read_cpu_s: float = field(default=0.010, init=False)

    def __post_init__(self, cluster: Cluster | None, ahead: QueueAhead | None) -> None:
        self.is_open = False
        self._decisions: dict[object, JobDecision] = {}
        self._came: list[tuple[float, NewJob]] = []  # at submit, and when
        self._readings: dict[object, ReadTexts] = {}
        looked_at = {n for rule in (self.rules.rules if self.rules else ()) for n in rule.match}
        self._rules_see_scripts = "script" in looked_at
        self._looked_at = looked_at & {"name", "user", "account", "partition"}
        self._newest: View
        self.look(cluster, ahead)
        self._seen: object = None

    def look(self, cluster: Cluster | None, ahead: QueueAhead | None) -> None:
        """Decide by a newer view from the next request on; another thread may call it."""
        pools = () if cluster is None else pools_of(cluster, self.policy.hardware)
        queue = None if cluster is None else order_field(cluster.settings)
        ahead = QueueAhead() if ahead is None else ahead
        for came_s, job in self._came:
            if came_s > ahead.taken_s:
                ahead.add(job)
        self._newest = (cluster, ahead, pools, queue)

    def decide(self, request: HookRequest) -> HookAnswer:
        """The answer to one request."""
        self.is_open = False
        if self._seen is not (newest := self._newest):
            self._seen, self._decisions = newest, {}
            self._cluster, self._ahead, self._pools, self._queue = newest
        asked = [part.name for part in request.partitions]
        exclude = self.policy.exclude
        excluded = exclude.reason(request.user, request.account, request.qos, asked)
        if excluded is not None:
            # Its place is all that it gets: without one it would wait behind all who have one.
            place_in_queue = told_order(self.policy.order, self._queue, None)
            return HookAnswer(log=log_words(reason=f"excluded-{excluded}"), **place_in_queue)
        read = self._read(request)
        # The answer rests on what the texts come to: jobs of a sweep have one answer in a view.
        name = request.name if not (read.script or read.command) else None
        key = (name, _counting(request), tuple(read.stated.values.items()), read)
        at_submit = isinstance(self.predictor, MadeBefore)
        if (found := self._decisions.get(key)) is None:
            shape = replace(request, name=name, **NO_TEXTS)
            if (wanted := gpu_request(shape)) is None:
                return HookAnswer(log=log_words(reason="no-gpus"))
            found = self._outcome(shape, wanted, read)
            if at_submit and not self.is_open and len(self._decisions) < KEPT_ANSWERS:
                self._decisions[key] = found
        elif found.new is not None:
            found = replace(found, wait_s=self._ahead.wait(found.new))
        if at_submit and found.new is not None:
            self._ahead.add(found.new)
            self._came = [*self._came[1 - KEPT_CAME :], (time.time(), found.new)]
        return found.answer()

    def _read(self, request: HookRequest) -> ReadTexts:
        """What the texts of a job come to, in bounded time; what says the same is read once."""
        text = request.script or ""
        key = (
            *(getattr(request, name) for name in self._looked_at),
            tuple(pairs_of(request.comment or "")),
            tuple(request.environment.items()),
            *(request.extra, request.admin_comment, request.argv, request.work_dir),
            text if self._rules_see_scripts else _alike(text),
        )
        if (known := self._readings.get(key)) is not None:
            return known
        command = command_signature(" ".join(request.argv), request.work_dir or "")
        signature = ""
        try:
            with time_bound(self.read_cpu_s, cpu=True):
                signature = _signature(text)
                signalled = self.policy.soft_time.mode != "off" and "signal" in sbatch_options(text)
                stated = self._stated(request)
                read = ReadTexts(stated, signature, command, signalled)
        except CpuBoundError as error:
            self.is_open = isinstance(self.predictor, MadeBefore)  # who decides aside has the time
            stated = self._stated(replace(request, script=None, argv=()))
            words = f"not read{' yet' if self.is_open else ''}: {error}"
            problem = Problem("script", words, "command", contradiction=True)
            stated = replace(stated, problems=(*stated.problems, problem))
            return ReadTexts(stated, signature, command, signalled=True)
        self._readings[key] = read
        if len(self._readings) > KEPT_READINGS:
            del self._readings[next(iter(self._readings))]
        return read

    def _stated(self, request: HookRequest) -> Stated:
        context = RuleContext(
            name=request.name or "",
            user=request.user,
            account=request.account or "",
            partition=request.partition or "",
            command=" ".join(request.argv),
            work_dir=request.work_dir or "",
            script=request.script or "",
        )
        mark = parse_mark(request.admin_comment)  # of a job that was changed since its submit
        found = identify(
            comment=request.comment,
            extra=request.extra,
            environment=request.environment,
            script=request.script,
            argv=request.argv,
            rules=self.rules,
            context=context,
        )
        return found if mark is None else found.over(parse_text(mark.job, "submit"))

    def _outcome(self, request: HookRequest, wanted: GpuRequest, read: ReadTexts) -> JobDecision:
        cluster, limits, stated = self._cluster, self.policy.limits, read.stated
        asked = tuple(part.name for part in request.partitions)
        if not asked and request.partition:
            asked = tuple(part for part in request.partition.split(",") if part)
        elif not asked and cluster is not None:
            asked = tuple(part.name for part in cluster.partitions if part.default)
        other = self._elsewhere(request, wanted, stated)
        if other is not None and other.applied:
            asked = (other.partition,)
        found = self._candidates(request, wanted, asked)
        precision = stated.values.get("precision")
        if precision is None or wanted.shared:
            placed = Placed(candidates=found, reason="left")
        else:
            placed = place(found, request, wanted, precision, self.policy.placement)
        predicted = self._estimate(wanted, stated, placed.candidates)
        within = limit.bounds(limits, request, asked, cluster)
        job = limit.job_request(request, wanted, read, asked, placed.candidates)
        choice = limit.choose(limits, request, predicted, within)
        similar = limit.job_estimate(job, self.memory, choice.steps_s)
        choice = limit.beside(similar, choice, limits, request, job, self.memory, within)
        soft = None
        # Slurm would send a signal before the shorter limit.
        if self.policy.soft_time.mode != "off" and not read.signalled:
            soft = limit.soft_time(limits, request, similar, choice.limit_min, asked, cluster)
        own_min = choice.limit_min or request.time_limit or float("inf")
        planned_min = own_min if soft is None else soft.time_min
        enough = limit.enough_min(limits, similar, choice.enough_min)
        back_s = delay_s(self.policy.order, similar.order_s(LEVEL))
        priority = new_priority(self.policy.order, self._queue, back_s)
        nodes = frozenset(name for one in placed.candidates for name in one.names)
        limit_s = planned_min * limit.MINUTE_S
        new, wait_s, short_s = None, None, None
        if not (wanted.shared or request.waits or priority is None):
            run_s = min(similar.mean_s, limit_s)
            new = NewJob(wanted, nodes, asked, limit_s, run_s, priority)
            wait_s = short_s = self._ahead.wait(new)
            if enough:
                short_s = self._ahead.wait(replace(new, limit_s=enough * limit.MINUTE_S))
        # The hook repeats no answer for longer than the view it rests on is used.
        ttl_s = min(ANSWER_TTL_S, int(self.policy.slurm.refresh_s))
        return JobDecision(
            policy=self.policy,
            stated=stated,
            estimate=predicted,
            placed=placed,
            choice=choice,
            job=job,
            similar=similar,
            own_min=request.time_limit,
            queue=self._queue,
            back_s=back_s,
            soft=soft,
            new=new,
            wait_s=wait_s,
            enough_min=enough,
            sooner_s=max(0.0, (wait_s or 0.0) - (short_s or 0.0)),
            elsewhere=other,
            version=self.version,
            ttl_s=RETRY_TTL_S if cluster is None else ttl_s,
        )

    def _candidates(
        self, request: HookRequest, wanted: GpuRequest, partitions: tuple[str, ...]
    ) -> tuple[CandidateNodes, ...]:
        """The nodes the job may get; one of the type it names while there are no node data."""
        if self._cluster is not None:
            return candidates(self._pools, request, wanted, partitions)
        if wanted.type is None:
            return ()
        gpu = gpu_named(wanted.type, self.policy.hardware)
        count = wanted.gpus_per_node or wanted.gpus
        return (CandidateNodes(("",), 1, frozenset(), gpu, count, wanted.type),)

    def _estimate(
        self, wanted: GpuRequest, stated: Stated, found: tuple[CandidateNodes, ...]
    ) -> JobPredictions:
        if self._cluster is None and not found and not wanted.shared:
            words = "not predicted: Slurm tells nothing of its nodes" if stated.model else ""
            return JobPredictions(reason="no-node-data", advice=words)
        try:
            return estimate(self.predictor, self.policy, wanted, stated, found)
        except UnknownYetError:
            self.is_open = True
            words = f"the time of {stated.model} follows: precision-time slurm eta"
            return JobPredictions(reason="later", advice=words)

    def _elsewhere(
        self, request: HookRequest, wanted: GpuRequest, stated: Stated
    ) -> Elsewhere | None:
        queue, pools = self._ahead, self._pools
        settled = request.partition or request.req_nodes or request.reservation or wanted.shared
        if self.policy.placement.partition_mode == "off" or settled or not queue.pools:
            return None
        try:
            return elsewhere(self.predictor, self.policy, pools, queue, request, wanted, stated)
        except UnknownYetError:
            self.is_open = True
            return None
