"""Where one counter of a training stood, line after line: of the run, or of one epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from statistics import median

from .marks import EPOCH, Count, Mark
from .rate import Rate, intervals, measured, printed

DAY_S = 86400.0
# A counter that falls back by more than this many of its usual increments began anew; ranks that
# print beside each other differ by less.
_FALL = 4.0
_RISING = 0.9  # of times since a begin that are longer than the last
_DONE = 0.9  # of its total: such a counter ended, and the next one counts another epoch
_SAME_TIMES = 0.002  # a whole interval is not so short for one of its steps, in seconds


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

    def rate(self) -> Rate | None:
        """Seconds a unit, by stamps, by what the program counts since a begin, or as it says."""
        every = median([b.at - a.at for a, b in pairwise(self.points)] or [1.0])
        said = printed([s for p in self.points if (s := p.mark.unit_s) is not None], every)
        by_clock = self.by_clock()
        found = by_clock or self._by_times()
        if found is None or said is None:
            begun = self.at <= 1 and self.unit != EPOCH  # a first step holds the start
            return None if found is None and begun else found or said
        ratio = said.typical_s / found.typical_s
        if found.certain < said.certain or (
            by_clock is None and len(self.points) < 4 and not 0.5 < ratio < 2
        ):
            return said
        agree = 0.8 < ratio < 1.25
        return replace(found, certain=min(1.0, found.certain + 0.08) if agree else found.certain)

    def by_clock(self) -> Rate | None:
        """By stamps, which hold what is between the lines too; None without them."""
        stamped = [p for p in self.points if p.mark.clock_s is not None]
        if len(stamped) < max(2, len(self.points) // 2):
            return None
        times = list(_unwrapped([p.mark.clock_s or 0.0 for p in stamped]))
        whole = all(t == int(t) for t in times)
        found = intervals(zip((p.at for p in stamped), times, strict=True))
        return measured(list(found), 1.0 if whole else 0.01)

    def _by_times(self) -> Rate | None:
        """By times since a begin, that of the run or of an epoch, else by durations."""
        runs = [
            [(p.at, t) for p in run if (t := p.mark.elapsed_s or p.mark.took_s) is not None]
            for run in self._epochs()
        ]
        pairs = [pair for run in runs for pair in pairwise(run)]
        fell = sum(b[1] < a[1] for a, b in pairs)
        grew = any(p.mark.elapsed_s is not None for p in self.points) or any(
            len(run) > 2 and run[-1][1] > 1.5 * run[0][1] for run in runs
        )
        if pairs and grew and fell <= (1 - _RISING) * len(pairs):
            found = [i for run in runs for i in intervals(run)]
            whole = all(t % 1 == 0 for run in runs for _, t in run)
            if (rate := measured(found, 1.0 if whole else 0.05)) is not None:
                return rate
        return None if self.last.bar else self._by_duration()

    def _epochs(self) -> Iterator[list[Point]]:
        """The points of each time that a local counter, or its elapsed time, ran through."""
        run: list[Point] = []
        for point in self.points:
            if run and _restarts(run[-1].mark, point.mark):
                yield run
                run = []
            run.append(point)
        yield run

    def _by_duration(self) -> Rate | None:
        """By durations that do not add up: those of the interval, or of a unit."""
        said = [(p.at, t) for p in self.points if (t := p.mark.took_s or p.mark.elapsed_s)]
        values = [value for _, value in said]
        if len(values) < 2:
            return None
        units = median(b - a for (a, _), (b, _) in pairwise(said))
        if units <= 1 or self.unit == EPOCH:
            return printed([value / max(1.0, units) for value in values])
        if median(values) / units < _SAME_TIMES:
            return printed(values)
        return None  # of a step or of an interval: the lines do not say


def _restarts(before: Mark, after: Mark) -> bool:
    if after.bar and before.epoch != after.epoch:
        return True
    a, b = before.elapsed_s, after.elapsed_s
    if a is not None and b is not None and b < a - 1:
        return True
    return bool(before.inner and after.inner and after.inner.at < before.inner.at - 2)


def _unwrapped(times: Sequence[float]) -> Iterator[float]:
    """Stamps without a date go on after midnight."""
    days, before = 0.0, times[0]
    for now in times:
        if now + days < before - DAY_S / 2 and now < DAY_S:
            days += DAY_S
        before = now + days
        yield before


def current_run(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points after the last restart, each count once."""
    steps = [b.at - a.at for a, b in pairwise(points) if b.at > a.at]
    usual = median(steps) if steps else 1.0
    run: list[Point] = []
    for point in points:
        if run and point.at < run[-1].at - _FALL * usual:
            run = []
        if len(run) == 1 and point.at == run[0].at:
            run = []  # counts nothing yet: the one before it was of a run that ended there
        if not run or point.at > run[-1].at:
            run.append(point)
        elif point.at == run[-1].at and point.mark.line - run[-1].mark.line <= 1:
            run[-1] = replace(run[-1], mark=point.mark) if run[-1].mark.bar else run[-1]
    return tuple(run)


