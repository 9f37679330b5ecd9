"""What interruptions add to a run: restarts, and work lost since the last checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import JobError

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """Interruptions at random (Poisson), such as those of spot nodes.

    ``per_day`` counts those of ONE node, any of which stops the whole job. A restart takes
    ``restart_s``; a checkpoint is written every ``every_s`` of work, None for never, and takes
    ``write_s``. Raises JobError for values that are invalid.
    """

    per_day: float
    restart_s: float = 0.0
    every_s: float | None = None
    write_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("per_day", "restart_s", "write_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise JobError(_OPTIONS[name], value, "expected a number of at least 0")
        if self.every_s is not None and not (math.isfinite(self.every_s) and self.every_s > 0):
            raise JobError("checkpoint_every", self.every_s, "expected a positive time")

    def expected_s(self, work_s: float, nodes: int) -> float:
        """Expected seconds from start to end of ``work_s`` of work on ``nodes`` nodes.

        Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps"
        (FGCS 22, 2006), which to first order is Young's (CACM 17, 1974): each interruption costs a
        restart and half an interval. Raises JobError where a run would hardly ever end.
        """
        every_s, write_s = work_s, 0.0
        if self.every_s is not None and self.every_s < work_s:
            every_s, write_s = self.every_s, self.write_s
        rate = self.per_day * nodes / DAY_S
        if not rate or not work_s:
            return work_s * (1 + write_s / every_s) if every_s else work_s
        try:
            segment_s = math.exp(self.restart_s * rate) * math.expm1((every_s + write_s) * rate)
        except OverflowError:
            segment_s = math.inf
        expected_s = segment_s / rate * (work_s / every_s)
        if expected_s > ENDLESS * work_s:
            raise JobError(
                "interruptions_per_day",
                self.per_day,
                f"{nodes} nodes with so many would take over {ENDLESS} times as long: "
                "checkpoint more often",
            )
        return expected_s

    def expected(self, work_s: float, nodes: int) -> float:
        """Interruptions to expect until ``work_s`` of work is done."""
        return self.expected_s(work_s, nodes) * self.per_day * nodes / DAY_S


# A run this many times longer than its work is a mistake of the input, not a plan.
ENDLESS = 1000
_OPTIONS = {
    "per_day": "interruptions_per_day",
    "restart_s": "restart",
    "write_s": "checkpoint_write",
}
