"""Where one counter of a training stood, line after line, and seconds a unit by that."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, starmap
from statistics import mean, median

from .marks import EPOCH, Count, Mark

CHUNKS = 40  # of a stretch; a pause (validation, a checkpoint) falls into few of them
LEAST_STEPS_OF_CLOCK = 4.0  # of a clock's resolution in what may be measured by it
STEPS_OF_CLOCK = 20.0  # of a stretch: its ends are off by a step at most
RECENT = 200
LEAST_OF_PACE, _LEAST_BEFORE = 6, 3  # stretches after a change of pace, and before it
_SHARES, _DRIFTS = ((7 / 8, 3 / 4, *(0.5**n for n in range(1, 9))), 0.15)  # what a change costs
_APART = 1.03  # paces nearer than that are one
# A job that was stopped and went on at the same count has an interval that is none of its work.
MOST_OUTAGES, LEAST_WITH_OUTAGES, LEAST_OF_SESSION = 5, 10, 3
_ALIKE, _PAUSED = 1.25, 1.5  # times the shortest of pauses, the median of the stretches
_USUAL, _FEW = 0.75, 3  # where a stretch is a few intervals, so many of them are without pauses
DAY_S, _AWAY_S, _NO_YEAR_S, _MINUTES_S = 86400.0, 3 * 3600.0, 1e8, 150.0  # ten to be sure
_MONTH_S = 27 * DAY_S  # the day after 03/04 is 04/04 where days come first
_FALL, _LEAP = 4.0, 100.0  # usual increments back, or on: it began anew; ranks differ by less
_DONE = 0.9  # of its total: such a counter ended, and the next one counts another epoch
_COARSE = 0.25  # of an epoch between two lines: it may be as much longer than the last one says
_COARSE_ETA_S = 10.0
_MANY = 10  # durations that never get shorter are times since a begin
_CONTRARY = 5.0  # times what a clock says, where that saw little: one of them is of something else


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many units in so many seconds."""

    units: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Seconds a unit: ``typical_s`` without pauses, ``overall_s`` with; ``certain`` to 1."""

    typical_s: float
    overall_s: float
    certain: float


def intervals(points: Iterable[tuple[float, float]]) -> Iterator[Stretch]:
    """Between consecutive points of count and time; what goes back is no interval."""
    for (n, t), (next_n, next_t) in pairwise(points):
        if next_n > n and next_t >= t:
            yield Stretch(next_n - n, next_t - t)


def measured(found: Sequence[Stretch], resolution_s: float) -> Rate | None:
    """The rate of intervals in order of time; None where the clock is too coarse for them.

    The first interval holds start-up and is dropped. The typical rate is the mean over stretches of
    equal length but those far above their median, which hold pauses, unless many steps are so long.
    """
    kept = _without_outages(found[1:] if len(found) > 2 else found)
    seconds, units = sum(i.seconds for i in kept), sum(i.units for i in kept)
    if not kept or units <= 0 or seconds < LEAST_STEPS_OF_CLOCK * max(resolution_s, 1e-6):
        return None
    least_s, most, most_s = STEPS_OF_CLOCK * resolution_s, units / CHUNKS, seconds / CHUNKS
    chunks: list[Stretch] = []
    passed_s = passed_units = 0.0
    for one in kept:
        passed_units, passed_s = passed_units + one.units, passed_s + one.seconds
        if passed_s >= least_s and (passed_units >= most or passed_s >= most_s):
            chunks.append(Stretch(passed_units, passed_s))
            passed_s = passed_units = 0.0
    chunks = chunks or [Stretch(units, seconds)]
    latest = chunks[-_lately([c.seconds / c.units for c in chunks]) :]
    before = len(chunks) - len(latest)
    seconds, units = sum(c.seconds for c in latest), sum(c.units for c in latest)
    ordered = sorted(latest, key=lambda c: c.seconds / c.units)
    passed = list(accumulate(c.units for c in ordered))
    middle = ordered[bisect_left(passed, passed[-1] / 2)]
    steady = [c for c in latest if c.seconds * middle.units <= _PAUSED * middle.seconds * c.units]
    few = middle.units <= _FEW * median(i.units for i in kept)
    if few and sum(c.units for c in steady) < _USUAL * units:
        steady = latest
    typical_s = sum(c.seconds for c in steady) / sum(c.units for c in steady)
    certain = 0.9 if len(chunks) >= 3 else 0.8 if len(found) > 2 else 0.65
    if before:  # a few of the earlier pace may be among them
        typical_s = middle.seconds / middle.units
        certain -= _DRIFTS * (len(latest) <= before)
    overall_s = max(typical_s, seconds / units)
    return Rate(typical_s=typical_s, overall_s=overall_s, certain=certain)


def _lately(paces: Sequence[float]) -> int:
    """How many of the last ones are of one pace: the later part, while it is apart from the rest.

    Apart are parts whose middle halves do not touch, and short ones that hardly touch the rest at
    all: turns of fast and slow steps stay together.
    """
    for later in (round(len(paces) * share) for share in _SHARES):
        if later >= LEAST_OF_PACE and (before := len(paces) - later) >= _LEAST_BEFORE:
            low, high = sorted((sorted(paces[:-later]), sorted(paces[-later:])), key=median)
            few = before if later > before else len(paces)
            if high[min(few, len(high)) // 4] > _APART * low[-1 - min(few, len(low)) // 4]:
                return _lately(paces[-later:])
    return len(paces)


def _without_outages(found: Sequence[Stretch]) -> list[Stretch]:
    """Those of the last session; between two are the few longer than all shorter ones, or hours."""
    ordered = sorted(found, key=lambda one: -one.seconds)
    if len(found) < LEAST_WITH_OUTAGES:
        return list(found)
    left_s, last = sum(one.seconds for one in found), 0
    night_s = max(_AWAY_S, _MANY * median(one.seconds for one in found))
    alone_s = max(_AWAY_S / 6, _LEAP * ordered[1].seconds)  # a pause of the program comes again
    for number, one in enumerate(ordered[:MOST_OUTAGES], start=1):
        left_s -= one.seconds
        last = number if left_s > 0 and one.seconds > min(left_s, night_s, alone_s) else last
    if last > 1 and ordered[0].seconds < _ALIKE * ordered[last - 1].seconds:
        last = 0  # as long each time: those are pauses of the program
    gone = set(map(id, ordered[:last]))
    late = found[max((at for at, one in enumerate(found) if id(one) in gone), default=-1) + 1 :]
    return list(late) if len(late) >= LEAST_OF_SESSION else [o for o in found if id(o) not in gone]


def printed(values: Sequence[float], every: float = 1.0) -> Rate | None:
    """The rate that a program says itself, of its last lines but for the first of all.

    Of ``every`` so many units it prints one; a pause falls on a printed one.
    """
    known = list(values[1:] if len(values) > 1 else values)
    recent = known[-min(RECENT, _lately(known)) :]
    if not recent:
        return None
    certain = 0.8 if len(recent) >= 3 else 0.7 if len(values) > 1 else 0.55
    usual_s = mean(value for value in recent if value <= 3 * median(recent))
    pauses_s = (sum(recent) / len(recent) - usual_s) / max(1.0, every)
    return Rate(typical_s=usual_s, overall_s=usual_s + pauses_s, certain=certain)


@dataclass(frozen=True, slots=True)
class Point:
    """A mark and where the run stands there, in units of its track."""

    at: float
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The points of the current run in order, what they count and of how many.

    ``per_epoch`` is the length of a counter that begins anew each epoch, None for one of the run.
    """

    unit: str
    points: tuple[Point, ...]
    total: float | None
    per_epoch: float | None = None

    @property
    def last(self) -> Mark:
        """The mark of the last line."""
        return self.points[-1].mark

    @property
    def at(self) -> float:
        """Where the run stands."""
        return self.points[-1].at

    def after(self, line: int) -> int:
        """How many points stand after a line."""
        return len(self.points) - bisect_right(self.points, line, key=lambda p: p.mark.line)

    def of_run(self, total: float | None, marks: Iterable[Mark]) -> float | None:
        """A total, unless the counter reached it before, among all marks of its statement."""
        return _of_run(total, [Point(m.stands[self.unit != EPOCH], m) for m in marks])

    def rate(self) -> Rate | None:
        """Seconds a unit, by stamps, by what the program counts since a begin, or as it says."""
        every = median([b.at - a.at for a, b in pairwise(self.points)] or [1.0])
        units = [s for p in self.points if (s := p.mark.unit_s) is not None]
        units = units[-_FEW if self.last.bar and len(units) < _MANY else 0 :]  # it began slowly
        said = printed(units, every) or printed(list(self._by_etas())[-1 - _FEW :], every)
        clock, epoch = self.by_clock(), self.per_epoch or 0.0
        found = clock or self._by_times()
        if said and self.last.bar and not clock and 0 < epoch * said.typical_s < STEPS_OF_CLOCK:
            full = [s for p in self.points if p.at % epoch == 0 and (s := p.mark.unit_s)]
            return (len(full) > _FEW and printed(full)) or said  # whole seconds tell less
        if said and len(self.points) == 1 and self.last.bar and self.last.elapsed_s:
            mean_s = self.last.elapsed_s / max(1.0, self.last.stands[1])
            said = said if abs(said.typical_s - mean_s) < mean_s / 2 else None
        if found is None or said is None:
            begun = self.at <= 1 and self.unit != EPOCH  # a first step holds the start
            return None if found is None and begun else found or said
        begin, last = self.points[0], self.last
        if last.bar and last.elapsed_s and not self.per_epoch and begin.at > RECENT * every:
            found = replace(found, overall_s=max(found.overall_s, last.elapsed_s / self.at))
        ratio = said.typical_s / found.typical_s
        new = -(-len(self.points) // 6) if last.bar else _lately(units)
        newest = replace(self, points=self.points[-new:])
        runs = [*_runs([p.mark for p in newest.points])] if last.bar else []  # one begins slowly
        late = newest.by_clock() if not runs else newest._by_times() if len(runs) == 1 else None
        if late and abs(said.typical_s / late.typical_s - 1) < abs(ratio - 1) / 2:
            return replace(late, overall_s=late.typical_s + found.overall_s - found.typical_s)
        counted = len(self.points) if clock else self.at - begin.at if last.bar else 0.0
        if found.certain < said.certain and counted < _MANY:
            return said if 1 / _CONTRARY < ratio < _CONTRARY else None
        return replace(found, certain=found.certain + 0.08 * (0.8 < ratio < 1.25))

    def _by_etas(self) -> Iterator[float]:
        """By bars that say only the time that is left of them, where that is not too coarse."""
        for mark in (point.mark for point in self.points):
            count, eta_s = mark.inner, 0.0 if mark.elapsed_s else mark.eta_s or 0.0
            if mark.bar and count and count.total and eta_s >= _COARSE_ETA_S:
                yield eta_s / (count.total - count.at)

    def by_clock(self) -> Rate | None:
        """By stamps, which hold what is between the lines too; None without them."""
        stamped = [p for p in self.points if p.mark.clock_s is not None]
        if len(stamped) < max(2, len(self.points) // 2):
            return None
        times = _going_on([p.mark.clock_s or 0.0 for p in stamped])
        whole = all(t == int(t) for t in times)
        found = intervals(zip((p.at for p in stamped), times, strict=True))
        return measured([i for i in found if i.seconds < _MONTH_S], 1.0 if whole else 0.01)

    def _by_times(self) -> Rate | None:
        """By times since a begin, that of the run or of an epoch, else by durations."""
        runs = [
            [(p.at, t) for p in points if (t := p.mark.elapsed_s or p.mark.took_s) is not None]
            for points in (self.points[run] for run in _runs([p.mark for p in self.points]))
        ]
        for run in runs[1:]:  # the bar of an epoch begins at nothing, and may wait for its first
            if self.last.bar and self.per_epoch and run:
                run.insert(0, (self.per_epoch * (run[0][0] // self.per_epoch), -0.5))
        pairs = [pair for run in runs for pair in pairwise(run)]
        fell = sum(b[1] < a[1] for a, b in pairs)
        gaps = [b[1] - a[1] for a, b in pairs if b[1] > a[1]]
        grew = any(p.mark.elapsed_s is not None for p in self.points) or any(
            run[-1][1] > 1.5 * run[0][1] or (len(run) >= _MANY and not fell)
            for run in runs
            if len(run) > 2 and 2 * len(gaps) > len(pairs)
        )
        steady = grew and pairs and _MANY * fell <= len(pairs)
        whole = all(t % 0.5 == 0 for run in runs for _, t in run)
        coarse = 3 * len(gaps) < len(pairs)  # it counts minutes, or hundredths of them
        least_s = min(gaps, default=0.0) if coarse else 1.0 if whole else 0.05
        rate = measured([i for run in runs for i in intervals(run)], least_s) if steady else None
        return rate or (None if self.last.bar or (grew and coarse) else self._by_duration())

    def _by_duration(self) -> Rate | None:
        """By durations that do not add up: those of the interval, or of a unit."""
        said = [(p.at, t) for p in self.points if (t := p.mark.took_s or p.mark.elapsed_s)]
        values = [value for _, value in said]
        stamps = self.unit != EPOCH and values == sorted({*values}) and len(values) > _FEW
        late = values[len(values) // 2 :] if len(values) > 2 * _MANY else values
        if len(late) >= _MANY and len({*late}) > 2 and late == sorted(late, reverse=True):
            count, coarse = self.last.inner or Count(0.0), not any(t % 60 for t in late)
            fallen = intervals((n, -t) for n, t in said[-len(late) :])
            fell = measured([*fallen], _MINUTES_S if coarse else 1.0)
            ahead = (count.total or 0.0) - count.at
            agrees = fell and 0.8 < ahead * fell.overall_s / late[-1] < 1.25
            return fell if agrees else None  # what never gets longer is left
        if len(values) < 2 or set(values) == {1.0} or stamps:
            return None  # whole seconds say little of short ones
        gaps = [b - a for (a, _), (b, _) in pairwise(said)]
        units = 1.0 if min(gaps) == 1 else median(gaps)  # lines may time one each
        whole = all(p.mark.inner and p.mark.inner.at == p.mark.inner.total for p in self.points)
        if units <= 1 or whole or self.unit == EPOCH:
            return printed([value / max(1.0, units) for value in values])
        return None  # of a step or of an interval: the lines do not say


def _going_on(clocks: Sequence[float]) -> list[float]:
    """Stamps without a date go on after midnight."""
    times, days = list[float](), 0.0
    for now in clocks:
        if times and now + days < times[-1] - DAY_S / 2 and now < DAY_S:
            days += DAY_S
        times.append(now + days)
    return times


def _runs(marks: Sequence[Mark]) -> Iterator[slice]:
    """Where each time stands that a local counter, or its elapsed time, ran through."""
    anew = (n for n, (a, b) in enumerate(pairwise(marks), start=1) if _restarts(a, b))
    return starmap(slice, pairwise((0, *anew, len(marks))))


def _restarts(before: Mark, after: Mark) -> bool:
    anew = after.bar and before.epoch != after.epoch
    return bool(anew or (before.inner and after.inner and after.inner.at < before.inner.at - 2))


def away(before_s: float | None, now_s: float | None) -> bool:
    """Whether so much lies between two stamps that another run begins; one may name no year."""
    return before_s is not None and now_s is not None and _AWAY_S < now_s - before_s < _NO_YEAR_S


def current_run(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points after the last restart, each count once."""
    gaps = [b.at - a.at for a, b in pairwise(points)]
    usual = median([gap for gap in gaps if gap > 0] or [1.0])
    alike = [max(a, b) for a, b in zip(gaps, gaps[2:], strict=False)]  # those beside the next
    leaps = {n for n, gap in enumerate(gaps[1:-1], start=2) if 0 < _LEAP * alike[n - 2] < gap}
    lines = Counter(point.at for point in points)
    run: list[Point] = []
    for number, point in enumerate(points):
        fall = (2.0 if point.at <= points[0].at else _FALL + 1e-9) * usual  # to the begin, or back
        if number in leaps or (run and point.at <= run[-1].at - fall):
            run = []
        if len(run) > 1 and point.at <= min(points[0].at, run[-1].at):  # later than any rank
            first_s, last_s, now_s = (p.mark.clock_s or 0.0 for p in (run[0], run[-1], point))
            run = [] if 0 < (last_s - first_s) / len(run) < now_s - last_s else run
        if len(run) == 1 and point.at == run[0].at and (lines[point.at] == 2 or point.mark.bar):
            run = []  # counts nothing yet: the one before it was of a run that ended there
        if not run or point.at > run[-1].at:
            run.append(point)
        elif point.at == run[-1].at and point.mark.took_s and not run[-1].mark.took_s:
            run[-1] = replace(run[-1], mark=replace(run[-1].mark, took_s=point.mark.took_s))
        elif point.at == run[-1].at and point.mark.line - run[-1].mark.line <= 1:
            run[-1] = replace(run[-1], mark=point.mark) if run[-1].mark.bar else run[-1]
    return tuple(run)


def epoch_track(
    marks: Sequence[Mark], first: Mapping[str, float], stated: Collection[float]
) -> Track | None:
    """The track of lines that count epochs; ``first`` and ``stated`` as in ``step_track``."""
    if not (counted := [m for m in marks if m.epoch is not None]):
        return None
    ended = sum(m.metrics or m.took_s is not None for m in counted) * 2 > len(counted)
    lowest, begun = _lowest(counted, first, stated), counted[0].stands[0]
    if lowest < begun == counted[:2][-1].stands[0]:  # its first lines were not read
        counted = [m for m in counted if m.stands[0] != begun] or counted
    bar = any(m.bar and m.inner is None for m in counted)
    fraction = any(m.fraction for m in counted)
    shift = 0.0 if bar or fraction else (1.0 if lowest == 0 else 0.0) - (0.0 if ended else 1.0)
    points = [Point(m.stands[0] + shift, m) for m in counted]
    stood = (lowest, *(m.stands[0] for m in counted))
    total = _of_index(_last_total([m.epoch for m in counted]), stood, bar, stated)
    return Track(unit=EPOCH, points=current_run(points), total=_of_run(total, points))


class Headers:
    """Lines with an epoch alone, in order, for lines that name none; ``total`` of their epochs."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.marks = marks
        self.total = _last_total([m.epoch for m in marks])
        self.bar = bool(marks and marks[-1].bar)  # such a bar says how many are done


def step_track(
    marks: Sequence[Mark], headers: Headers, first: Mapping[str, float], stated: Collection[float]
) -> Track | None:
    """The track of lines that count steps, of the run or of epochs.

    ``first`` are the epochs that statements counted when the output began, ``stated`` how many
    epochs there are, as was said.
    """
    begun = [m for m in marks if m.inner and (m.inner.at or not m.bar)]  # a bar at 0 says nothing
    counted = [_in_epoch(m, headers.marks) for m in begun or marks if m.inner is not None]
    if not counted:
        return None
    unit, length = counted[-1].unit, _last_total([m.inner for m in counted])
    if length is None and _each_epoch(counted):
        return epoch_track([replace(m, inner=None, unit_s=None) for m in counted], first, stated)
    if _goes_on(counted):
        points = [Point(m.stands[1], m) for m in counted]
        total, ends = _of_run(length, points), sum(p.at == length for p in points)
        batch = not headers.marks and "|batch|" in counted[-1].series.lower()  # mostly of an epoch
        if (total is None or batch or 2 < ends > len(points) / 2) and not counted[-1].of_run:
            total = None  # it counts epochs that are not named
        if total is None and length:  # those before it stand below 0
            ended = [0, *accumulate(_begins_anew(a, b, length) for a, b in pairwise(points))]
            before = [length * (ended[-1] - e) for e in ended]
            points = [Point(p.at - n, p.mark) for p, n in zip(points, before, strict=True)]
        per_epoch = length if total is None else None
        return Track(unit=unit, points=current_run(points), total=total, per_epoch=per_epoch)
    per_epoch = length
    if per_epoch is None:  # from those that were counted to their end
        pairs = [(a.stands, b.stands) for a, b in pairwise(counted)]
        lasts = [a[1] for a, b in pairs if b[0] == a[0] + 1]
        steps = [b[1] - a[1] for a, b in pairs if b[1] > a[1]]
        per_epoch = max(lasts) + median(steps) / 2 if lasts and steps else 0.0
        if not per_epoch or median(steps) > _COARSE * per_epoch:
            ends = counted[-1].stands[1] >= max(lasts, default=0.0)
            starts = [b for a, b in pairwise((counted[-1], *counted)) if a.epoch != b.epoch]
            bare = [replace(m, inner=None, metrics=ends, took_s=None, unit_s=None) for m in starts]
            return epoch_track(bare, first, stated)
    lowest = _lowest([*headers.marks[:1], *counted], first, stated)
    epochs = _last_total([m.epoch for m in counted]) or headers.total
    base = float(not headers.bar and (lowest == 1 or (lowest > 1 and epochs is not None)))
    if headers.bar and counted[-1] is marks[-1] and (named := marks[-1].epoch):  # by itself
        done = [h.epoch.at for h in headers.marks if h.epoch and h.line < marks[-1].line]
        base = float(bool(done) and named.at > done[-1])
    stands = [(m.stands, m) for m in counted if m.epoch]
    epochs = _of_index(epochs, (lowest, *(e for (e, _), _ in stands)), headers.bar, stated)
    points = [Point((e - base) * per_epoch + n, m) for (e, n), m in stands]
    total = None if epochs is None else _of_run(epochs * per_epoch, points)
    return Track(unit=unit, points=current_run(points), total=total, per_epoch=per_epoch)


def _lowest(marks: Sequence[Mark], first: Mapping[str, float], stated: Collection[float]) -> float:
    """The first epoch that statements count, also before the lines that were read."""
    least = min(min(m.epoch.at, first.get(m.series, m.epoch.at)) for m in marks if m.epoch)
    last = _last_total([m.epoch for m in marks]) or 0.0  # 499 of 500 that were stated
    return 0.0 if least > 1 and last + 1 in stated and last not in stated else least


def _of_run(total: float | None, points: Sequence[Point]) -> float | None:
    """A total, unless the counter ended there and began anew: so do folds, tasks and searches."""
    anew = total and any(_begins_anew(a, b, total) for a, b in pairwise(points))
    return None if anew else total


def _begins_anew(before: Point, after: Point, total: float) -> bool:
    ended = before.at >= _DONE * total and after.at < total / 2
    return ended and not away(before.mark.clock_s, after.mark.clock_s)


def _in_epoch(mark: Mark, headers: Sequence[Mark]) -> Mark:
    """The mark with the epoch that the last line before it told, where it tells none itself."""
    if mark.epoch is not None and not mark.fraction:
        return mark
    if not headers or mark.of_run:
        return replace(mark, epoch=None)
    after = bisect_right(headers, mark.line, key=lambda header: header.line)
    ends = headers[0].metrics or headers[0].took_s is not None  # such a line ends its epoch
    told, shift = headers[max(after, 1) - 1].epoch, ends - (after == 0)
    if told is None or (shift < 0 and told.at < (1 if headers[0].bar else 2)):
        return replace(mark, epoch=None)
    return replace(mark, epoch=Count(told.at + shift, told.total))


def _each_epoch(marks: Sequence[Mark]) -> bool:
    """Whether each line is of another epoch of so many: where its steps stand says no more."""
    epochs = [m.epoch.at for m in marks if m.epoch and m.epoch.total]
    return 2 < len(marks) == len(set(epochs))


def _goes_on(marks: Sequence[Mark]) -> bool:
    """Whether the counter is one of the run: it names no epoch, or goes on from one to the next."""
    if sum(m.of_run for m in marks) * 2 > len(marks) or all(m.epoch is None for m in marks):
        return True
    fell = [
        (b.stands[1], b.bar is not None and b.inner is not None and b.inner.at != b.inner.total)
        < (a.stands[1], True)
        for a, b in pairwise(marks)
        if a.epoch != b.epoch
    ]
    if fell:
        return sum(fell) * 2 < len(fell)
    return marks[-1].inner is not None and marks[-1].inner.total is None


def _last_total(counts: Sequence[Count | None]) -> float | None:
    return next((c.total for c in reversed(counts) if c is not None and c.total), None)


def _of_index(
    total: float | None, counts: Iterable[float], bar: bool, stated: Collection[float]
) -> float | None:
    """How many there are: a total may be the index of the last one, from 0: 99, 299, or 2 of 2."""
    lowest, highest = min(counts := list(counts)), max(counts)
    if total is None or lowest != 0 or bar:
        return total
    told = total + 1 in stated or (total % 10 == 9 and total not in stated)
    return total + 1 if told or highest == total else total


def paused_s(marks: Sequence[Mark], track: Track) -> float:
    """Seconds a unit of a track that another counter took, and that are in no time of its own."""
    gone_s = 0.0
    for run in (marks[one] for one in _runs(marks)):
        after = track.after(run[-1].line)
        if run[-1].inner and 0 < after == track.after(run[0].line) < len(track.points):
            last, first = (track.points[n].mark for n in (-after - 1, -after))
            if last.elapsed_s is None or _restarts(last, first):
                gone_s += run[-1].elapsed_s or (run[-1].unit_s or 0.0) * run[-1].stands[1]
    return gone_s / max(1.0, track.at - track.points[0].at)
