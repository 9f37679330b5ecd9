"""The time limit of a job: what policy, partition, accounting and similar runs make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictor.estimate.limits import Limit, LimitRule, time_limit, too_thin, too_wide
from predictor.identify.grammar import stated_text
from predictor.identify.stated import Stated
from predictor.site.history.cells import UNLIMITED_S
from predictor.site.similar.estimate import (
    PHYSICS_LEVELS,
    TOLD_SHARE,
    Estimate,
    PhysicsView,
    carried_limit_s,
    estimate_job,
)
from predictor.site.similar.memory import SiteMemory
from predictor.site.similar.request import JobRequest, Similarity, stated_fields
from predictor.site.similar.run_times import TOLD_LEVEL, Floats
from predictor.units import count, duration

from .cluster import Cluster
from .config import PartitionLimits, SlurmLimits
from .estimate import JobPredictions
from .nodes import CandidateNodes, GpuRequest
from .protocol import HookRequest

MINUTE_S = 60.0
# An explicit limit above this many times the quantile below is called long.
LONG_FACTOR = 2.0
LONG_QUANTILE = 0.99
# A soft time above this share of the whole limit changes nothing worth a word.
SOFT_SHARE = 0.8
NO_LIMITS = PartitionLimits()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a limit is kept within, in minutes; no cap where nothing bounds it."""

    floor_min: int
    cap_min: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChoice:
    """What becomes of the limit.

    ``limit_min`` is to be written, None to leave what is there. ``found`` is the arithmetic behind,
    None where nothing was predicted. ``reason`` is a word for the log, ``clause`` for the user.
    ``enough_min`` would do where the user's own limit is far too long.
    """

    reason: str
    clause: str = ""
    found: Limit | None = None
    limit_min: int | None = None
    enough_min: int | None = None

    @property
    def steps_s(self) -> tuple[float, ...] | None:
        """Times of all steps that are alike likely, on the slowest GPU the job may get."""
        quantile_s = None if self.found is None else self.found.slowest.total_quantile_s
        return quantile_s and tuple(quantile_s(level) or 1.0 for level in PHYSICS_LEVELS)


def bounds(
    policy: SlurmLimits, request: HookRequest, partitions: Sequence[str], cluster: Cluster | None
) -> Bounds:
    """The floor and the cap for a job that may start in any of ``partitions``.

    With EnforcePartLimits=ALL, or unknown, the tightest partition bounds the limit, else the
    widest: Slurm starts the job where it fits.
    """
    known = {} if cluster is None else {part.name: part.max_min for part in cluster.partitions}
    known |= {part.name: part.max_min for part in request.partitions}
    caps, floor = [], policy.floor_min
    for name in partitions:
        own = policy.partitions.get(name, NO_LIMITS)
        floor = max(floor, own.floor_min or 0)
        each = (known.get(name), own.cap_min, _account_cap(request, name, cluster))
        caps.append(min((cap for cap in each if cap is not None), default=math.inf))
    if not caps:
        return Bounds(floor, _account_cap(request, "", cluster))
    strict = cluster is None or cluster.settings.enforce_part_limits == "ALL"
    cap = min(caps) if strict else max(caps)
    return Bounds(floor, None if math.isinf(cap) else int(cap))


def _account_cap(request: HookRequest, partition: str, cluster: Cluster | None) -> int | None:
    """MaxWall in Slurm's order: QOS of the partition, QOS of the job, association."""
    if cluster is None:
        return None
    qos = {part.name: part.qos for part in cluster.partitions}.get(partition)
    for name in (qos, request.qos):
        if name and name in cluster.walls.qos:
            return cluster.walls.qos[name]
    own = [
        a.max_wall_min
        for a in cluster.walls.associations
        if a.account == request.account
        and a.user in ("", request.user)
        and a.partition in ("", partition)
        and a.max_wall_min is not None
    ]
    return min(own, default=None)


def choose(
    policy: SlurmLimits, request: HookRequest, estimate: JobPredictions, within: Bounds
) -> LimitChoice:
    """The limit for what was predicted, or why the one that is there stays."""
    predictions = estimate.predictions
    if not predictions:
        return LimitChoice(reason=estimate.reason)
    if any(p.steps is None for p in predictions):
        return LimitChoice(
            reason="no-length", clause="`#PT epochs=` or `steps=` would tell the run time"
        )
    rule = LimitRule(
        quantile=policy.quantile,
        startup_s=policy.startup_s,
        checkpoint_share=policy.pause_share,
        rounding_s=policy.rounding_min * MINUTE_S,
        floor_s=within.floor_min * MINUTE_S,
        cap_s=None if within.cap_min is None else within.cap_min * MINUTE_S,
    )
    found = time_limit(predictions, rule)
    thin = too_thin(predictions, policy.quantile, policy.evidence)
    if request.time_limit is not None:
        own_s = request.time_limit * MINUTE_S
        long_s = LONG_FACTOR * (found.slowest.total_quantile_s(LONG_QUANTILE) or math.inf)
        is_long = policy.warn_explicit and max(long_s, found.limit_s) < min(own_s, UNLIMITED_S)
        sure = not (estimate.doubt or thin)  # who follows the advice has it as limit
        enough_min = minutes(found.limit_s) if is_long and sure else None
        return LimitChoice(reason="explicit", found=found, enough_min=enough_min)
    if policy.mode == "off":
        return LimitChoice(reason="limits-off", found=found)
    if estimate.doubt:
        clause = f"{estimate.doubt}: no limit is set"
        return LimitChoice(reason="contradiction", clause=clause, found=found)
    if thin is not None:
        return LimitChoice(reason="thin-evidence", clause=f"{thin}: no limit is set", found=found)
    return LimitChoice(reason="set", found=found, limit_min=minutes(found.limit_s))


