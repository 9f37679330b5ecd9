"""Where a job should go: nodes whose tensor cores run its precision, and the earliest partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.identify.stated import Stated
from predictor.job.precision import (
    CAPABILITY_NAMES,
    Dtype,
    Precision,
    capability,
    has_tensor_cores,
    runs_natively,
)
from predictor.units import duration

from .ahead import NewJob, QueueAhead
from .config import SlurmPlacement, SlurmPolicy
from .constraints import and_also, cover, parse
from .estimate import Predictors, estimate
from .nodes import CandidateNodes, GpuRequest, NodePool, candidates, suffice, with_type
from .protocol import HookRequest

# A gain below this share of the time in the default partition is not worth a word.
WORTHWHILE_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What becomes of a job's nodes.

    ``candidates`` are where it may land afterwards. At most one of ``features``, ``prefer`` and
    ``gres`` is to be written; none in advice. ``note`` is for the user, ``reason`` for the log.
    """

    candidates: tuple[CandidateNodes, ...]
    features: str | None = None
    prefer: str | None = None
    gres: str | None = None
    note: str = ""
    reason: str = ""


def place(
    found: Sequence[CandidateNodes],
    request: HookRequest,
    wanted: GpuRequest,
    precision: Precision,
    policy: SlurmPlacement,
) -> Placed:
    """Steer a job to the nodes that fit its precision, where its own request leaves a choice.

    Nothing is written that contradicts the user's constraint, node list or typed GPUs, and nothing
    that fewer usable nodes satisfy than the job needs: Slurm would refuse or starve it.
    """
    left, needed = Placed(candidates=tuple(found)), capability(precision)
    if needed is not None:
        aim = CAPABILITY_NAMES[needed]
    elif precision.matmul_dtype is Dtype.FP32 and policy.fp32 == "avoid_tensor_cores":
        aim = "non-tensor-core"
    else:
        return replace(left, reason="any-node")
    if policy.mode == "off":
        return replace(left, reason="off")
    target = [c for c in found if _fits(c, precision)]
    if len(target) == len(found) and found:
        return replace(left, note=f"on {aim} nodes", reason="all-fit")
    if not target:
        return replace(left, note=f"no {aim} nodes to be had", reason="none-fit")
    own = _own_choice(request, wanted)
    if own:
        return replace(left, note=f"your own {own} kept", reason=f"own-{own}")
    if policy.method == "gres":
        return _typed(left, target, request, wanted, policy, aim)
    named = policy.features.get(needed) if needed else None  # type: ignore[call-overload]
    ours = cover(target, [c for c in found if c not in target], [named] if named else [])
    joined = None if ours is None else and_also(request.features, ours)
    constraint = None if joined is None else parse(joined)
    if constraint is None:
        return replace(left, note=f"no feature distinguishes {aim} nodes", reason="no-feature")
    narrowed = tuple(c for c in target if constraint.matches(c.features))
    if not suffice(narrowed, wanted):
        return replace(left, note=f"too few {aim} nodes", reason="too-few")
    if policy.mode == "advise":
        note = f'add --constraint="{joined}" for {aim} nodes'
        return replace(left, note=note, reason="advice")
    if policy.method == "prefer":
        return replace(left, prefer=joined, note=f"{aim} nodes preferred", reason="preferred")
    note = f"placed on {aim} nodes"
    return Placed(candidates=narrowed, features=joined, note=note, reason="placed")


def _fits(candidate: CandidateNodes, precision: Precision) -> bool:
    if candidate.gpu is None:
        return False
    if capability(precision) is None:
        return not has_tensor_cores(candidate.gpu)
    return runs_natively(candidate.gpu, precision)


def _own_choice(request: HookRequest, wanted: GpuRequest) -> str | None:
    if wanted.types:
        return "GPU type"
    if request.req_nodes:
        return "node list"
    if request.reservation:
        return "reservation"
    if request.features and parse(request.features) is None:
        return "constraint"
    return "preference" if request.prefer else None


def _typed(
    left: Placed,
    target: Sequence[CandidateNodes],
    request: HookRequest,
    wanted: GpuRequest,
    policy: SlurmPlacement,
    aim: str,
) -> Placed:
    """One GRES type can be asked for: the one with most usable nodes."""
    types = sorted({c.label for c in target})
    by_type = {t: tuple(c for c in target if c.label == t) for t in types}
    enough = {t: nodes for t, nodes in by_type.items() if suffice(nodes, wanted)}
    if not enough:
        return replace(left, note=f"too few {aim} nodes", reason="too-few")
    best = max(enough, key=lambda t: sum(c.usable for c in enough[t]))
    gres = with_type(request, best)
    if gres is None:
        return replace(left, note=f"ask for gpu:{best} for {aim} nodes", reason="untypable")
    if policy.mode == "advise":
        return replace(left, note=f"add --gres={gres} for {aim} nodes", reason="advice")
    note = f"placed on {aim} nodes"
    return Placed(candidates=enough[best], gres=gres, note=note, reason="placed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A partition that ends the job earlier than the default one; ``applied`` by policy."""

    partition: str
    applied: bool
    note: str


def elsewhere(
    predictor: Predictors,
    policy: SlurmPolicy,
    pools: Sequence[NodePool],
    queue: QueueAhead,
    request: HookRequest,
    wanted: GpuRequest,
    stated: Stated,
) -> Elsewhere | None:
    """The partition with the earliest predicted end, where it is worth leaving the default one.

    That is by the expected wait and the median run on the slowest GPU there.
    """
    precision = stated.values.get("precision")
    default = [part.name for part in request.partitions]
    ends: dict[str, tuple[float, float]] = {}  # seconds to the end, and to the start
    for name in dict.fromkeys((*default, *policy.placement.partition_choices)):
        if name not in request.usable_partitions:
            continue
        found = candidates(pools, request, wanted, [name])
        if precision is not None:
            found = place(found, request, wanted, precision, policy.placement).candidates
        estimated = estimate(predictor, policy, wanted, stated, found)
        runs = [p.total_s for p in estimated.predictions if p.total_s is not None]
        nodes = frozenset(n for c in found for n in c.names)
        wait_s = queue.wait(NewJob(wanted, nodes, [name]))
        if runs and wait_s is not None:
            ends[name] = (wait_s + max(runs), wait_s)
    here = [ends[name][0] for name in default if name in ends]
    if not ends or (default and not here):
        return None
    best = min(ends, key=lambda name: ends[name][0])
    end_s, wait_s = ends[best]
    usual_s = min(here, default=end_s)
    if end_s >= usual_s * (1 - WORTHWHILE_SHARE):
        return None
    applied = policy.placement.partition_mode == "apply"
    verb = "sent to" if applied else "earlier in"
    gain = f"starts in {duration(wait_s)}, ends {duration(usual_s - end_s)} earlier"
    return Elsewhere(partition=best, applied=applied, note=f"{verb} partition {best}: {gain}")
