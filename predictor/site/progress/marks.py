"""What one line of output says: where a counter stands, and the times beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import patterns as known

TRAINING, EVALUATION, OTHER, UNCLEAR = "training", "evaluation", "other", ""
EPOCH, STEP, SAMPLE, EPISODE = "epoch", "step", "sample", "episode"
LOSS = "loss"  # ends the series of a statement that prints one
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?")
_LETTERS = re.compile(r"[A-Za-z_]+")
_EVALUATES = re.compile(r"(?i)\W{0,6}(?:val|valid|validation|eval|evaluation|test|dev)\b")
_SIGN = re.compile(r"[\w ]+")
_HAS_DIGIT = re.compile(r"\d")
_HAS_WORD = re.compile(r"[A-Za-z/\[]")  # a table of numbers has none
_FEW_S = 5.0  # are right to a tenth, in whole seconds
_MEANT = re.compile(r"(?i)^ *(?:train|test|val|eval)")  # what a ratio in brackets counts


@dataclass(frozen=True, slots=True)
class Count:
    """A counter: where it stands, and of how many."""

    at: float
    total: float | None = None


@dataclass(slots=True, kw_only=True)
class Mark:
    """A line with a counter; nobody changes it once it is read.

    ``epoch`` and ``inner`` (steps or samples, ``unit``) are the counters of the line, which stand
    from ``start`` to ``end`` of it, ``bar`` the groups of a bar; ``series`` groups the lines that
    one statement of the program prints; ``kind`` is what the words before the counter say, and
    ``part`` whether they name a fold or task of several. ``elapsed_s`` since the counter began,
    ``eta_s`` until its end, ``took_s`` without saying since when, ``unit_s`` for one unit of the
    counter. ``clock_s`` is the stamp of the line in seconds, of no particular zone.
    """

    start: int
    end: int
    line: int = 0
    series: str = ""
    kind: str = UNCLEAR
    epoch: Count | None = None
    inner: Count | None = None
    unit: str = STEP
    bar: dict[str, str | None] | None = None
    metrics: bool = False
    part: bool = False
    fraction: bool = False
    of_run: bool = False
    unit_s: float | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    took_s: float | None = None
    clock_s: float | None = None

    @property
    def stands(self) -> tuple[float, float]:
        """Where the counters of the line stand, in order of size."""
        return (self.epoch.at if self.epoch else 0.0, self.inner.at if self.inner else 0.0)


def mark_of(text: str, line: int) -> Mark | None:
    """The mark of a line; None where no counter is in it."""
    if not _HAS_DIGIT.search(text) or not _HAS_WORD.search(text) or known.OPTIONS.search(text):
        return None
    if (mark := _bar(text) or _special(text) or _words(text)) is None:
        return None
    before, mark.line = text[: mark.start], line
    mark.metrics = bool(known.LOSS_WORDS.search(text[mark.end :]))
    mark.series = _series(before, text[mark.start : mark.end], mark)
    if mark.metrics and mark.bar is None:
        mark.series += EVALUATION if _EVALUATES.match(text[mark.end :]) else LOSS
    mark.kind = _kind(before, text, mark)
    mark.part = bool(known.PART.search(before))
    _take_times(text, mark)
    return mark


def row_of(text: str, columns: list[str]) -> str:
    """A row of a table with the names of its ``columns``, which a line before it told."""
    if (head := known.TABLE.match(text)) is None and not columns:
        return text
    cells = known.BETWEEN.split(text.strip(" |"))
    cells = cells if len(cells) > 2 else text.split()
    if head is not None:
        columns[:] = cells
    elif len(cells) == len(columns) and all(map(known.CELL.fullmatch, cells)):
        return ", ".join(f"{name}: {cell}" for name, cell in zip(columns, cells, strict=True))
    return text


def _bar(text: str) -> Mark | None:
    """The last bar of a line: several refreshes may be glued together."""
    match = next(filter(None, (_last(w.found, text) for w in known.BARS if w.has in text)), None)
    if match is None:
        return None
    bar, prefix = match.groupdict(), text[: match.start()]
    found = Mark(start=match.start(), end=match.end(), bar=bar)
    of = (bar.get("of") or "").lower()
    words = {known.UNIT_OF.get(word) for word in re.findall(r"[a-z]+", of)}
    numbered = _last(known.EPOCH_COUNT, prefix)
    named = re.search(r"(?i)\bepochs?\b(?! ?\d)", prefix[-60:]) and not numbered
    told, drawn = numbered and _count(numbered), _count(match)
    same = told and told.total == drawn.total and 0 <= told.at - drawn.at <= 1  # Epoch 5/9: 4/9
    if EPOCH in words or named or same:
        found.epoch = drawn
        return found
    found.inner, found.unit = drawn, next((u for u in (SAMPLE, "token") if u in words), STEP)
    own = prefix[max((m.end() for m in match.re.finditer(prefix)), default=0) :]  # no other bar's
    if numbered and not numbered["frac"]:
        found.epoch = told
    elif ratio := known.RATIO.search(own) or _last(known.BRACKETS, own[-60:]):
        found.epoch = _count(ratio)
    return found


def _special(text: str) -> Mark | None:
    """Counters of a format of its own."""
    for special in known.SPECIALS:
        if match := special.search(text):
            found = Mark(start=match.start(), end=match.end(), inner=_count(match), unit=special.of)
            if "epoch" in (groups := match.groupdict()):
                found.epoch = Count(float(match["epoch"]), float(groups.get("epochs") or 0) or None)
            return found
    return None


def _words(text: str) -> Mark | None:
    """Counters by the words before or after them, and ratios in brackets beside them."""
    epoch, step = known.EPOCH_COUNT.search(text), known.STEP_COUNT.search(text)
    if epoch and not epoch["total"] and "epochs" in text[epoch.start() : epoch.start("at")].lower():
        if step is None or not step["total"]:
            return None  # options: epochs=3 lr=0.1 batch=32
        epoch = None
    if epoch is None and step and not step["total"]:  # iteration 43, step 446/1687
        inside = next((m for m in known.STEP_COUNT.finditer(text) if m["total"]), None)
        epoch, step = (step, inside) if inside else (epoch, step)
    counted = known.COUNTED.search(text)
    if counted is not None and (epoch is None or counted.start() != epoch.start("at")):
        if counted["step"] and (step is None or step["total"] is None):
            step = counted
        elif counted["epoch"] and epoch is None:
            epoch = counted
    taken = [m for m in (epoch, step) if m is not None]
    every = known.BRACKETS.finditer(text)
    ratios = [m for m in every if all(m.start() >= o.end() or o.start() >= m.end() for o in taken)]
    paired = epoch is None and len(ratios) > 1 and ratios[1].start() - ratios[0].end() < 3
    meant = step or epoch or _MEANT.search(text) or known.LOSS_WORDS.search(text)
    if paired and meant and not (step and step["total"]):
        epoch, step = ratios[0], ratios[1]
    elif step is None and ratios and meant:
        step = ratios[0]
    elif step and step["total"] and epoch is None and ratios:  # Train: [ 3/5] Step 50/335
        trains = text[: ratios[0].start()].lower().rstrip(" :").endswith("train")
        epoch = ratios[0] if trains and ratios[0].end() < step.start() else None
    if epoch is None and step is None:
        # ``120/2000 loss ...`` or ``[120] loss ...`` at the begin of a line that has losses.
        bare = known.BARE.search(text) if known.LOSS_WORDS.search(text) else None
        if bare is None or (
            bare["at"] and bare[0][0] not in "Tt" and known.clock_s(text) is not None
        ):
            return None  # 01/02 03:04:05 is a date
        inner = Count(float(bare["alone"])) if bare["alone"] else _count(bare)
        found = Mark(start=bare.start(), end=bare.end())
        found.epoch, found.inner = (None, inner) if bare["epoch"] is None else (inner, None)
        return found
    matches = [match for match in (epoch, step) if match is not None]
    found = Mark(start=min(m.start() for m in matches), end=max(m.end() for m in matches))
    if epoch is not None:
        found.epoch, found.fraction = _count(epoch), bool(epoch.groupdict().get("frac"))
    if step is not None:
        found.inner = _count(step)
        before = epoch is not None and not epoch["total"] and step.start() < epoch.start()
        found.of_run = before and bool(step["total"])
    return found


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(reversed(list(pattern.finditer(text))), None)


def _count(match: re.Match[str]) -> Count:
    groups = match.groupdict()
    at = known.count_of(groups["at"]) + float(groups.get("frac") or 0)
    return Count(at, known.count_of(groups["total"]) if groups.get("total") else None)


def _series(before: str, counted: str, found: Mark) -> str:
    """The words before the counter and its kind: the same for lines of one statement."""
    words = "" if known.CUT in before else " ".join(_LETTERS.findall(_DIGITS.sub("", before))[-6:])
    inner = "" if found.inner is None else found.unit + ("/" if found.inner.total else "")
    epoch = "" if found.epoch is None else EPOCH + ("/" if found.epoch.total else "")
    if found.bar is None:
        named = "".join(_LETTERS.findall(counted)[:1])
        return f"{words}|{named}|{epoch}|{inner}|{_SIGN.sub('', before)[-1:]}|"
    unnamed = "" if words or found.inner is None else found.inner.total
    return f"{words}|{epoch}|{inner}|bar{unnamed}"


def _kind(before: str, text: str, found: Mark) -> str:
    """What the words before the counter, and the unit of a bar, say it counts."""
    words, bar = before[-200:], found.bar
    if bar is not None and known.OTHER_OF.search(bar.get("of") or ""):
        return OTHER
    if known.EVALUATION_WORDS.search(words) and "train" not in before.lower():
        return EVALUATION
    of_epochs = found.epoch is not None and (bar or found.epoch.total or found.inner)
    if of_epochs and not known.EVALUATION_WORDS.search(text[found.start : found.end]):
        return TRAINING
    if bar is not None and known.OTHER_WORDS.search(words) and not known.LOSS_WORDS.search(text):
        return OTHER
    described = bar is not None and "train" in words.lower()
    return TRAINING if described or known.TRAINING_WORDS.search(text) else UNCLEAR


def _take_times(text: str, mark: Mark) -> None:
    """Keep the times beside the counters of a line."""
    bar, own = mark.bar or {}, EPOCH if mark.inner is None else mark.unit
    mark.elapsed_s, mark.eta_s = (
        known.seconds_of(bar.get("elapsed")),
        known.seconds_of(bar.get("eta")),
    )
    mark.unit_s, mark.clock_s = _of_bar(bar), known.clock_s(text)
    for way in known.PER_UNIT if mark.unit_s is None else ():
        if (match := way.search(text)) is None:
            continue
        groups = match.groupdict()
        of = (groups.get("of") or way.of).lower()
        if mark.unit_s is None and own == (known.UNIT_OF.get(of, STEP) if of else own):
            mark.unit_s = way.seconds(match)
        if groups.get("mean") and mark.inner is not None:
            at, total = mark.inner.at, mark.inner.total
            mark.elapsed_s = float(groups["mean"]) * min(at + 1, total or at + 1)  # most from 0
    if mark.elapsed_s is None:
        mark.elapsed_s = known.labelled_s(text, known.ELAPSED)
    if mark.eta_s is None:
        mark.eta_s = known.labelled_s(text, known.ETA)
    said = (mark.eta_s, mark.unit_s if mark.inner else None)
    if not bar and (took_s := known.labelled_s(text, known.TOOK)) not in said:
        mark.took_s = took_s
    if bar and mark.inner is not None and mark.inner.at == mark.inner.total:
        each_s = (mark.eta_s or 0.0) / max(1.0, mark.inner.at)  # Keras says what it took there
        rounds = mark.unit_s is not None and abs(mark.unit_s - each_s) < 1 <= each_s
        if rounds or (mark.unit_s is None and (mark.eta_s or 0.0) >= _FEW_S):
            mark.unit_s = each_s
        mark.eta_s = None


def _of_bar(bar: dict[str, str | None]) -> float | None:
    """What the rate of a bar says one unit takes."""
    above, _, below = (bar.get("of") or "").strip().lower().partition("/")
    rate = float(bar["rate"] or 0) if below and bar.get("rate") != "?" else 0.0
    if rate <= 0:
        return None
    if below.startswith("s") and len(below) <= 3:
        return 1 / rate / {"k": 1e3, "m": 1e6}.get(above[:1] if len(above) > 2 else "", 1.0)
    return rate * {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}.get(above, 1.0)