def minutes(seconds: float) -> int:
    """Whole minutes that cover so many seconds."""
    return max(1, math.ceil(seconds / MINUTE_S - 1e-9))


def slurm_time(minutes: int) -> str:
    """Minutes as Slurm prints them: ``3:55:00``, ``2-00:30:00``."""
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:00" if days else f"{hour}:{minute:02d}:00"


@dataclass(frozen=True, slots=True)
class SoftTime:
    """What backfill plans with and what the job may run, both in minutes; inf for no end."""

    time_min: int
    whole_min: float


def soft_time(
    policy: SlurmLimits,
    request: HookRequest,
    estimate: Estimate,
    limit_min: int | None,
    partitions: Sequence[str],
    cluster: Cluster | None,
) -> SoftTime | None:
    """That of a job whose limit we set to ``limit_min``, None to leave it; None where it has none.

    What backfill starts runs with TimeMin as its limit, which ``slurm watch`` lets grow up to the
    limit that the job would have had. TimeMin is chosen so that the partition's OverTimeLimit alone
    reaches that far: with nobody watching, no job ends before. None too where nothing is known of
    such jobs, OverTimeLimit does not reach, or the user gave a TimeMin.
    """
    known = estimate.physics or any(one.share > 0 for one in estimate.similar)
    if cluster is None or request.time_min is not None or not known:
        return None
    parts = [part for part in cluster.partitions if part.name in partitions]
    over_min = min((cluster.over_min(part) for part in parts), default=0.0)
    defaults = [float(p.default_min or p.max_min or math.inf) for p in parts]
    whole_min = limit_min or request.time_limit or max(defaults, default=math.inf)
    if not over_min or (whole_min == math.inf and over_min < math.inf):
        return None
    level = policy.time_min_quantile or policy.quantile
    step = policy.rounding_min
    expected_min = math.ceil(minutes(estimate.quantile_s(level)) / step) * step
    reached_min = 0 if over_min == math.inf else math.ceil(whole_min - over_min)
    time_min = max(expected_min, reached_min, policy.floor_min)
    return SoftTime(time_min, whole_min) if time_min <= SOFT_SHARE * whole_min else None


MIB = 2**20
# Of fewer similar runs no user is told that a limit is long.
TELLING_RUNS = 5


def no_runs(*, learns: bool, script: str) -> str:
    """How an estimate comes where nothing is known; by itself only where the site keeps runs."""
    words = "model=... batch=... epochs=..."
    place = f"`#PT {words}` in the script" if script else f'`--comment "{words}"`'
    itself = "by itself after five runs like it, or " if learns else ""
    return f"no earlier runs to go by; an estimate comes {itself}from {place}"


class ToldPhysics(PhysicsView):
    """What physics says of the job in question, by times (n,) alike likely; nothing of others."""

    def __init__(self, steps_s: Sequence[float]) -> None:
        self._ln_s = np.log(steps_s)

    def told(self, job: JobRequest) -> str:
        """What its steps take."""
        return f"its steps take {duration(float(np.exp(np.median(self._ln_s))))}"

    def ratio(self, ran: JobRequest, job: JobRequest) -> float | None:
        """Nothing is known of what ran."""
        return None

    def ln_s(self, job: JobRequest) -> Floats:
        """The times in ln seconds."""
        return self._ln_s


def job_estimate(job: JobRequest, memory: SiteMemory, steps_s: Sequence[float] | None) -> Estimate:
    """How long a job will run, by similar runs and what physics says of its steps, if anything."""
    return estimate_job(job, memory, ToldPhysics(steps_s) if steps_s else None)


def estimate_words(found: Estimate, quantile: float) -> str:
    """``similar to 12 of your runs: 2 h 10 min expected (95 %: 3 h 05 min)``."""
    level = min(quantile, TOLD_LEVEL)
    basis = ["by physics"] if found.physics else []
    first = next((one for one in found.similar if one.share >= TOLD_SHARE), None)
    if found.runs:
        basis.append(f"similar to {count(found.runs)} of your runs")
    elif first is not None:
        of_user = first.similarity is Similarity.USER
        words = "of yours, none like it" if of_user else first.similarity.words
        basis.append(f"by {count(first.seen)} run{'' if first.seen == 1 else 's'} {words}")
    upper = f"{100 * level:g} %: {duration(found.quantile_s(level))}"
    times = f"{duration(found.expected_s)} expected ({upper})"
    if found.reaches_limit:
        times = "expected to reach its limit"
    return f"{' and '.join(basis)}: {times}" if basis else ""


