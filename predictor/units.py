"""Numbers as people read them; a missing one is a dash."""

from __future__ import annotations

MISSING = "-"
MINUTE_S, HOUR_S = 60, 3600
LONG_H = 1000  # from here on minutes are more than anybody knows


def short(value: float) -> str:
    """Three significant digits without an exponent: ``1.23``, ``12.3``, ``123``, ``12,345``."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def duration(seconds: float | None) -> str:
    """``340 us``, ``85.2 ms``, ``12.3 s``, ``8 min 20 s``, ``76 h 05 min`` or ``1,200 h``."""
    if not seconds:
        return MISSING if seconds is None else "0 s"
    for scale, unit in ((1e6, "us"), (1e3, "ms"), (1.0, "s")):
        if seconds * scale < (999.5 if scale > 1 else MINUTE_S):
            return f"{short(seconds * scale)} {unit}"
    if round(seconds) < HOUR_S:
        minutes, rest = divmod(round(seconds), MINUTE_S)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / MINUTE_S), MINUTE_S)
    return f"{hours} h {minutes:02d} min" if hours < LONG_H else f"{seconds / HOUR_S:,.0f} h"


def about(seconds: float) -> str:
    """A rough time: ``about 12.3 s``, ``about 25 min`` or ``about 2 h 10 min``."""
    words, minutes, _ = duration(seconds).partition(" min ")
    return f"about {words}{minutes.rstrip()}"


def span(low: float, high: float) -> str:
    """A range of seconds."""
    return f"{duration(low)} .. {duration(high)}"


def percent(ratio: float | None) -> str:
    """A ratio in percent."""
    return MISSING if ratio is None or ratio != ratio else f"{100 * ratio:.1f} %"


def gibibytes(value: float) -> str:
    """Bytes as GiB, which GPU memory is sold in."""
    return f"{short(value / 2**30)} GiB"


def count(value: float | None) -> str:
    """A count with separators between thousands."""
    return MISSING if value is None else f"{value:,.0f}"
