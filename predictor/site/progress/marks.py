"""What one line of output says: where a counter stands, and the times beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from .patterns import Patterns, count_of, patterns, seconds_of

TRAINING, EVALUATION, OTHER, UNCLEAR = "training", "evaluation", "other", ""
EPOCH, STEP, SAMPLE = "epoch", "step", "sample"
LOSS = "loss"  # ends the series of a statement that prints one
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
_LETTERS = re.compile(r"[A-Za-z_]+")
_SIGN = re.compile(r"[\w ]+")
_HAS_DIGIT = re.compile(r"\d")
_MEANT = re.compile(r"(?i)^ *(?:train|test|val|eval)")  # what a ratio in brackets counts
_STAMP_CHARS = 90  # a stamp stands near the start of a line
_PLAIN_YEAR = 2000  # of stamps that name none; it has a 29 February


@dataclass(frozen=True, slots=True)
class Count:
    """A counter: where it stands, and of how many."""

    at: float
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line with a counter.

    ``epoch`` and ``inner`` (steps or samples, ``unit``) are the counters of the line; ``series``
    groups the lines that one statement of the program prints; ``kind`` is what the words before
    the counter say. ``elapsed_s`` since the counter began, ``eta_s`` until its end, ``took_s``
    without saying since when, ``unit_s`` for one unit of the counter. ``clock_s`` is the stamp of
    the line in seconds, of no particular zone.
    """

    line: int
    series: str
    kind: str
    epoch: Count | None = None
    inner: Count | None = None
    unit: str = STEP
    bar: bool = False
    metrics: bool = False
    fraction: bool = False
    of_run: bool = False
    eta_of_run: bool = False
    unit_s: float | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    took_s: float | None = None
    clock_s: float | None = None

    @property
    def outer(self) -> bool:
        """Whether it is a bar of epochs."""
        return self.bar and self.epoch is not None and self.inner is None

    @property
    def stands(self) -> tuple[float, float]:
        """Where the counters of the line stand, in order of size."""
        return (self.epoch.at if self.epoch else 0.0, self.inner.at if self.inner else 0.0)


@dataclass(slots=True)
class _Found:
    """The counters of a line while it is read; ``start`` is where the first begins."""

    start: int
    end: int
    epoch: Count | None = None
    inner: Count | None = None
    unit: str = STEP
    fraction: bool = False
    bar: re.Match[str] | None = None
    of_run: bool = False
    eta_of_run: bool = False


def mark_of(text: str, line: int) -> Mark | None:
    """The mark of a line; None where no counter is in it."""
    if not _HAS_DIGIT.search(text):
        return None
    known = patterns()
    found = _bar(text, known) or _special(text, known) or _words(text, known)
    if found is None:
        return None
    before, after = text[: found.start], text[found.end :]
    metrics = bool(known.loss.search(after))
    return Mark(
        line=line,
        series=_series(before, text[found.start : found.end], found)
        + (LOSS if metrics and found.bar is None else ""),
        kind=_kind(before, text, found, known),
        epoch=found.epoch,
        inner=found.inner,
        unit=found.unit,
        bar=found.bar is not None,
        metrics=metrics,
        fraction=found.fraction,
        of_run=found.of_run,
        eta_of_run=found.eta_of_run,
        **_times(text, found, known),
    )


def clock_s(text: str) -> float | None:
    """The stamp near the start of a line in seconds; None without one."""
    if ":" not in text:
        return None
    known, head = patterns(), text[:_STAMP_CHARS]
    for number, stamp in enumerate(known.stamps):
        if match := stamp.search(head if number else text):  # a whole date may stand anywhere
            found = {name: value for name, value in match.groupdict().items() if value}
            if "ms" in found:
                return float(found["ms"]) / 1000
            return _moment(found, known)
    return None


def _moment(found: dict[str, str], known: Patterns) -> float | None:
    named = found.get("mon", "Jan")
    month = found.get("mo") or str(1 + (known.months.index(named) if named in known.months else 0))
    hour, seconds = int(found["h"]), float(found["s"].replace(",", "."))
    if "pm" in found:
        hour = hour % 12 + 12 * (found["pm"] == "PM")
    day = (int(found.get("y", _PLAIN_YEAR)), int(month), int(found.get("d", 1)))
    if day[1] > 12:  # day first
        day = (day[0], day[2], day[1])
    try:
        return (
            datetime(*day, hour, int(found["mi"])) - datetime(1970, 1, 1)
        ).total_seconds() + seconds
    except ValueError:
        return None


