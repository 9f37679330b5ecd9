"""What a count of hits among runs says of their true share."""

from __future__ import annotations

from math import sqrt

Z = 1.96  # of a 95 % interval


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of the share (Wilson, J. Am. Stat. Assoc. 22 (1927) 209); ``runs`` > 0."""
    share, z2 = hits / runs, Z * Z / runs
    middle = share + z2 / 2
    half = sqrt(z2 * (share * (1 - share) + z2 / 4))
    return max(0.0, (middle - half) / (1 + z2)), min(1.0, (middle + half) / (1 + z2))
