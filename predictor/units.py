"""Numbers as people read them; a missing one is a dash."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

MISSING = "-"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
GIB = 2**30
LONG_H = 1000  # from here on minutes are more than anybody knows
# What the ends of ranges are rounded to: of numbers, and of seconds, minutes and hours.
_STEPS = tuple(10.0**power for power in range(-9, 12))
_STEPS_S = (*(step for step in _STEPS if step < MINUTE_S), 60.0, 600.0, 3600.0, 36_000.0)


def short(value: float, step: float = 0.0) -> str:
    """Three significant digits without an exponent: ``1.23``, ``12.3``, ``123``, ``12,345``.

    Two below a tenth, fewer where they are of multiples of ``step``, a power of ten.
    """
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    if 0 < value < 0.1:
        decimals = 1 - floor(log10(value))
    if step:
        value, decimals = round(value / step) * step, min(decimals, max(0, -round(log10(step))))
    return f"{value:,.{decimals}f}"


def duration(seconds: float | None, step_s: float = 0.0) -> str:
    """``340 us``, ``85.2 ms``, ``12.3 s``, ``8 min 20 s``, ``76 h 05 min`` or ``1,200 h``.

    With ``step_s`` the nearest multiple of it.
    """
    if not seconds:
        return MISSING if seconds is None else "0 s"
    seconds = round(seconds / step_s) * step_s if step_s else seconds
    for scale, unit in ((1e6, "us"), (1e3, "ms"), (1.0, "s")):
        if seconds * scale < (999.5 if scale > 1 else MINUTE_S):
            return f"{short(seconds * scale, step_s * scale)} {unit}"
    if round(seconds) < HOUR_S:
        minutes, rest = divmod(round(seconds), MINUTE_S)
        return f"{minutes} min" + f" {rest:02d} s" * (step_s < MINUTE_S)
    hours, minutes = divmod(round(seconds / MINUTE_S), MINUTE_S)
    if hours >= LONG_H or step_s >= HOUR_S:
        return f"{seconds / HOUR_S:,.0f} h"
    return f"{hours} h {minutes:02d} min"


def about(seconds: float) -> str:
    """A rough time: ``about 12.3 s``, ``about 25 min`` or ``about 2 h 10 min``."""
    words, minutes, _ = duration(seconds).partition(" min ")
    return f"about {words}{minutes.rstrip()}"


def span(low: float, high: float, form: Callable[[float, float], str] = duration) -> str:
    """A range of seconds, or with ``short`` of numbers.

    Each end has the digits that the width of the range carries, and two at least.
    """
    steps = _STEPS_S if form is duration else _STEPS
    ends = ((end, min(end, high - low) / 10) for end in (low, high))
    return " .. ".join(
        form(end, max((s for s in steps if s <= ten), default=0.0)) for end, ten in ends
    )


def percent(ratio: float | None) -> str:
    """A ratio in percent."""
    return MISSING if ratio is None or ratio != ratio else f"{100 * ratio:.1f} %"


def gibibytes(value: float) -> str:
    """Bytes as GiB, which GPU memory is sold in."""
    return f"{short(value / GIB)} GiB"


def count(value: float | None) -> str:
    """A count with separators between thousands."""
    return MISSING if value is None else f"{value:,.0f}"
