"""From a request of the hook to the answer: identify, place, predict, limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from predictor.identify.grammar import parse_text
from predictor.identify.identify import identify
from predictor.identify.rules import RuleContext, Rules
from predictor.identify.stated import Problem, Stated
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import script_signature

from .candidates import CandidateNodes, candidates
from .cluster import Cluster
from .config import SlurmPolicy
from .cpu_bound import CpuBoundError, cpu_bound
from .daemon.predictions import Predicts, UnknownYetError
from .estimate import JobPredictions, estimate
from .hardware import gpu_named
from .job_files import JobFiles, TimedReads
from .limit import bounds, choose
from .mark import parse_mark
from .message import log_words
from .order import OrderField, order_field
from .outcome import JobDecision
from .partition_choice import Elsewhere, elsewhere
from .placement import Placed, place
from .pools import Pools
from .protocol import ANSWER_TTL_S, HookAnswer, HookRequest, with_old
from .queue_models import QueueModels
from .similar_runs import job_estimate, job_request, with_similar_runs
from .tres import GpuRequest, gpu_request

# Processor time for reading what a user wrote, whatever it holds.
READ_CPU_S = 0.010
# How long an answer may be repeated that lacked node data, in seconds.
RETRY_TTL_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFollowUp:
    """A limit the daemon changes itself, once slurmctld has made the user's change.

    Users may not raise their own limit, so the modify hook cannot do it for them; SlurmUser may.
    ``old_limit_min`` is the limit the job must still have then.
    """

    job_id: int
    old_limit_min: int
    time_limit_min: int
    admin_comment: str


class SlurmDecider:
    """Decides jobs.

    ``cluster`` gives the newest view of Slurm, None while there is none; ``version`` is the
    predictor's, written on every job; ``memory`` is of the site's runs. ``follow_ups`` are for the
    daemon to carry out. ``is_open`` says of the last decision that a prediction is still to come.
    """

    def __init__(
        self,
        predictor: Predicts,
        policy: SlurmPolicy,
        cluster: Callable[[], Cluster | None],
        rules: Rules | None = None,
        version: str = "",
        memory: SiteMemory | None = None,
    ) -> None:
        self.predictor = predictor
        self.policy = policy
        self.cluster = cluster
        self.rules = rules
        self.version = version
        self.memory = SiteMemory() if memory is None else memory
        self.is_open = False
        self.reads_given_up = 0
        self.follow_ups: SimpleQueue[LimitFollowUp] = SimpleQueue()
        self._queues = QueueModels()
        self._pools = Pools(policy.hardware)
        self._reads = TimedReads()

    def decide(self, request: HookRequest) -> HookAnswer:
        """The answer to one request."""
        self.is_open = False
        excluded = self._excluded(request)
        if excluded:
            return HookAnswer(log=log_words(reason=f"excluded-{excluded}"))
        if request.kind == "modify":
            return self._modify(request)
        wanted = gpu_request(request)
        if wanted is None:
            return HookAnswer(log=log_words(reason="no-gpus"))
        return self._outcome(request, wanted, *self._read(request)).answer()

    def _excluded(self, request: HookRequest) -> str | None:
        exclude = self.policy.exclude
        asked = {part.name for part in request.partitions}
        checks = {
            "user": request.user in exclude.users,
            "account": request.account in exclude.accounts,
            "qos": request.qos in exclude.qos,
            "partition": bool(asked) and asked <= exclude.partitions,
        }
        return next((name for name, hit in checks.items() if hit), None)

    def _read(self, request: HookRequest) -> tuple[Stated, str]:
        """What a job states, and the signature of its script, in bounded time."""
        try:
            with cpu_bound(READ_CPU_S):
                return self._stated(request), script_signature(request.script or "")
        except CpuBoundError as error:
            self.reads_given_up += 1
            stated = self._stated(replace(request, script=None, argv=()))
            problem = Problem(
                origin="script", text=f"not read: {error}", field="command", contradiction=True
            )
            return replace(stated, problems=(*stated.problems, problem)), ""

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
        return identify(
            comment=request.comment,
            extra=request.extra,
            environment=request.environment,
            script=request.script,
            argv=request.argv,
            rules=self.rules,
            context=context,
            files=self._files(request),
        )

    def _files(self, request: HookRequest) -> JobFiles | None:
        policy = self.policy.identify
        if not policy.config_files or not request.work_dir:
            return None
        within_s = policy.config_files_ms / 1e3
        return JobFiles(self._reads, request.work_dir, request.uid, within_s)

    def _outcome(
        self,
        request: HookRequest,
        wanted: GpuRequest,
        stated: Stated,
        script: str = "",
        *,
        steer: bool = True,
    ) -> JobDecision:
        cluster = self.cluster()
        asked = _partitions(request, cluster)
        other = self._elsewhere(request, wanted, stated, cluster) if steer else None
        if other is not None and other.applied:
            asked = (other.partition,)
        found = self._candidates(request, wanted, asked, cluster)
        placed = self._placed(found, request, wanted, stated) if steer else _left(found)
        predicted = self._estimate(wanted, stated, placed.candidates, cluster)
        limits = self.policy.limits
        within = bounds(limits, request, asked, cluster)
        choice = choose(limits, request, predicted, within)
        job = job_request(request, wanted, stated, script, asked, placed.candidates)
        return JobDecision(
            policy=self.policy,
            stated=stated,
            estimate=predicted,
            placed=placed,
            choice=with_similar_runs(choice, limits, request, job, self.memory, within),
            job=job,
            similar=job_estimate(job, self.memory, predicted.predictions),
            own=own_limit(request.time_limit),
            queue=self._order(cluster),
            wait_s=self._wait_s(request, wanted, asked, placed, cluster) if steer else None,
            elsewhere=other,
            version=self.version,
            ttl_s=self._ttl_s(cluster, placed, other),
        )

    def _order(self, cluster: Cluster | None) -> OrderField | None:
        mode = self.policy.order.mode
        return None if cluster is None or mode == "off" else order_field(cluster.settings)

    def _wait_s(
        self,
        request: HookRequest,
        wanted: GpuRequest,
        partitions: Sequence[str],
        placed: Placed,
        cluster: Cluster | None,
    ) -> float | None:
        """When the job would start, by the estimates of those before it."""
        if cluster is None or wanted.shared or request.waits or self.policy.order.mode == "apply":
            return None
        queue = self._queues.of(cluster)
        nodes = frozenset(name for one in placed.candidates for name in one.names)
        waits = [
            queue.wait(wanted.gpus, wanted.gpus_per_node, nodes, name, gpu_type=wanted.type)
            for name in partitions
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    def _ttl_s(self, cluster: Cluster | None, placed: Placed, other: Elsewhere | None) -> int:
        """What names features, types or partitions holds no longer than the view it rests on."""
        if cluster is None:
            return RETRY_TTL_S
        written = placed.features or placed.prefer or placed.gres or other
        return min(ANSWER_TTL_S, int(self.policy.slurm.refresh_s)) if written else ANSWER_TTL_S

    def _candidates(
        self,
        request: HookRequest,
        wanted: GpuRequest,
        partitions: tuple[str, ...],
        cluster: Cluster | None,
    ) -> tuple[CandidateNodes, ...]:
        """The nodes the job may get; one of the type it names while there are no node data."""
        if cluster is not None:
            return candidates(self._pools.of(cluster), request, wanted, partitions)
        if wanted.type is None:
            return ()
        gpu = gpu_named(wanted.type, self.policy.hardware)
        count = wanted.gpus_per_node or wanted.gpus
        return (CandidateNodes(("",), 1, frozenset(), gpu, count, wanted.type),)

    def _placed(
        self,
        found: tuple[CandidateNodes, ...],
        request: HookRequest,
        wanted: GpuRequest,
        stated: Stated,
    ) -> Placed:
        precision = stated.values.get("precision")
        if precision is None or wanted.shared:
            return _left(found)
        return place(found, request, wanted, precision, self.policy.placement)

    def _estimate(
        self,
        wanted: GpuRequest,
        stated: Stated,
        found: tuple[CandidateNodes, ...],
        cluster: Cluster | None,
    ) -> JobPredictions:
        if wanted.shared:
            return JobPredictions(reason="shared-gpus", advice="shares of a GPU are not predicted")
        if cluster is None and not found:
            return JobPredictions(reason="no-node-data")
        try:
            return estimate(self.predictor, self.policy, wanted, stated, found)
        except UnknownYetError:
            self.is_open = True
            words = f"the time of {stated.model} follows: precision-time slurm eta"
            return JobPredictions(reason="later", advice=words)

    def _elsewhere(
        self, request: HookRequest, wanted: GpuRequest, stated: Stated, cluster: Cluster | None
    ) -> Elsewhere | None:
        policy = self.policy.placement
        free = not request.partition and not request.req_nodes and not request.reservation
        if cluster is None or policy.partition_mode == "off" or wanted.shared or not free:
            return None
        queue, pools = self._queues.of(cluster), self._pools.of(cluster)
        try:
            return elsewhere(self.predictor, self.policy, pools, queue, request, wanted, stated)
        except UnknownYetError:
            self.is_open = True
            return None

    def _modify(self, request: HookRequest) -> HookAnswer:
        """A changed job: where the limit was ours, the daemon will make it follow."""
        mark = parse_mark(request.old.get("admin_comment"))
        whole = with_old(request)
        if mark is None or mark.limit is None or request.job_id is None:
            return HookAnswer(log=log_words(reason="not-ours"), ttl_s=0)
        if request.time_limit is not None or request.old.get("time_limit") != str(mark.limit):
            return HookAnswer(log=log_words(reason="own-limit"), ttl_s=0)
        wanted = gpu_request(whole)
        if wanted is None:
            return HookAnswer(log=log_words(reason="no-gpus"), ttl_s=0)
        stated = parse_text(request.comment or "", "comment").over(parse_text(mark.job, "submit"))
        fresh = replace(whole, time_limit=None)
        outcome = self._outcome(fresh, wanted, stated, steer=False)
        limit = outcome.choice.limit_min
        if limit is not None and limit != mark.limit:
            comment = outcome.mark().text()
            self.follow_ups.put(
                LimitFollowUp(
                    job_id=request.job_id,
                    old_limit_min=mark.limit,
                    time_limit_min=limit,
                    admin_comment=comment,
                )
            )
        return HookAnswer(log=outcome.answer().log, ttl_s=0)


def _partitions(request: HookRequest, cluster: Cluster | None) -> tuple[str, ...]:
    """The partitions asked for, else the default one."""
    if request.partitions:
        return tuple(part.name for part in request.partitions)
    if request.partition:
        return tuple(part for part in request.partition.split(",") if part)
    parts = cluster.partitions if cluster is not None else ()
    return tuple(part.name for part in parts if part.default)


def own_limit(minutes: float | None) -> str:
    """A user's own limit as the mark has it."""
    return "none" if minutes is None else "inf" if minutes == float("inf") else f"{minutes:.0f}"


def _left(found: tuple[CandidateNodes, ...]) -> Placed:
    return Placed(candidates=found, reason="left")