def epoch_track(marks: Sequence[Mark]) -> Track | None:
    """The track of lines that count epochs."""
    counted = [m for m in marks if m.epoch is not None]
    if not counted:
        return None
    ended = sum(m.metrics or m.took_s is not None for m in counted) * 2 > len(counted)
    lowest = min(m.stands[0] for m in counted)
    bar = any(m.bar and m.inner is None for m in counted)
    fraction = any(m.fraction for m in counted)
    shift = 0.0 if bar or fraction else (1.0 if lowest == 0 else 0.0) - (0.0 if ended else 1.0)
    run = current_run([Point(m.stands[0] + shift, m) for m in counted])
    total = _last_total([m.epoch for m in counted])
    return Track(unit=EPOCH, points=run, total=_of_index(total, lowest, bar))


def step_track(marks: Sequence[Mark], headers: Sequence[Mark]) -> Track | None:
    """The track of lines that count steps, of the run or of epochs.

    ``headers`` are lines with an epoch alone, for lines that name none.
    """
    begun = [m for m in marks if m.inner and (m.inner.at or not m.bar)]  # a bar at 0 says nothing
    counted = [_in_epoch(m, headers) for m in begun or marks if m.inner is not None]
    if not counted:
        return None
    unit, length = counted[-1].unit, _last_total([m.inner for m in counted])
    if _goes_on(counted):
        points = [Point(m.stands[1], m) for m in counted]
        run = current_run(points)
        if length is None or any(m.of_run for m in counted) or not _ended_before(points, length):
            return Track(unit=unit, points=run, total=length)
        return Track(unit=unit, points=run, total=None, per_epoch=length)
    per_epoch = length or _longest(counted)
    if per_epoch is None:
        last = counted[-1].epoch
        run = current_run([Point(m.stands[1], m) for m in counted if m.epoch == last])
        return Track(unit=unit, points=run, total=None)
    lowest = min(m.epoch.at for m in counted if m.epoch)
    epochs = _last_total([m.epoch for m in (*headers, *counted)])
    outer = bool(headers) and headers[-1].outer  # such a bar says how many are done
    base = 0.0 if outer or lowest == 0 or epochs is None else 1.0
    epochs = _of_index(epochs, lowest, outer)
    stands = [(m.stands, m) for m in counted if m.epoch]
    run = current_run([Point((e - base) * per_epoch + n, m) for (e, n), m in stands])
    total = None if epochs is None else epochs * per_epoch
    return Track(unit=unit, points=run, total=total, per_epoch=per_epoch)


def _in_epoch(mark: Mark, headers: Sequence[Mark]) -> Mark:
    """The mark with the epoch that the last line before it told, where it tells none itself."""
    if mark.epoch is not None and not mark.fraction:
        return mark
    if not headers or mark.of_run:
        return replace(mark, epoch=None)
    told_before = bisect_right(headers, mark.line, key=lambda header: header.line)
    before = headers[told_before - 1] if told_before else None
    ends = headers[0].metrics or headers[0].took_s is not None  # such a line ends its epoch
    told = (before or headers[0]).epoch
    if told is None or (before is None and not ends):
        return replace(mark, epoch=None)
    shift = 1 if ends and before is not None else 0
    return replace(mark, epoch=Count(told.at + shift, told.total))


def _goes_on(marks: Sequence[Mark]) -> bool:
    """Whether the counter is one of the run: it names no epoch, or goes on from one to the next."""
    if any(m.of_run for m in marks) or all(m.epoch is None for m in marks):
        return True
    fell = [
        (b.stands[1], b.bar and b.inner is not None and b.inner.at != b.inner.total)
        < (a.stands[1], True)
        for a, b in pairwise(marks)
        if a.epoch != b.epoch
    ]
    if fell:
        return sum(fell) * 2 < len(fell)
    return marks[-1].inner is not None and marks[-1].inner.total is None


def _ended_before(points: Sequence[Point], length: float) -> bool:
    """Whether a counter ran to its total and began anew: one of epochs that are not named."""
    ends = [p for p in points if p.at >= length]
    return 2 < len(ends) > len(points) / 2 or any(
        a.at >= _DONE * length and b.at < a.at - 2 and b.at < length / 2
        for a, b in pairwise(points)
    )


def _longest(marks: Sequence[Mark]) -> float | None:
    """Steps of an epoch, from those that were counted to their end; None where none was."""
    pairs = [(a.stands, b.stands) for a, b in pairwise(marks)]
    ends = [a[1] for a, b in pairs if b[0] == a[0] + 1]
    steps = [b[1] - a[1] for a, b in pairs if b[1] > a[1]]
    return max(ends) + median(steps) / 2 if ends and steps else None


def _last_total(counts: Sequence[Count | None]) -> float | None:
    totals = [count.total for count in counts if count is not None and count.total]
    return totals[-1] if totals else None


def _of_index(total: float | None, lowest: float, bar: bool) -> float | None:
    """How many there are: a total may be the index of the last one, from 0: 99, 299, 49."""
    return total + 1 if total and lowest == 0 and not bar and total % 10 == 9 else total


def paused_s(marks: Sequence[Mark], track: Track) -> float:
    """Seconds a unit of a track that another counter took between its points."""
    first, last = track.points[0], track.points[-1]
    gone_s = sum(
        now.elapsed_s or 0.0
        for now, then in zip_longest(marks, marks[1:])
        if first.mark.line < now.line < last.mark.line and (then is None or _restarts(now, then))
    )
    return gone_s / max(1.0, last.at - first.at)
