"""What a program's output says of its progress: one answer, or that it says nothing.

Read from a file or a stream: its begin and its end, in bounded memory.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise, zip_longest
from pathlib import Path
from statistics import median
from typing import IO

from ...errors import StepReportError
from ..step_rate import LINE_PREFIX, StepReport, opened_regular, parse_line, read_at
from . import patterns as known
from .marks import EPISODE, EPOCH, EVALUATION, LOSS, OTHER, STEP, TRAINING, Mark, mark_of, row_of
from .track import Headers, Rate, Track, away, epoch_track, paused_s, printed, step_track

_SURE = 0.8  # more tells no track from another
_LONG_SILENCE, _SILENT_AGAIN = 150, 2  # lines without a counter; times the longest one before
_NEAR_LINES = 3  # a stamp or a loss so near belongs to a counter
_TRAINING_SHARE = 0.3
_BACK_SHARE = 0.05  # of numbers that fall back
_LOSS_SHARE = 0.2  # losses a line of a training that prints them on other lines
_DIGITS = str.maketrans("123456789", "000000000")
_COUNTED = 10  # of such a count another one is not the same by chance
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

HEAD_BYTES = 128 * 1024  # what a program says of its length before it begins
TAIL_BYTES = 256 * 1024  # two thousand refreshes of a bar: half a second of work
FAR_TAIL_BYTES = 1024 * 1024  # where the first tail holds nothing
_BLOCK_BYTES = 64 * 1024


def read_file(path: Path, *, owner: int | None = None, stated: str = "") -> ProgressReading:
    """The progress in a user's file, with the rights of this process.

    ``stated`` is what else the program was told of its length.
    Raises StepReportError where the file cannot be trusted: a link, not a regular file, not of the
    user ``owner``, or another user's while this process is root.
    """
    try:
        with opened_regular(path, owner) as handle:
            status = os.fstat(handle)
            if os.geteuid() == 0 != status.st_uid:  # root
                raise StepReportError(
                    f"{path} is of user {status.st_uid}: root does not read it, run as that user"
                )
            head = read_at(handle, HEAD_BYTES, 0)
            for most in (TAIL_BYTES, FAR_TAIL_BYTES):
                start = max(0, status.st_size - most)
                tail = read_at(handle, most, start)
                found = read_bytes(head, tail, whole=start == 0, stated=stated)
                if found != NOTHING or start == 0:
                    break
            return found
    except FileNotFoundError:
        raise StepReportError(f"{path}: there is no such file") from None


def read_stream(stream: IO[bytes]) -> ProgressReading:
    """The progress in a stream, read to its end."""
    head, tail, size = b"", bytearray(), 0
    while block := stream.read(_BLOCK_BYTES):
        head += block[: max(0, HEAD_BYTES - len(head))]
        tail += block
        size += len(block)
        del tail[: max(0, len(tail) - TAIL_BYTES)]
    return read_bytes(head, bytes(tail), whole=size == len(tail))


def read_bytes(
    head: bytes, tail: bytes, *, whole: bool = True, stated: str = ""
) -> ProgressReading:
    """The progress in the end of an output, of which ``head`` is the begin.

    ``head`` says nothing more where ``tail`` is the ``whole`` output; ``stated`` as in read_file.
    A tail longer than TAIL_BYTES is looked at near words for counters alone.
    """
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as Windows writes it
        head, tail = head.replace(b"\0", b""), tail.replace(b"\0", b"")
    if whole:
        return read_lines(_complete(tail), (), stated)
    _, _, tail = tail.partition(b"\n") if b"\n" in tail else tail.partition(b"\r")
    return read_lines(_complete(tail), lines_of(head), stated)


def _complete(raw: bytes) -> Iterator[str]:
    """The lines less a last one that is still being written, unless it is a bar."""
    end = max((found.end() for found in _BREAKS.finditer(raw)), default=0)
    yield from lines_of(raw[:end], sparse=len(raw) > TAIL_BYTES)
    for line in lines_of(raw[end:]):
        if (mark := mark_of(line, 0)) is None or mark.bar:
            yield line


MAX_CHARS, _HEAD_CHARS = 1_200, 900  # of a line; what is longer keeps its two ends
# What is glued to a bar is a line of its own, and an epoch that is glued to a number.
_BREAKS = re.compile(rb"[\r\n\x08]+|(?<=/s\]|it\])|(?<=\d)(?=[Ee]poch:? ?\d)")
_COUNTERS = re.compile(rb"(?i)epoch|step|iter|batch|episode|it/s|s/it")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-_])"
)
_NOISE = bytes({*range(1, 32)} - set(b"\b\t\n\v\f\r\x1b"))  # no program prints many of them
_NOISE_SHARE = 0.03
_PLAIN = str.maketrans("\t\uff1a\uff0c", " :,")  # as Chinese and Japanese write a colon and a comma
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
# srun -l, torchrun, mpirun, Ray: "3: ", "[rank3]:", "[1,3]<stdout>:", "(Worker pid=12)"
_RANK = re.compile(
    r"^(?:\d{1,5}: (?!learn: )|\[(?:rank|default)\d{1,5}\]: ?|\[\d{1,4},\d{1,5}\]<std\w{3}>: ?"
    r"|\(\w{1,40} pid=\d{1,9}[^)]{0,60}\) ?)"
)


def lines_of(raw: bytes, *, sparse: bool = False) -> Iterator[str]:
    """Lines with text, each of at most MAX_CHARS characters; ``sparse`` empty far from counters."""
    quoted = raw.count(rb"\n") > 10 * (1 + raw.count(b"\n"))  # all lines were printed as one string
    parts = [p for p in _BREAKS.split(raw.replace(rb"\n", b"\n") if quoted else raw) if p]
    found = [number for number, part in enumerate(parts) if sparse and _COUNTERS.search(part)]
    near = {number + by for number in found for by in range(-_NEAR_LINES, _NEAR_LINES + 1)}
    for number, part in enumerate(parts):
        if sparse and number not in near:
            yield ""
            continue
        if len(part) - len(part.translate(None, _NOISE)) > max(3, _NOISE_SHARE * len(part)):
            continue
        text = _ESCAPES.sub("", part.decode("utf-8", "replace").translate(_PLAIN))
        text = _RANK.sub("", _CONTROLS.sub("", text)).rstrip()
        if len(text) > MAX_CHARS:
            text = text[:_HEAD_CHARS] + known.CUT + text[1 + _HEAD_CHARS - MAX_CHARS :]
        if text:
            yield text


@dataclass(slots=True)
class _Output:
    """What the lines hold: marks by the statement that printed them, and what stands between."""

    series: dict[str, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    first: dict[str, float] = field(default_factory=dict)  # epochs when the output began
    losses: list[int] = field(default_factory=list)
    lengths: dict[str, dict[float, int]] = field(default_factory=lambda: defaultdict(dict))
    loose: list[tuple[int, str, float]] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)  # of a saved model, since one was saved
    begins: list[int] = field(default_factory=list)  # what a trainer says at its first step
    report: StepReport | None = None
    ended: int = -1
    marked: int = -1
    lines: int = 0
    begun: int = -1  # where another run began: a length is stated again after a counter
    silent: set[str] = field(default_factory=set)  # lines that said nothing, digits apart

    def take_lengths(self, text: str, line: int = -1) -> bool:
        """Keep what a line says of the length of the run, if anything."""
        if "enabled': False" in text:  # options of what does not happen
            return False
        text = text.replace(" epoch=", " epochs=") if "Namespace(" in text else text
        found = [(u, m) for u, length in known.LENGTHS.items() for m in length.finditer(text)]
        for unit, told in found:
            again = max(self.lengths[unit].values(), default=line) < self.marked < line
            self.begun = line if again else self.begun
            if again or told.start() == told.start("v"):  # 900 max iterations, of all options
                self.lengths[unit].clear()
            self.lengths[unit][known.count_of(told["v"])] = line
        return bool(found)

    def told_once(self) -> dict[float, int]:
        """Numbers of steps, in the plural, that one line says and none counts, and the first."""
        alone = (marks[0] for marks in self.series.values() if len(marks) == 1)
        plural = [m for m in alone if "s||step|" in m.series.lower()]
        return {m.inner.at: m.line for m in reversed(plural) if m.inner}

    def take_begin(self, text: str) -> None:
        """Keep lengths, and from where its statement counts epochs, of a line of the begin."""
        if (mark := mark_of(text, -1)) is not None and mark.epoch is not None:
            self.first.setdefault(mark.series, mark.epoch.at)
        self.take_lengths(text)

    def take_lines(self, lines: Iterable[str]) -> None:
        """Keep the marks of all lines, with times that stand on lines before them."""
        stamp = elapsed = (-_NEAR_LINES - 1, 0.0)
        columns: list[str] = []
        for number, text in enumerate(lines):
            self.lines = number
            text = row_of(text, columns)
            if (shape := text.translate(_DIGITS)) in self.silent:
                continue
            if LINE_PREFIX in text:
                self.report = parse_line(text) or self.report
            mark = mark_of(text, number)
            seen_s = known.clock_s(text) if mark is None else mark.clock_s
            if seen_s is not None:
                anew = stamp[0] >= self.marked >= 0 and away(stamp[1], seen_s)
                self.begun = number if mark is None and anew else self.begun
                stamp = number, seen_s
            told = (mark is None or mark.inner is None) and self.take_lengths(text, number)
            loss = known.LOSS_WORDS.search(text)
            if loss and not known.EVALUATION_WORDS.search(text[: loss.start()]):
                self.losses.append(number)
            if mark is not None:
                if mark.elapsed_s is None and number - elapsed[0] <= _NEAR_LINES:
                    mark.elapsed_s = elapsed[1]
                if seen_s is None and number - stamp[0] <= _NEAR_LINES and not mark.bar:
                    mark.clock_s = stamp[1]
                if mark.series not in self.series and known.ENDED.search(text):
                    self.ended = number
                if self.begins and self.begins[-1] > self.marked:
                    self.begins.append(number)  # the first counter since
                self.series[mark.series].append(mark)
                self.marked = number
                continue
            if (gone_s := known.labelled_s(text, known.ELAPSED)) is not None:
                elapsed = number + 12 * ("time_total_s" in text), gone_s  # RLlib's block
            if known.ENDED.search(text):
                self.ended = number
            elif known.SAVES.search(text):
                self.loads.clear()
            elif known.LOADS.search(text):
                self.loads.append(number)
            elif known.BEGINS.search(text):
                self.begins.append(number)
            elif rates := _loose_rates(text, loss=bool(loss)):
                self.loose += ((number, *rate) for rate in rates.items())
            elif seen_s is gone_s is None and not loss and not told:
                self.silent.add(shape)


def _loose_rates(text: str, *, loss: bool) -> dict[str, float]:
    """Units and their seconds, of a line without a counter; with a loss what an epoch took."""
    took_s = known.labelled_s(text, known.TOOK) if loss and EPOCH in text.lower() else None
    rates = {EPOCH: took_s} if took_s else {}
    for way in known.PER_UNIT:
        match = way.search(text)
        of = match and (match.groupdict().get("of") or way.of * (way.of == EPOCH))
        if match and of and (value := way.seconds(match)):
            rates.setdefault(known.UNIT_OF.get(of.lower(), STEP), value)
    return rates


def read_lines(lines: Iterable[str], head: Iterable[str] = (), stated: str = "") -> ProgressReading:
    """The progress in lines of output, cleaned by ``lines_of``.

    Of ``head``, the begin of an output whose middle is not read, only lengths and first epochs are
    taken, and lengths of what is ``stated`` elsewhere of the training.
    """
    output = _Output()
    for text in head:
        output.take_begin(text)
    output.take_lengths(stated)
    output.take_lines(lines)
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
    series = output.series
    kinds = {name: _kind(marks, output.losses) for name, marks in series.items()}
    # A bar without words inside a bar of epochs is of the training, as one of the stated length.
    trained = [m for n, k in kinds.items() if k == TRAINING for m in series[n]]
    begun = min((m.line for m in trained if m.bar and m.inner is None), default=None)
    asked, told_once = [n for n in output.lengths[EPOCH] if stated and n > 1], output.told_once()
    for name, marks in series.items():
        last = marks[-1]
        total = last.inner.total if last.bar and last.inner else None
        told = total in output.lengths[STEP] or any(total and total % n == 0 for n in asked)
        told = told or (total in told_once and told_once[total] < marks[0].line)
        told = told or any(abs(marks[0].line - n) <= _NEAR_LINES for n in output.begins if total)
        if not kinds[name] and (told or (last.bar and begun is not None and last.line > begun)):
            kinds[name] = TRAINING
        if kinds[name] == TRAINING and _loaded(marks, output.loads):
            kinds[name] = EVALUATION
    # A statement that mostly printed losses, and prints none now, evaluates what was trained.
    evaluates = {n for n in kinds if len(series[n]) <= len(series.get(n + LOSS, ()))}
    if training := [n for n, kind in kinds.items() if kind == TRAINING and n not in evaluates]:
        return _training(training, output)
    # Else the kind is that of the last counters with a total.
    ends = [(marks[-1], kinds[name]) for name, marks in series.items() if len(marks) > 1]
    counting = [(m.line, kind) for m, kind in ends if m.inner is not None and m.inner.total]
    if not counting:
        return NOTHING
    return ProgressReading(kind=ProgressKind(max(counting)[1] or OTHER))


def _loaded(marks: Sequence[Mark], loads: Sequence[int]) -> bool:
    """Whether a saved model was loaded before each epoch, or each but the first."""
    begins = [marks[0].line] + [
        b.line
        for a, b in pairwise(marks)
        if (a.epoch and b.epoch and a.epoch.at != b.epoch.at)
        or (a.inner and b.inner and a.inner.at == a.inner.total and b.inner.at < a.inner.at)
    ]
    between = sum(bisect_left(loads, b) > bisect_left(loads, a) for a, b in pairwise(begins))
    return len(loads) > 1 and 0 < len(begins) - 1 == between


def _kind(marks: Sequence[Mark], losses: Sequence[int]) -> str:
    """What a statement counts, by its words, or by losses printed while it counts."""
    kinds = Counter(mark.kind for mark in marks)
    for kind in (EVALUATION, OTHER):
        if kinds[kind] * 2 > len(marks):
            return kind
    epochs = any(mark.epoch is not None and not mark.bar for mark in marks)
    falls = sum(b.stands < a.stands for a, b in pairwise(marks))
    if falls > 2 * sum(b.stands > a.stands for a, b in pairwise(marks)):
        return ""  # counts down, as the denoising of a diffusion model does
    if kinds[TRAINING] >= _TRAINING_SHARE * len(marks):
        return TRAINING
    back = sum(b.stands[1] < a.stands[1] - 1 for a, b in pairwise(marks))
    least = max(2.0 - epochs, back / 2 if marks[-1].bar else _LOSS_SHARE * len(marks))
    if not epochs and not marks[-1].bar and back > _BACK_SHARE * len(marks):
        return ""  # numbers of a text
    found = 0  # marks with a loss until the counter goes on, or near them where it begins anew
    for now, then in zip_longest(marks, marks[1:]):
        end = now.line + _NEAR_LINES
        if then is not None:
            end = then.line if then.stands >= now.stands else min(end, then.line)
        told = bisect_right(losses, end) - bisect_left(losses, now.line)
        found += min(told, 1 + (now.bar is not None))  # a buffer holds many
    return TRAINING if found >= least else ""


def _training(names: Collection[str], output: _Output) -> ProgressReading:
    bars = {n: n.replace("|step|bar", "|step/|bar") for n in names}
    past = {n for n, whole in bars.items() if n != whole in names}  # of bars past their total
    series = [_of_training(output.series[name]) for name in names if name not in past]
    whole = [[m for m in marks if m.epoch and m.inner is None] for marks in series]
    alone = (m for ms in whole for m in ms if not (m.fraction or known.ENDED.search(m.series)))
    headers = sorted(alone, key=lambda m: m.line)
    for clear in (lambda m: m.bar, lambda m: m.epoch.total):  # a print beside those counts else
        headers = list(filter(clear, headers)) or headers
    fractions = [m for marks in whole for m in marks if m.fraction]
    told = output.first, output.lengths[EPOCH]
    found = [step_track(marks, Headers(_own(headers, marks)), *told) for marks in series]
    found += [epoch_track(marks, *told) for marks in (*whole, fractions)]
    tracks = [t for t in found if t is not None and (len(t.points) > 1 or t.last.bar)]
    if not tracks:  # an epoch that every line names says no more
        still = any(len(ms) > 2 and (ms[-1].epoch or "/" in ms[-1].series) for ms in series)
        return ProgressReading(kind=ProgressKind.TRAINING) if still else NOTHING
    left = [t for t in tracks if not any(_follows(o, t) for o in tracks)]
    chosen = max(left, key=lambda track: _worth(track, output.lines))
    pairs = (pair for marks in series for pair in pairwise(marks) if all(m.epoch for m in pair))
    if any(b.line > chosen.last.line and b.stands[0] < a.stands[0] - 1 for a, b in pairs):
        return ProgressReading(kind=ProgressKind.TRAINING)  # another run began, by other lines
    alike = [t for t in tracks if _one_counter(chosen, t)]
    totals = (t.total for t in alike if t.total and t.unit == chosen.unit)
    total = chosen.total or next(totals, None)
    bare = chosen.last.bar and chosen.per_epoch is None  # without words it counts what they count
    unit = EPOCH if bare and any(t.unit == EPOCH for t in alike) else chosen.unit
    others = [marks for name, marks in output.series.items() if name not in names]
    of_epochs = (t.rate() for t in tracks if t.unit == EPOCH and not t.last.bar)
    epoch = next(filter(None, of_epochs), None)
    return _reading(replace(chosen, total=total, unit=unit), output, others, epoch)


def _own(headers: list[Mark], marks: Sequence[Mark]) -> list[Mark]:
    """Those of the lines with the same words, where two runs name their epochs in turns."""
    at = [m.epoch.at for m in headers if m.epoch]
    if sum(b < a < c for a, b, c in zip(at, at[1:], at[2:], strict=False)) < 2:
        return headers
    words = marks[0].series.partition("|")[0]
    return [m for m in headers if m.series.partition("|")[0] == words] or headers


def _of_training(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Where one statement counts to two totals in turns, an epoch and its evaluation: the epoch."""
    totals = [m.inner.total for m in marks if m.inner is not None]
    if sum(a != b for a, b in pairwise(totals)) < max(1, len(set(totals))):
        return marks  # none comes back
    usual = Counter(totals).most_common(1)[0][0]
    return [m for m in marks if m.inner is None or m.inner.total == usual]


