"""How slow a run is among the earlier ones like it: sequential ranks, whatever the distribution.

The rank of a run among those of its own user and configuration so far. While nothing changes, the
ranks of exchangeable runs are independent and uniform, whatever their distribution and however
often each configuration runs (Barndorff-Nielsen, Skand. Aktuarietidskr. 1963; McDonald, Naval
Research Logistics 37 (1990) 627). So the false alarms of a chart of them can be chosen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable
from math import sqrt

# Earlier similar runs before a run counts: fewer tell little of where it should be.
MIN_EARLIER = 4


class SequentialRanks:
    """Scores of mean 0 and variance 1, positive for slow."""

    def __init__(self) -> None:
        self._sorted: defaultdict[Hashable, list[float]] = defaultdict(list)

    def score(self, like: Hashable, value: float, *, lower_bound: bool = False) -> float | None:
        """The score of the next run, None where too few are like it.

        A lower bound counts where it is above the median of its like, and then as if it were the
        truth, which is on the safe side; one below says nothing and is forgotten.
        """
        seen = self._sorted[like]
        enough = len(seen) >= MIN_EARLIER
        if lower_bound and (not enough or value < seen[len(seen) // 2]):
            return None
        found = _score(seen, value) if enough else None
        insort(seen, value)
        return found


def _score(seen: list[float], value: float) -> float:
    """The mid-rank among those seen, standardised as the uniform distribution on all ranks."""
    total = len(seen) + 1
    rank = (bisect_left(seen, value) + bisect_right(seen, value)) / 2 + 1
    return (rank - (total + 1) / 2) / sqrt((total * total - 1) / 12)
