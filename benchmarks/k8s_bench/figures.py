"""What was measured, as one table, and which goals it keeps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from goals import Goal, percentile

from predictor.cli.console import show_table

LABELS = {
    "silent": "do nothing, no scores",
    "nothing": "do nothing, zeros",
    "known": "ours, known shape",
    "refused": "ours, half refused",
    "writing": "ours, writing back",
    "new": "ours, new shape",
}
BASE, GOAL = "nothing", "known"
MIN_SHARE, MAX_P99_MS, MAX_GROWTH = 0.8, 10.0, 0.05
LARGEST = 5000
TURN = 25  # pairs of one kind at a time
Setting = tuple[int, bool]  # number of names, whether over TLS


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of the extender over a number of calls, the first half of them to settle.

    ``shape_bytes`` is what each job shape never asked before added, while its caches fill.
    """

    calls: int
    start_bytes: int
    end_bytes: int
    shape_bytes: float

    @property
    def growth(self) -> float:
        """As a share of the start."""
        return self.end_bytes / self.start_bytes - 1


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each filter and prioritize pair, by setting and kind; ``memory`` of a long run."""

    pairs_s: dict[Setting, dict[str, list[float]]] = field(default_factory=dict)
    memory: list[Memory] = field(default_factory=list)


def rate(pairs_s: Sequence[float]) -> float:
    """Calls a second of one connection, two to a pair: the median of the turns."""
    turns = [pairs_s[i : i + TURN] for i in range(0, len(pairs_s), TURN)]
    return statistics.median(2 * len(turn) / sum(turn) for turn in turns)


def goals(figures: Figures) -> list[Goal]:
    """Every goal of the extender."""
    found = []
    for (names, tls), kinds in sorted(figures.pairs_s.items()):
        where = f"{names} names, {'TLS' if tls else 'plain'}"
        share = rate(kinds[GOAL]) / rate(kinds[BASE])
        found.append(
            Goal(
                f"{where}: calls/s >= {MIN_SHARE:.0%} of do nothing",
                f"{share:.0%}",
                share >= MIN_SHARE,
            )
        )
        if names == LARGEST:
            p99_ms = 1e3 * percentile(kinds[GOAL], 0.99)
            found.append(
                Goal(
                    f"{where}: p99 of a pair < {MAX_P99_MS:g} ms",
                    f"{p99_ms:.2f} ms",
                    p99_ms < MAX_P99_MS,
                )
            )
    found += [
        Goal(
            f"memory grows <= {MAX_GROWTH:.0%} in the last half of {m.calls} calls",
            f"{m.growth:+.1%}, {m.start_bytes / 2**20:.0f} to {m.end_bytes / 2**20:.0f} MiB",
            m.growth <= MAX_GROWTH,
        )
        for m in figures.memory
    ]
    return found


def show(figures: Figures) -> None:
    """Print a line for each setting and kind: calls/s, shares of the bases', latency of a pair."""
    head = ("names", "", "", "calls/s", "of zeros", "of no scores", "pair p50 (ms)", "p99 (ms)")
    rows = [
        [f"{names}", "TLS" if tls else "plain", LABELS[kind], *_cells(kinds, kind)]
        for (names, tls), kinds in sorted(figures.pairs_s.items())
        for kind in LABELS
        if kind in kinds
    ]
    show_table(head, rows, left=(1, 2))
    print()


def _cells(kinds: dict[str, list[float]], kind: str) -> list[str]:
    own = kinds[kind]
    shares = [f"{rate(own) / rate(kinds[base]):.0%}" for base in (BASE, "silent")]
    times = (statistics.median(own), percentile(own, 0.99))
    return [f"{rate(own):.0f}", *shares, *(f"{1e3 * each:.3f}" for each in times)]