def _bar(text: str, known: Patterns) -> _Found | None:
    """The last bar of a line: several refreshes may be glued together."""
    for pattern in known.bars:
        match = _last(pattern, text)
        if match is None:
            continue
        groups = match.groupdict()
        total = groups.get("total")
        found = _Found(match.start(), match.end(), bar=match)
        count = Count(count_of(groups["at"]), None if total is None else count_of(total))
        of = (groups.get("of") or "").strip().lower()
        words = {known.unit_of.get(word, "") for word in re.findall(r"[a-z]+", of)}
        prefix = text[: match.start()]
        numbered = _last(known.epoch, prefix)
        if EPOCH in words or (not numbered and re.search(r"(?i)\bepochs?\b(?! ?\d)", prefix[-60:])):
            found.epoch = count
            return found
        found.inner = count
        found.unit = next((unit for unit in (SAMPLE, "token") if unit in words), STEP)
        if numbered and not numbered["frac"]:
            found.epoch = _count(numbered)
        else:
            for special in known.specials:
                if special.has in text and (match := special.found.search(text)):
                    groups = match.groupdict()
                    if groups.get("epochs") and "at" not in groups:
                        found.epoch = Count(float(groups["epoch"]), float(groups["epochs"]))
        if found.epoch is None and (ratio := _last(known.brackets, prefix[-60:])):
            found.epoch = _count(ratio)
        return found
    return None


def _special(text: str, known: Patterns) -> _Found | None:
    for special in known.specials:
        if special.has in text and (match := special.found.search(text)):
            groups = match.groupdict()
            if "at" not in groups:
                continue
            found = _Found(match.start(), match.end(), unit=special.unit)
            found.inner = _count(match)
            if groups.get("epoch"):
                epochs = groups.get("epochs")
                found.epoch = Count(float(groups["epoch"]), float(epochs) if epochs else None)
            found.of_run, found.eta_of_run = special.of_run, special.eta_of_run
            return found
    return None


def _words(text: str, known: Patterns) -> _Found | None:
    """Counters by the words before or after them, and ratios in brackets beside them."""
    epoch, step = known.epoch.search(text), known.step.search(text)
    if epoch and not epoch["total"] and "epochs" in text[epoch.start() : epoch.start("at")].lower():
        if step is None or not step["total"]:
            return None  # options: epochs=3 lr=0.1 batch=32
        epoch = None
    counted = known.counted.search(text)
    if counted is not None:
        if counted["step"] and (step is None or step["total"] is None):
            step = counted
        elif counted["epoch"] and epoch is None:
            epoch = counted
    taken = [m for m in (epoch, step) if m is not None]
    ratios = [
        m
        for m in known.brackets.finditer(text)
        if all(m.start() >= o.end() or o.start() >= m.end() for o in taken)
    ]
    if step is None and ratios and (epoch or _MEANT.search(text) or known.loss.search(text)):
        if epoch is None and len(ratios) > 1 and ratios[1].start() - ratios[0].end() < 3:
            epoch, step = ratios[0], ratios[1]
        else:
            step = ratios[0]
    if epoch is None and step is None:
        return _bare(text, known)
    matches = [match for match in (epoch, step) if match is not None]
    found = _Found(min(m.start() for m in matches), max(m.end() for m in matches))
    if epoch is not None:
        found.fraction = bool(epoch.groupdict().get("frac"))
        found.epoch = _count(epoch)
    if step is not None:
        found.inner = _count(step)
        found.of_run = epoch is not None and step.start() < epoch.start() and bool(step["total"])
    return found