def _one_counter(track: Track, other: Track) -> bool:
    """Whether they count the same: they stand alike, or go alike."""
    if abs(track.at - other.at) <= max(2.0, 0.01 * track.at):
        return True
    if other.at < _COUNTED or (a := track.rate()) is None or (b := other.rate()) is None:
        return False
    return 0.8 < a.typical_s / b.typical_s < 1.25


def _follows(later: Track, track: Track) -> bool:
    """Whether a track was left behind: a phase that ended, a bar that was flushed now and then."""
    after = later.after(track.last.line)
    if track.total and track.at >= track.total and after == len(later.points) > 1:
        return True
    if after == 0 or later.unit != track.unit:  # epochs, more than one since the last step
        each = track.per_epoch or (track.total and later.total and track.total / later.total)
        epochs = after > 1 and later.unit == EPOCH and track.last.bar
        return bool(epochs and each and later.at > track.at / each + 1)
    if after == len(later.points) > 2:
        return later.last.bar is None or later.last.metrics
    return len(track.points) == 1 < len(later.points) and later.at > track.at


def _worth(track: Track, lines: int) -> tuple[bool, bool, bool, float, bool, float, float]:
    """Which to believe: one that says a rate, has a total, was printed last, counts finest."""
    rate = track.rate()
    gap = median([b.mark.line - a.mark.line for a, b in pairwise(track.points)] or [1])
    return (
        rate is not None,
        track.unit != EPOCH,
        track.total is not None,
        0.0 if rate is None else min(rate.certain, _SURE),
        any(p.mark.metrics for p in track.points[-2:]),  # the last line may be cut
        -((lines - track.last.line) // max(1, 2 * gap)),
        track.at,
    )


def _reading(
    track: Track, output: _Output, others: Iterable[Sequence[Mark]], epoch: Rate | None
) -> ProgressReading:
    gap = max((b.mark.line - a.mark.line for a, b in pairwise(track.points)), default=0)
    quiet = output.lines - output.marked  # where longer than ever, something else is going on
    stale = output.ended < output.marked and quiet > max(_LONG_SILENCE, _SILENT_AGAIN * gap)
    if stale or output.begun > track.last.line:
        return ProgressReading(kind=ProgressKind.TRAINING)
    began, unit = track.points[0].mark.line, track.unit
    loose = {u: [s for n, of, s in output.loose if n > began and of == u] for u in (unit, EPOCH)}
    counted = (track.at - track.points[0].at) / (track.per_epoch or 1.0)
    if len(loose[EPOCH]) > 2 * counted + 2:  # what an epoch took so far, line by line
        loose[EPOCH] = []
    epoch = epoch or printed(loose[EPOCH])
    each_s = epoch.overall_s / track.per_epoch if epoch and track.per_epoch else 0.0
    rate = track.rate() or printed(loose[unit]) or printed([each_s] if each_s else [])
    if rate is not None and track.per_epoch is not None and track.by_clock() is None:
        pause_s = sum(paused_s(marks, track) for marks in others)
        if 0 < each_s < rate.typical_s / 2 and not track.last.bar:  # a batch's, of samples
            rate = printed([each_s]) or rate
        rate = replace(rate, overall_s=max(rate.overall_s + pause_s, each_s))
    at, total = track.at, track.total if (track.total or 0.0) >= track.at else None
    if total is None and track.per_epoch is None:
        steps = EPISODE if f"|{EPISODE}" in track.last.series.lower() else STEP
        steps = EPOCH if unit == EPOCH else steps
        lost = steps == STEP and max(output.lengths[STEP], default=0.0) < at
        once = (n for n, line in output.told_once().items() if line < began)
        told = list(once) if lost else output.lengths[steps]
        total = _stated(told, at, steps=steps != EPOCH)
        total = track.of_run(total, output.series[track.last.series])
    elif total is None and track.per_epoch and track.points[-1].mark.epoch is not None:
        epochs = _stated(output.lengths[EPOCH], track.points[-1].mark.epoch.at)
        total = None if epochs is None else epochs * track.per_epoch
    ended = output.ended >= output.series[track.last.series][-1].line
    left_s = _remaining_s(track, at, total, rate, ended=ended)
    if track.last.part and not ended:
        total = left_s = None
    rate = rate or (printed([left_s / (total - at)]) if left_s and total else None)
    return ProgressReading(
        kind=ProgressKind.TRAINING,
        unit=track.unit,
        at=at,
        total=total,
        seconds_per_unit=None if rate is None else rate.typical_s,
        remaining_s=left_s,
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
    told = len({p.at for p in track.points[-_ETAS:] if p.mark.eta_s}) == _ETAS and not last.bar
    if last.inner.total is None if last.inner else told:  # at the end of an epoch it is the run's
        return last.eta_s
    # Times left mostly much longer than their epoch still takes are of the run.
    said = [(m.eta_s, m.inner.at) for m in (p.mark for p in track.points) if m.eta_s and m.inner]
    if rate is None or track.per_epoch is None or len(said) < _ETAS or last.bar:
        return None
    longer = sum(s > 3 * (track.per_epoch - at + 1) * rate.typical_s for s, at in said)
    if last.eta_s is None or 2 * longer <= len(said):
        return None
    # It holds the steps alone, at what one takes: by stamps the pauses come on top.
    alone = printed([s for p in track.points if (s := p.mark.unit_s)]) if track.by_clock() else None
    return last.eta_s * (max(1.0, rate.overall_s / alone.typical_s) if alone else 1.0)


def _stated(lengths: Collection[float], at: float, *, steps: bool = False) -> float | None:
    """The length that a program stated before, where it stated one only, or that many ``steps``."""
    possible = [length for length in lengths if length >= max(at, 2)]
    return possible[0] if len(possible) == 1 and (steps or len(lengths) == 1) else None
