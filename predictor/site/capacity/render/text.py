"""How numbers, moments and names are written in every form of a report."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from ....units import MISSING, percent
from ..report_data import Range, ReportPeriod

LONGEST_NAME = 80
# What templates may call.
WRITERS = (
    *("amount", "counted", "day", "duration_span", "moment", "percent", "period", "rough", "share"),
    *("shown", "span", "without_password"),
)
_CREDENTIALS = re.compile(r"://[^/]*@")
# Characters that would move, hide or turn round what follows them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def shown(name: str, longest: int = LONGEST_NAME) -> str:
    """A name as it is safe to read: control and direction marks spelt out, the middle cut out."""
    text = _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", name[: 4 * longest])
    if len(name) <= longest and len(text) <= longest:
        return text
    tail = "" if len(name) > 4 * longest else text[-(longest // 4) :]
    return text[: longest - len(tail) - 1] + "…" + tail


def amount(value: float | None) -> str:
    """``0.42``, ``4.2``, ``42`` or ``4,200``; as exact as a reader needs."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 9.95 or size == 0 else 1 if size >= 0.995 else 2
    return f"{value:,.{decimals}f}"


def span(found: Range | None) -> str:
    """``42 (30 to 61)``: median and interval; ``42`` where it is no estimate."""
    if found is None:
        return MISSING
    if found.low == found.high:
        return amount(found.median)
    return f"{amount(found.median)} ({amount(found.low)} to {amount(found.high)})"


def rough(seconds: float | None) -> str:
    """A duration in its largest unit, with the next one where that matters: ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0:
        return f"-{rough(-seconds)}"
    minutes = round(seconds / 60)
    if minutes < 1:
        return "0 min" if seconds < 1 else "under 1 min"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days >= 10:
        return f"{round(seconds / 86400):,} d"
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"


def duration_span(found: Range | None) -> str:
    """``3 h (2 h to 1 d 4 h)``."""
    if found is None:
        return MISSING
    return f"{rough(found.median)} ({rough(found.low)} to {rough(found.high)})"


def moment(unix_s: float | None) -> str:
    """``2026-11-16 08:00`` in UTC."""
    return MISSING if unix_s is None else _utc(unix_s).strftime("%Y-%m-%d %H:%M")


def day(unix_s: float | None) -> str:
    """``2026-11-16`` in UTC."""
    return MISSING if unix_s is None else _utc(unix_s).strftime("%Y-%m-%d")


def iso(unix_s: float) -> str:
    """``2026-11-16T08:00:00Z``."""
    return _utc(unix_s).strftime("%Y-%m-%dT%H:%M:%SZ")


def period(found: ReportPeriod) -> str:
    """``2026-11-02 to 2026-11-16 (14 d)``; with hours where it does not begin at midnight."""
    whole = found.since_s % 86400 == 0 and found.until_s % 86400 == 0
    form = day if whole else moment
    length = rough(found.until_s - found.since_s)
    return f"{form(found.since_s)} to {form(found.until_s)} UTC ({length})"


def share(part: float, whole: float | None) -> str:
    """A part in percent of the whole."""
    return percent(part / whole) if whole else MISSING


def without_password(url: str) -> str:
    """A URL without its user and password."""
    return _CREDENTIALS.sub("://", url)


def counted(number: int, noun: str) -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _utc(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
