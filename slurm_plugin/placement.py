"""Which nodes a job should get: those whose tensor cores run its precision, and not the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.job.precision import (
    CAPABILITY_NAMES,
    Dtype,
    Precision,
    capability,
    has_tensor_cores,
    runs_natively,
)

from .config import SlurmPlacement
from .constraints import and_also, cover, parse
from .nodes import CandidateNodes, suffice
from .protocol import HookRequest
from .tres import GpuRequest, with_type


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
    kept = tuple(found)
    aim = _aim(precision, policy)
    if policy.mode == "off" or aim is None:
        return Placed(candidates=kept, reason="off" if aim else "any-node")
    target = [c for c in kept if _fits(c, precision)]
    if len(target) == len(kept) and kept:
        return Placed(candidates=kept, note=f"on {aim} nodes", reason="all-fit")
    if not target:
        return Placed(candidates=kept, note=f"no {aim} nodes to be had", reason="none-fit")
    own = _own_choice(request, wanted)
    if own:
        return Placed(candidates=kept, note=f"your own {own} kept", reason=f"own-{own}")
    return _steered(kept, target, request, wanted, precision, policy, aim)


def _aim(precision: Precision, policy: SlurmPlacement) -> str | None:
    needed = capability(precision)
    if needed is not None:
        return CAPABILITY_NAMES[needed]
    steer = precision.matmul_dtype is Dtype.FP32 and policy.fp32 == "avoid_tensor_cores"
    return "non-tensor-core" if steer else None


def _fits(candidate: CandidateNodes, precision: Precision) -> bool:
    if candidate.gpu is None:
        return False
    if capability(precision) is None:
        return not has_tensor_cores(candidate.gpu)
    return runs_natively(candidate.gpu, precision)


def _own_choice(request: HookRequest, wanted: GpuRequest) -> str | None:
    if wanted.typed:
        return "GPU type"
    if request.req_nodes:
        return "node list"
    if request.reservation:
        return "reservation"
    if request.features and parse(request.features) is None:
        return "constraint"
    return "preference" if request.prefer else None


def _steered(
    kept: tuple[CandidateNodes, ...],
    target: list[CandidateNodes],
    request: HookRequest,
    wanted: GpuRequest,
    precision: Precision,
    policy: SlurmPlacement,
    aim: str,
) -> Placed:
    if policy.method == "gres":
        return _typed(kept, target, request, wanted, policy, aim)
    ours = _expression(kept, target, precision, policy)
    joined = None if ours is None else and_also(request.features, ours)
    constraint = None if joined is None else parse(joined)
    if ours is None or joined is None or constraint is None:
        return Placed(
            candidates=kept, note=f"no feature distinguishes {aim} nodes", reason="no-feature"
        )
    narrowed = tuple(c for c in target if constraint.matches(c.features))
    if not suffice(narrowed, wanted):
        return Placed(candidates=kept, note=f"too few {aim} nodes", reason="too-few")
    if policy.mode == "advise":
        return Placed(
            candidates=kept, note=f'add --constraint="{joined}" for {aim} nodes', reason="advice"
        )
    if policy.method == "prefer":
        return Placed(
            candidates=kept, prefer=joined, note=f"{aim} nodes preferred", reason="preferred"
        )
    return Placed(
        candidates=narrowed, features=joined, note=f"placed on {aim} nodes", reason="placed"
    )


def _expression(
    kept: Sequence[CandidateNodes],
    target: Sequence[CandidateNodes],
    precision: Precision,
    policy: SlurmPlacement,
) -> str | None:
    outside = [c for c in kept if c not in target]
    needed = capability(precision)
    named = policy.features.get(needed) if needed else None  # type: ignore[call-overload]
    return cover(target, outside, [named] if named else [])


def _typed(
    kept: tuple[CandidateNodes, ...],
    target: Sequence[CandidateNodes],
    request: HookRequest,
    wanted: GpuRequest,
    policy: SlurmPlacement,
    aim: str,
) -> Placed:
    """One GRES type can be asked for: the one with most usable nodes."""
    types = {c.label for c in target}
    by_type = {t: tuple(c for c in target if c.label == t) for t in sorted(types)}
    enough = {t: nodes for t, nodes in by_type.items() if suffice(nodes, wanted)}
    if not enough:
        return Placed(candidates=kept, note=f"too few {aim} nodes", reason="too-few")
    best = max(enough, key=lambda t: sum(c.usable for c in enough[t]))
    gres = with_type(request, best)
    if gres is None:
        return Placed(
            candidates=kept, note=f"ask for gpu:{best} for {aim} nodes", reason="untypable"
        )
    if policy.mode == "advise":
        return Placed(candidates=kept, note=f"add --gres={gres} for {aim} nodes", reason="advice")
    return Placed(
        candidates=enough[best], gres=gres, note=f"placed on {aim} nodes", reason="placed"
    )
