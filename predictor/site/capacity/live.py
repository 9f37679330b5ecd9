"""What runs and waits in a scheduler at one moment, and the GPUs there are for it.

Adapters give it: functions without arguments that return a Live, declared in the entry-point group
``precision_time.queue``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..replay import Away, Pool
from ..similar.request import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterJob:
    """A job that has to end before another may start, or to have ``started`` ``delay_s`` ago."""

    job_id: str
    started: bool = False
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a waiting job waits for besides GPUs; ``text`` says it for people.

    It waits for all jobs of ``after``, or for ``any_of`` them, and for ``not_before_s`` (Unix
    seconds). Of its array ``at_most`` tasks run at once. ``never`` says why it
    will not start at all as things are, ``reservation`` names the one it is to run in.
    """

    text: str = ""
    after: tuple[AfterJob, ...] = ()
    any_of: bool = False
    not_before_s: float | None = None
    at_most: int | None = None
    never: str = ""
    reservation: str = ""


NOTHING = Waits()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job that runs, or that waits where ``start_s`` is None.

    Times are Unix seconds, ``limit_s`` the limit it is planned by, None for unlimited; that of
    ``request`` is its user's. There ``gpu_type`` is the name that predictions use or else the
    scheduler's, empty where several would do. Of waiting jobs a higher ``priority`` goes first; one
    that is ``held`` waits for a person. ``array`` is the same for all tasks of an array,
    ``reserved`` tells a running job on GPUs of ``Live.away``.
    """

    job_id: str
    request: JobRequest
    submit_s: float
    start_s: float | None
    limit_s: float | None
    nodes: int = 1
    priority: int = 0
    held: bool = False
    array: str = ""
    reserved: bool = False
    waits: Waits = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The GPU jobs of a cluster at ``at_s`` (Unix seconds), and the GPUs that take jobs by type.

    ``away`` are those of them that reservations hold, in Unix seconds; ``notes`` say what of that
    could not be told.
    """

    scheduler: str
    cluster: str
    at_s: float
    jobs: tuple[LiveJob, ...]
    pools: tuple[Pool, ...]
    away: tuple[Away, ...] = ()
    notes: tuple[str, ...] = ()


def pools_of_nodes(gpus: Iterable[tuple[str, int]]) -> tuple[Pool, ...]:
    """One pool a type, of the type and number of the GPUs of each node.

    GPUs of a node are told where all nodes of the type have as many.
    """
    counts: dict[str, list[int]] = {}
    for gpu_type, count in gpus:
        counts.setdefault(gpu_type, []).append(count)
    return tuple(
        Pool(name=name, gpus=sum(found), gpus_per_node=found[0] if len(set(found)) == 1 else None)
        for name, found in sorted(counts.items())
    )
