"""What was measured, as one table, and which goals it keeps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from goals import Goal, percentile

from predictor.cli.console import show_table

LABELS = {
    "none": "no job_submit plugin",
    "empty": "empty Lua hook",
    "bare": "bare round trip",
    "known": "ours, known shape",
    "renamed": "ours, new name",
    "new": "ours, new shape",
    "repeated": "ours, repeated",
}
MAX_P50_MS, MAX_P99_MS, MAX_REPEATED_MS, MIN_RATE_SHARE = 1.0, 3.0, 0.1, 0.55
MIN_ANSWERED = 0.99
INTERVAL = 0.95


@dataclass(frozen=True, slots=True)
class Figures:
    """Samples by kind of hook: what one submit or one round of them gave.

    ``inside_ms`` are times inside the hook at single sbatch commands, ``crowded_ms`` while one
    thread submits without a pause, ``sbatch_ms`` whole commands, run in turns, so that those at
    one index belong together. ``rates`` are jobs/s by number of threads.
    """

    inside_ms: dict[str, list[float]] = field(default_factory=dict)
    crowded_ms: dict[str, list[float]] = field(default_factory=dict)
    sbatch_ms: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    answered: dict[str, list[bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loss:
    """What a hook adds to an sbatch, in ms: the median of pairs and its 95 % interval."""

    median_ms: float
    low_ms: float
    high_ms: float


def loss(samples: Mapping[str, Sequence[float]], kind: str, base: str) -> Loss:
    """Paired differences; the interval is that of order statistics, which assumes no shape."""
    pairs = sorted(a - b for a, b in zip(samples[kind], samples[base], strict=True))
    half = statistics.NormalDist().inv_cdf((1 + INTERVAL) / 2) * len(pairs) ** 0.5 / 2
    low, high = int(len(pairs) / 2 - half), int(len(pairs) / 2 + half)
    return Loss(statistics.median(pairs), pairs[max(low, 0)], pairs[min(high, len(pairs) - 1)])


def goals(figures: Figures) -> list[Goal]:
    """Every goal of the hook."""
    known, repeated = figures.inside_ms["known"], figures.inside_ms["repeated"]
    p50, p99, again = statistics.median(known), percentile(known, 0.99), statistics.median(repeated)
    added, spread = loss(figures.sbatch_ms, "known", "empty"), _spread(figures.sbatch_ms["empty"])
    found = [
        Goal(f"inside the hook, p50 <= {MAX_P50_MS:g} ms", f"{p50:.2f} ms", p50 <= MAX_P50_MS),
        Goal(f"inside the hook, p99 <= {MAX_P99_MS:g} ms", f"{p99:.2f} ms", p99 <= MAX_P99_MS),
        Goal(
            f"repeated, p50 <= {MAX_REPEATED_MS:g} ms", f"{again:.3f} ms", again <= MAX_REPEATED_MS
        ),
        Goal(
            "sbatch, loss within the spread of the empty hook",
            f"{added.median_ms:+.2f} ms of {spread:.2f} ms",
            added.median_ms <= spread,
        ),
    ]
    for threads, rates in sorted(figures.rates.items()):
        share = statistics.median(rates["known"]) / statistics.median(rates["empty"])
        name = f"API, {threads} thread{'s' * (threads > 1)}, >= {MIN_RATE_SHARE:.0%} of empty"
        found.append(Goal(name, f"{share:.0%}", share >= MIN_RATE_SHARE))
    every = [a for kind in ("known", "renamed", "new", "repeated") for a in figures.answered[kind]]
    share = sum(every) / len(every)
    found.append(
        Goal(
            f"answered, >= {MIN_ANSWERED:.0%}",
            f"{share:.2%} of {len(every)}",
            share >= MIN_ANSWERED,
        )
    )
    return found


def show(figures: Figures) -> None:
    """A line a hook: times in ms, rates in jobs/s, ratios to the empty hook and the bare trip."""
    threads = sorted(figures.rates)
    head = ["", "inside p50", "p99", "of bare", "crowded p50", "p99", "sbatch", "of empty"]
    for count in threads:
        head += [f"API x{count}", "of empty"]
    show_table(head, [_row(figures, kind, threads) for kind in LABELS])
    print()


def _row(figures: Figures, kind: str, threads: Sequence[int]) -> list[str]:
    cells = [LABELS[kind]]
    inside, bare = figures.inside_ms.get(kind), figures.inside_ms["bare"]
    cells += _times(inside)
    cells.append(f"{statistics.median(inside) / statistics.median(bare):.2f}" if inside else "")
    cells += _times(figures.crowded_ms.get(kind))
    cells += _ratio(figures.sbatch_ms, kind, "{:.2f}")
    for count in threads:
        cells += _ratio(figures.rates[count], kind, "{:.0f}")
    return cells


def _times(samples: Sequence[float] | None) -> list[str]:
    if not samples:
        return ["", ""]
    return [f"{statistics.median(samples):.3f}", f"{percentile(samples, 0.99):.3f}"]


def _ratio(samples: Mapping[str, Sequence[float]], kind: str, form: str) -> list[str]:
    if kind not in samples:
        return ["", ""]
    median = statistics.median(samples[kind])
    return [form.format(median), f"{median / statistics.median(samples['empty']):.0%}"]


def _spread(samples: Sequence[float]) -> float:
    """Between the quartiles."""
    low, _, high = statistics.quantiles(samples, n=4)
    return high - low
