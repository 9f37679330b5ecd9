"""Cells of accounting tables as values: times, durations, memory, and what a TRES text asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache

from profiles.gpus import known_gpu, spelling

# Limits at or above it say that there is none: Slurm's backfill plans such a job as one of a year.
UNLIMITED_S = 365 * 86_400.0
MOST_GPUS = 1_000_000  # that one job can have had
# Unix times past these are of a finer unit: 1e11 s is the year 5138, 1e11 ms is 1973.
_FINER = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
_DURATION = re.compile(r"(?:(\d+)(?:-| days?,? ))?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_UNIT = r"(\d+(?:\.\d+)?) ?([dhms])"  # 7h, 1d, 90min, 1h30m, as Kubernetes and people write
_NAMED_UNITS = re.compile(
    rf"(?:{_UNIT}(?:ays?|rs?|ours?|ins?|inutes?|ecs?|econds?)?[, ]*)+", re.ASCII | re.IGNORECASE
)
_DAYS = re.compile(r"(\d+)-(\d+)(?::(\d+))?", re.ASCII)  # Slurm: days-hours, days-hours:minutes
# Other times that can be read in one way only.
_FORMS = (
    *("%Y-%m-%d %I:%M:%S %p", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%a %b %d %H:%M:%S %Y"),
    *("%b %d %H:%M:%S %Y", "%b %d %H:%M %Y", "%d-%b-%Y %H:%M:%S", "%d.%m.%Y %H:%M:%S"),
    "%d.%m.%Y %H:%M",
)
# With slashes a day and a month cannot be distinguished, but where one of a column is above 12.
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\b", re.ASCII)
_NAMED_UTC = re.compile(r"\s*(?:UTC|GMT)$")
_OF_LSF = re.compile(r" [LEX]$")  # how it knows an end
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)i?B?([cn]?)", re.ASCII | re.IGNORECASE)
_POWERS = {letter: 1024**power for power, letter in enumerate("KMGTP", start=1)}
# gpu:4, gpu:a100:2(S:0-1), gres/gpu=2, gres/gpu:a100=2, gres:gpu:a100:2
_GPU = re.compile(
    r"(?:gres[/:])?gpus?(?:[:/](?P<type>[^:=,(]*[^:=,\d(][^:=,(]*))?(?:[:=](?P<count>\d+))?(?:\(.*)?"
)
_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
MIB = 2.0**20  # what Slurm counts memory in
_CACHED = 2**14


@dataclass(frozen=True, slots=True)
class AskedGpus:
    """GPUs of a cell; ``type`` is None where none, or more than one, is named."""

    count: int
    type: str | None = None


def moment_s(text: str, zone: tzinfo | None, *, days_first: bool | None = None) -> float:
    """Unix seconds of a number (s, ms, us or ns), an ISO 8601 time or one of a few other forms.

    ``days_first`` says whether 04/05/2026 is in May, None where that is not known. A time that
    names no zone is in ``zone``, None for the zone of this machine. Raises ValueError.
    """
    try:
        number = float(text)
    except ValueError:
        if days_first is not None:
            form = r"\3-\2-\1" if days_first else r"\3-\1-\2"
            text = _SLASHES.sub(form, text)
        text = _OF_LSF.sub("", text)
        for form in ("", *_FORMS):
            with suppress(ValueError):
                iso = _NAMED_UTC.sub("+00:00", text).replace("/", "-")
                found = datetime.strptime(text, form) if form else datetime.fromisoformat(iso)
                break
        else:
            raise
        if found.tzinfo is None and zone is not None:
            found = found.replace(tzinfo=zone)
        return found.timestamp()
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number / next((scale for least, scale in _FINER if number >= least), 1.0)


def days_first(texts: Iterable[str]) -> bool | None:
    """Whether dates with slashes begin with the day; None where none of them tells, or both."""
    found = [match for text in texts if (match := _SLASHES.match(text))]
    told = {True for match in found if int(match[1]) > 12}
    told |= {False for match in found if int(match[2]) > 12}
    return told.pop() if len(told) == 1 else None


@lru_cache(_CACHED)
def duration_s(text: str, scale: float) -> float | None:
    """Seconds of ``[D-]HH:MM:SS``, ``MM:SS``, ``D-HH[:MM]``, ``1d 7h`` or a number x ``scale``."""
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (*(int(part or 0) for part in match.groups()), 0)
    elif match := _DURATION.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    elif _NAMED_UNITS.fullmatch(text):
        parts = re.findall(_UNIT, text.lower())
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    else:
        number = finite(text)
        return None if number is None or number < 0 else number * scale
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def limit_s(text: str, scale: float) -> float | None:
    """A time limit in seconds; None where it is unlimited, or no cell of a limit."""
    found = duration_s(text, scale)
    return found if found is not None and 0 < found < UNLIMITED_S else None


@lru_cache(_CACHED)
def memory_bytes(text: str, scale: float, cpus: int | None, nodes: int) -> int | None:
    """Bytes of ``32000``, ``32G``, ``4Gc`` (a CPU) or ``4Gn`` (a node); None for another text."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        return None
    number, letter, each = match.groups()
    times = {"c": cpus or 1, "n": nodes or 1}.get(each.lower(), 1)
    found = float(number) * (_POWERS[letter.upper()] if letter else scale) * times
    return round(found) or None


@lru_cache(_CACHED)
def whole(text: str) -> int | None:
    """A whole number, ``4`` or ``4.0``; None for another text."""
    number = finite(text)
    return None if number is None or number < 0 or number != int(number) else int(number)


@lru_cache(_CACHED)
def asked_gpus(text: str) -> AskedGpus | None:
    """GPUs of a number, or of a text of GRES or TRES; None where it is neither.

    A list holds the total (``gres/gpu=4``), the types (``gres/gpu:a100=4``), or both.
    """
    number = finite(text)
    if number is not None:
        return AskedGpus(math.ceil(number)) if 0 <= number <= MOST_GPUS else None
    if not re.search(r"[:=/]|^gpu", text):
        return None
    total, types = 0, dict[str, int]()
    for part in text.split(","):
        if match := _GPU.fullmatch(part.strip()):
            count = int(match["count"] or 1)
            if match["type"]:
                types[match["type"]] = types.get(match["type"], 0) + count
            else:
                total = max(total, count)
    only = next(iter(types)) if len(types) == 1 else None
    return AskedGpus(max(total, sum(types.values())), only)


@lru_cache(_CACHED)
def gpu_type(text: str) -> str | None:
    """The GPU that predictions use for a name or alias; an unknown one in lower case."""
    gpu = known_gpu(text)
    return (spelling(text) or None) if gpu is None else gpu.name


@lru_cache(_CACHED)
def tres_value(text: str, name: str) -> str:
    """What a TRES list such as ``cpu=4,mem=16G,gres/gpu=1`` says of a name; else empty."""
    found = (part.partition("=") for part in text.split(","))
    return next((value for key, _, value in found if key.strip() == name), "")


def finite(text: str) -> float | None:
    """A number; None for another text, an infinity too."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
