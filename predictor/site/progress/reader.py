"""What a program's output says of its progress: one answer, or that it says nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise, zip_longest

from ..step_rate import LINE_PREFIX, StepReport, parse_line
from .marks import EPOCH, EVALUATION, LOSS, OTHER, STEP, TRAINING, Mark, clock_s, elapsed_s, mark_of
from .patterns import count_of, patterns
from .rate import Rate, printed
from .track import Track, epoch_track, paused_s, step_track

_SURE = 0.8  # more tells no track from another
_NEAR_LINES = 3  # a stamp or a loss so near belongs to a counter
_TRAINING_SHARE = 0.3
_BACK_SHARE = 0.05  # of numbers that fall back
_LOSS_SHARE = 0.2  # losses a line of a training that prints them on other lines
_ETAS = 3  # of the last lines; the first ones hold the start of the loader


class ProgressKind(StrEnum):
    """What the output is of; OTHER is progress of something that is no training."""

    TRAINING = TRAINING
    EVALUATION = EVALUATION
    OTHER = OTHER
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReading:
    """How far a program is: ``at`` of ``total`` units of the run, None where it does not say.

    ``confidence`` from 0 to 1 is of the rate. Only a training has numbers.
    """

    kind: ProgressKind
    unit: str | None = None
    at: float | None = None
    total: float | None = None
    seconds_per_unit: float | None = None
    remaining_s: float | None = None
    confidence: float | None = None


NOTHING = ProgressReading(kind=ProgressKind.NONE)


@dataclass(slots=True)
class _Output:
    """What the lines hold: marks by the statement that printed them, and what stands between."""

    series: dict[str, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    losses: list[int] = field(default_factory=list)
    lengths: dict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))
    loose: list[float] = field(default_factory=list)
    report: StepReport | None = None
    ended: int = -1

    def take_lengths(self, text: str) -> None:
        """Keep what a line says of the length of the run."""
        if "enabled': False" in text:  # options of what does not happen
            return
        for unit, length in patterns().lengths.items():
            for match in length.finditer(text):
                self.lengths[unit][count_of(match["v"])] += 1

    def take_loose(self, text: str, number: int) -> None:
        """Keep a rate that stands beside no counter, and that the training ended."""
        known = patterns()
        if known.ended.search(text):
            self.ended = number
        for way in known.per_unit:
            match = way.found.search(text) if "/s" in text or "per" in text else None
            if match and match.groupdict().get("of") and (value := way.seconds(match)):
                self.loose.append(value)
                return


def read_lines(lines: Iterable[str], before: Iterable[str] = ()) -> ProgressReading:
    """The progress in lines of output, cleaned by ``lines_of``.

    Of ``before``, the begin of an output whose middle is not read, only stated lengths are taken.
    """
    output = _Output()
    for text in before:
        output.take_lengths(text)
    _gather(lines, output)
    if (own := output.report) is not None:  # by the line that our own callbacks print
        return ProgressReading(
            kind=ProgressKind.TRAINING,
            unit=STEP,
            at=own.step,
            total=own.total_steps,
            seconds_per_unit=own.step_s,
            remaining_s=own.remaining_steps * own.step_s,
            confidence=1.0,
        )
    kinds = {name: _kind(marks, output.losses) for name, marks in output.series.items()}
    _take_in_nested(kinds, output)
    # A statement that printed losses, and prints none now, evaluates what was trained.
    training = {n for n, kind in kinds.items() if kind == TRAINING and n + LOSS not in kinds}
    if not training:
        return ProgressReading(kind=_other(kinds, output))
    return _training(training, output)


def _gather(lines: Iterable[str], output: _Output) -> None:
    known = patterns()
    stamp: tuple[int, float] | None = None
    elapsed: tuple[int, float] | None = None
    for number, text in enumerate(lines):
        if LINE_PREFIX in text:
            output.report = parse_line(text) or output.report
        mark = mark_of(text, number)
        seen_s = clock_s(text) if mark is None else mark.clock_s
        if seen_s is not None:
            stamp = number, seen_s
        if mark is None or mark.inner is None:
            output.take_lengths(text)
        loss = known.loss.search(text)
        if loss and not known.evaluation.search(text[: loss.start()]):
            output.losses.append(number)
        if mark is None:
            output.take_loose(text, number)
            if (gone_s := elapsed_s(text)) is not None:
                elapsed = number, gone_s
            continue
        if mark.elapsed_s is None and elapsed is not None and number - elapsed[0] <= _NEAR_LINES:
            mark = replace(mark, elapsed_s=elapsed[1])
        if seen_s is None and stamp is not None and number - stamp[0] <= _NEAR_LINES:
            mark = mark if mark.bar else replace(mark, clock_s=stamp[1])
        output.series[mark.series].append(mark)


def _kind(marks: Sequence[Mark], losses: Sequence[int]) -> str:
    """What a statement counts, by its words, or by losses printed while it counts."""
    kinds = Counter(mark.kind for mark in marks)
    for kind in (EVALUATION, OTHER):
        if kinds[kind] * 2 > len(marks):
            return kind
    epochs = any(mark.epoch is not None and not mark.bar for mark in marks)
    if kinds[TRAINING] >= _TRAINING_SHARE * len(marks):
        return TRAINING
    back = sum(b.stands[1] < a.stands[1] - 1 for a, b in pairwise(marks))
    least = max(2.0 - epochs, back / 2 if marks[-1].bar else _LOSS_SHARE * len(marks))
    if not epochs and not marks[-1].bar and back > _BACK_SHARE * len(marks):
        return ""  # numbers of a text
    return TRAINING if sum(_between(marks, losses)) >= least else ""


def _between(marks: Sequence[Mark], losses: Sequence[int]) -> Iterator[int]:
    """Losses after each mark: until the counter goes on, or near it where it begins anew."""
    for now, then in zip_longest(marks, marks[1:]):
        end = now.line + _NEAR_LINES
        if then is not None:
            end = then.line if then.stands >= now.stands else min(end, then.line)
        yield bisect_right(losses, end) - bisect_left(losses, now.line)


def _take_in_nested(kinds: dict[str, str], output: _Output) -> None:
    """A bar without words inside a bar of epochs is of the training."""
    outer = [m for n, k in kinds.items() if k == TRAINING for m in output.series[n] if m.outer]
    begun = min((mark.line for mark in outer), default=None)
    for name, kind in kinds.items():
        last = output.series[name][-1]
        if begun is not None and not kind and last.bar and last.line > begun:
            kinds[name] = TRAINING


def _other(kinds: dict[str, str], output: _Output) -> ProgressKind:
    """The kind of an output without training: of its last counters with a total."""
    ends = [(marks[-1], kinds[name]) for name, marks in output.series.items() if len(marks) > 1]
    counting = [(m.line, kind) for m, kind in ends if m.inner is not None and m.inner.total]
    if not counting:
        return ProgressKind.NONE
    return ProgressKind.EVALUATION if max(counting)[1] == EVALUATION else ProgressKind.OTHER


def _training(names: Collection[str], output: _Output) -> ProgressReading:
    series = [output.series[name] for name in names]
    whole = [[m for m in marks if m.epoch and m.inner is None] for marks in series]
    headers = sorted((m for ms in whole for m in ms if not m.fraction), key=lambda m: m.line)
    fractions = [m for marks in whole for m in marks if m.fraction]
    found = [step_track(marks, headers) for marks in series]
    found += [epoch_track(marks) for marks in (*whole, fractions)]
    tracks = [t for t in found if t is not None and (len(t.points) > 1 or t.last.bar)]
    if not tracks:
        tracks = [t for t in found if t is not None and t.unit == EPOCH and t.rate() is not None]
    if not tracks:
        return NOTHING
    chosen = max(tracks, key=_worth)
    near = max(2.0, 0.01 * chosen.at)  # a statement that counts the same may say the total
    same = (t for t in tracks if t.unit == chosen.unit and abs(t.at - chosen.at) <= near)
    total = chosen.total or next((t.total for t in same if t.total), None)
    others = [marks for name, marks in output.series.items() if name not in names]
    return _reading(replace(chosen, total=total), output, others)


def _worth(track: Track) -> tuple[bool, bool, bool, bool, float, bool, int, int]:
    """Which track to believe: one that says a rate, has a total, was printed last and often."""
    rate = track.rate()
    return (
        rate is not None,
        track.unit != EPOCH,
        track.total is not None,
        track.per_epoch is not None,
        0.0 if rate is None else min(rate.certain, _SURE),
        track.last.metrics,
        track.last.line,
        len(track.points),
    )


def _reading(track: Track, output: _Output, others: Iterable[Sequence[Mark]]) -> ProgressReading:
    rate = track.rate() or printed(output.loose)
    if rate is not None and track.per_epoch is not None and track.by_clock() is None:
        pause_s = sum(paused_s(marks, track) for marks in others)
        rate = replace(rate, overall_s=rate.overall_s + pause_s)
    at, total = track.at, track.total
    if total is None and track.per_epoch is None:
        total = _stated(output.lengths[EPOCH if track.unit == EPOCH else STEP], at)
    elif total is None and track.per_epoch in output.lengths[STEP]:
        total = track.per_epoch
    elif total is None and track.per_epoch and track.points[-1].mark.epoch is not None:
        epochs = _stated(output.lengths[EPOCH], track.points[-1].mark.epoch.at)
        total = None if epochs is None else epochs * track.per_epoch
    if total is not None:
        at = min(at, total)
    return ProgressReading(
        kind=ProgressKind.TRAINING,
        unit=track.unit,
        at=at,
        total=total,
        seconds_per_unit=None if rate is None else rate.typical_s,
        remaining_s=_remaining_s(track, at, total, rate, ended=output.ended > track.last.line),
        confidence=None if rate is None else round(rate.certain, 2),
    )


def _remaining_s(
    track: Track, at: float, total: float | None, rate: Rate | None, *, ended: bool
) -> float | None:
    """By the rate with its pauses, else by the time left that the program says of the whole run."""
    last = track.last
    if ended or (total is not None and total <= at):
        return 0.0
    if total is not None and rate is not None:
        return (total - at) * rate.overall_s
    if last.eta_of_run or (last.inner is not None and last.inner.total is None):
        return last.eta_s
    return last.eta_s if _eta_is_of_run(track, rate) else None


def _eta_is_of_run(track: Track, rate: Rate | None) -> bool:
    """Whether the times left that lines say are much longer than this epoch still takes."""
    said = [p.mark for p in track.points[-_ETAS:] if p.mark.eta_s and p.mark.inner]
    if rate is None or track.per_epoch is None or len(said) < _ETAS:
        return False
    left_s = [(track.per_epoch - m.inner.at) * rate.typical_s for m in said if m.inner]
    return all(m.eta_s > 3 * s for m, s in zip(said, left_s, strict=True) if m.eta_s)


def _stated(lengths: Counter[float], at: float) -> float | None:
    """The length that a program stated before, where it stated one only."""
    possible = [length for length in lengths if length >= max(at, 2)]
    return possible[0] if len(possible) == 1 and len(lengths) == 1 else None