def too_short(policy: SlurmLimits, found: Estimate, estimate: JobPredictions) -> str:
    """What is said of a user's limit that a predicted job will reach; empty where it will not."""
    if not (policy.warn_explicit and found.reaches_limit) or estimate.doubt:
        return ""
    thin = too_thin(estimate.predictions, policy.quantile, policy.evidence)
    short = f"may be too short: {thin}" if thin else "is probably too short"
    return f"your limit of {slurm_time(minutes(found.limit_s or 0.0))} {short}"


def enough_min(policy: SlurmLimits, found: Estimate, predicted: int | None) -> int | None:
    """What would do in place of a far too long limit, unless more is told; None for none."""
    if predicted is not None:
        return predicted if found.quantile_s(policy.quantile) <= predicted * MINUTE_S else None
    if not policy.warn_explicit or not found.limit_s or found.runs < TELLING_RUNS:
        return None
    enough_s = LONG_FACTOR * found.quantile_s(LONG_QUANTILE)
    return minutes(enough_s) if found.limit_s > max(enough_s, MINUTE_S * policy.floor_min) else None


def beside(
    told: Estimate,
    choice: LimitChoice,
    policy: SlurmLimits,
    request: HookRequest,
    job: JobRequest,
    memory: SiteMemory,
    within: Bounds,
) -> LimitChoice:
    """The choice beside the estimate that is told with it: none shorter, by physics none too wide.

    Where nothing is predicted and no limit asked for, it is what similar runs took.
    """
    limit_min, advised, found = choice.limit_min, policy.mode == "warn", choice.found
    wide = too_wide(told.quantile_s, policy.quantile, policy.evidence)
    if limit_min is not None and wide:
        clause = f"{wide}: no limit is set"
        return LimitChoice(reason="thin-evidence", clause=clause, found=found)
    if found is None and request.time_limit is None and policy.mode != "off":
        advised |= policy.history_mode == "advise"
        carried = policy.history_mode != "off" and carried_limit_s(job, memory, policy.quantile)
        limit_min = minutes(carried) if carried else None
    if limit_min is None:
        return choice
    wanted = minutes(told.covering_s(limit_min * MINUTE_S, policy.quantile))
    wanted = max(-(-wanted // policy.rounding_min) * policy.rounding_min, within.floor_min)
    limit_min = wanted if within.cap_min is None else min(wanted, within.cap_min)
    limit_min = max(limit_min, int(request.time_min or 1))
    text = slurm_time(limit_min)
    if advised:
        reason = "warn-only" if found else "similar-runs-advice"
        return LimitChoice(reason=reason, clause=f"time limit {text} would do", found=found)
    clause = f"time limit set to {text}"
    if limit_min < wanted or (found and found.capped):
        clause += ", the longest there is here"
        if told.expected_s > limit_min * MINUTE_S:
            clause += ": the job is predicted to hit it"
    reason = "set" if found else "similar-runs"
    return LimitChoice(reason=reason, clause=clause, found=found, limit_min=limit_min)


class ReadTexts(NamedTuple):
    """What the texts of a job come to: signatures too, and whether a signal is asked for."""

    stated: Stated
    script: str
    command: str
    signalled: bool


def job_request(
    request: HookRequest,
    wanted: GpuRequest,
    read: ReadTexts,
    partitions: Sequence[str],
    found: Sequence[CandidateNodes],
) -> JobRequest:
    """A submitted job as similar runs are found by it, in the words accounting will have of it."""
    limit_min = request.time_limit
    tasks = request.num_tasks or request.min_nodes or 1
    cpus = max(request.min_cpus or 1, tasks * (request.cpus_per_task or 1))  # as in ReqTRES
    nodes = request.min_nodes or wanted.nodes or 1
    mib = (request.min_mem_per_cpu or 0) * cpus or (request.min_mem_per_node or 0) * nodes
    names = {one.label if one.gpu is None else one.gpu.name for one in found}
    return JobRequest(
        user=request.user,
        account=request.account or "",
        name=request.name or "",
        partition=partitions[0] if partitions else "",
        gpus=wanted.gpus,
        gpu_type=names.pop() if len(names) == 1 else wanted.type or "",
        cpus=cpus,
        memory_bytes=mib * MIB or None,
        limit_s=None if limit_min is None or limit_min == float("inf") else limit_min * MINUTE_S,
        script=read.script,
        command=read.command,
        directory=request.work_dir or "",
        **stated_fields(stated_text(read.stated)),
    )
