"""Which partition finishes the job first: waiting and running time together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from predictor.identify.stated import Stated
from predictor.units import duration

from .ahead import QueueAhead
from .config import SlurmPolicy
from .estimate import Predicts, estimate
from .nodes import CandidateNodes, NodePool, candidates
from .placement import place
from .protocol import HookRequest
from .tres import GpuRequest

# A gain below this share of the time in the default partition is not worth a word.
WORTHWHILE_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A job in one partition: the expected wait and the median run on its slowest GPU there."""

    partition: str
    wait_s: float
    run_s: float

    @property
    def end_s(self) -> float:
        """Seconds from now to the end."""
        return self.wait_s + self.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A partition that ends the job earlier than the default one; ``applied`` by policy."""

    partition: str
    applied: bool
    note: str


def elsewhere(
    predictor: Predicts,
    policy: SlurmPolicy,
    pools: Sequence[NodePool],
    queue: QueueAhead,
    request: HookRequest,
    wanted: GpuRequest,
    stated: Stated,
) -> Elsewhere | None:
    """The partition with the earliest predicted end, where it is worth leaving the default one."""
    default = [part.name for part in request.partitions]
    choices = [*default, *policy.placement.partition_choices]
    ends: dict[str, Completion] = {}
    for name in dict.fromkeys(choices):
        if name in request.usable_partitions:
            found = candidates(pools, request, wanted, [name])
            for end in _completion(predictor, policy, queue, request, wanted, stated, name, found):
                ends[name] = end
    here = [ends[name] for name in default if name in ends]
    if not ends or (default and not here):
        return None
    best = min(ends.values(), key=lambda end: end.end_s)
    usual = min(here, key=lambda end: end.end_s, default=best)
    if best.end_s >= usual.end_s * (1 - WORTHWHILE_SHARE):
        return None
    applied = policy.placement.partition_mode == "apply"
    verb = "sent to" if applied else "earlier in"
    return Elsewhere(
        partition=best.partition,
        applied=applied,
        note=(
            f"{verb} partition {best.partition}: starts in {duration(best.wait_s)}, "
            f"ends {duration(usual.end_s - best.end_s)} earlier"
        ),
    )


def _completion(
    predictor: Predicts,
    policy: SlurmPolicy,
    queue: QueueAhead,
    request: HookRequest,
    wanted: GpuRequest,
    stated: Stated,
    partition: str,
    found: tuple[CandidateNodes, ...],
) -> Iterator[Completion]:
    """The job there, or nothing where it cannot run or be predicted."""
    precision = stated.values.get("precision")
    if precision is not None:
        found = place(found, request, wanted, precision, policy.placement).candidates
    estimated = estimate(predictor, policy, wanted, stated, found)
    runs = [p.total_s for p in estimated.predictions if p.total_s is not None]
    nodes = frozenset(name for c in found for name in c.names)
    wait = queue.wait(wanted.gpus, wanted.gpus_per_node, nodes, partition, gpu_type=wanted.type)
    if runs and wait is not None:
        yield Completion(partition=partition, wait_s=wait, run_s=max(runs))