def _bare(text: str, known: Patterns) -> _Found | None:
    """``120/2000 loss ...`` or ``[120] loss ...`` at the begin of a line that has losses."""
    match = known.bare.search(text) if known.loss.search(text) else None
    if match is None or (match["at"] and match[0][0] not in "Tt" and clock_s(text) is not None):
        return None  # 01/02 03:04:05 is a date
    inner = Count(float(match["alone"])) if match["alone"] else _count(match)
    return _Found(match.start(), match.end(), inner=inner)


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(reversed(list(pattern.finditer(text))), None)


def _count(match: re.Match[str]) -> Count:
    groups = match.groupdict()
    at = count_of(groups["at"]) + float(groups.get("frac") or 0)
    total = groups.get("total")
    return Count(at, None if total is None else count_of(total))


def _series(before: str, counted: str, found: _Found) -> str:
    """The words before the counter and its kind: the same for lines of one statement."""
    words = " ".join(_LETTERS.findall(_DIGITS.sub("", before))[-6:])
    inner = "" if found.inner is None else found.unit + ("/" if found.inner.total else "")
    epoch = "" if found.epoch is None else EPOCH
    if found.bar is None:
        named = "".join(_LETTERS.findall(counted)[:1])
        return f"{words}|{named}|{epoch}|{inner}|{_SIGN.sub('', before)[-1:]}|"
    unnamed = "" if words or found.inner is None else found.inner.total
    return f"{words}|{epoch}|{inner}|bar{unnamed}"


def _kind(before: str, text: str, found: _Found, known: Patterns) -> str:
    """What the words before the counter, and the unit of a bar, say it counts."""
    words = before[-120:]
    if found.bar is not None and known.other_of.search(found.bar.groupdict().get("of") or ""):
        return OTHER
    if known.evaluation.search(words) and "train" not in words.lower():
        return EVALUATION
    if found.epoch is not None and (found.bar is not None or found.epoch.total):
        return TRAINING
    if found.bar is not None and known.other.search(words) and not known.loss.search(text):
        return OTHER
    described = found.bar is not None and "train" in words.lower()
    return TRAINING if described or known.training.search(text) else UNCLEAR


def _times(text: str, found: _Found, known: Patterns) -> dict[str, float | None]:
    """The times beside the counters of a line, by their names in Mark."""
    bar = {} if found.bar is None else found.bar.groupdict()
    own = EPOCH if found.inner is None else found.unit
    since_s, unit_s = _duration(bar.get("elapsed")), _of_bar(bar)
    for way in known.per_unit:
        match = way.found.search(text)
        groups = {} if match is None else match.groupdict()
        of = (groups.get("of") or "").lower()
        if (
            match is not None
            and unit_s is None
            and own == (known.unit_of.get(of, STEP) if of else own)
        ):
            unit_s = way.seconds(match)
        if groups.get("mean") and found.inner is not None:
            since_s = float(groups["mean"]) * (found.inner.at + 1)
    eta_s = _duration(bar.get("eta"))
    return {
        "unit_s": unit_s,
        "elapsed_s": _labelled(text, known.elapsed) if since_s is None else since_s,
        "eta_s": _labelled(text, known.eta) if eta_s is None else eta_s,
        "took_s": None if bar else _labelled(text, known.took),
        "clock_s": clock_s(text),
    }


def _of_bar(bar: dict[str, str | None]) -> float | None:
    """What the rate of a bar says one unit takes."""
    above, _, below = (bar.get("of") or "").strip().lower().partition("/")
    rate = float(bar["rate"] or 0) if below and bar.get("rate") != "?" else 0.0
    if rate <= 0:
        return None
    if below.startswith("s") and len(below) <= 3:
        return 1 / rate / {"k": 1e3, "m": 1e6}.get(above[:1] if len(above) > 2 else "", 1.0)
    return rate * {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}.get(above, 1.0)


def elapsed_s(text: str) -> float | None:
    """The time since a begin that a line names; None where it names none."""
    return _labelled(text, patterns().elapsed)


def _labelled(text: str, ways: tuple[re.Pattern[str], ...]) -> float | None:
    matches = (way.search(text) for way in ways)
    return next((_duration(match["v"]) for match in matches if match is not None), None)


def _duration(text: str | None) -> float | None:
    if not text or not text[0].isdigit():
        return None
    try:
        return seconds_of(text)
    except ValueError:
        return None
