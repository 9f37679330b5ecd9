"""Predictions as notebooks show them: interval, parts of a step, several side by side, scaling."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, overload

from ..units import duration, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .prediction import Prediction

GOOD, BAD, PARTS = "#4c78a8", "#e45756", "#f58518"


class Predictions(Sequence["Prediction"]):
    """Predictions of one job in several settings, in the order asked for.

    ``varied`` names the fields that differ. Printed it is a line each; a notebook with matplotlib
    draws a curve over ``gpus`` where nothing else differs, else each with its intervals.
    """

    def __init__(self, found: Iterable[Prediction], varied: Sequence[str]) -> None:
        self._found, self.varied = tuple(found), tuple(varied)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Prediction, ...]: ...
    def __getitem__(self, index: int | slice) -> Prediction | tuple[Prediction, ...]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return "\n".join(
            f"{name}: {duration(_time(one))} "
            f"(50 %: {span(*one.band(0.5))}; 95 %: {span(*one.band(0.95))})"
            for name, one in zip(self.labels, self, strict=True)
        )

    @property
    def labels(self) -> list[str]:
        """What sets each apart."""
        return [
            ", ".join(_value(one, name) for name in self.varied) or one.job.model for one in self
        ]

    def _repr_html_(self) -> str:
        draw = scaling if self.varied == ("gpus",) else intervals
        return f"<pre>{escape(str(self))}</pre>" + drawn(draw, self, self.labels)


def page(found: Prediction) -> str:
    """One prediction: its three lines, the interval of its time, the parts of a step."""
    what = "step" if found.total_s is None else "total"
    drawings = drawn(intervals, [found], [what]) + drawn(parts, [found], [])
    return f"<pre>{escape(str(found))}</pre>{drawings}"


def drawn(draw: Any, found: Sequence[Prediction], labels: Sequence[str]) -> str:
    """An SVG of what ``draw(axes, found, labels)`` draws; empty where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    rows = 6 if draw is parts else len(found)
    figure = Figure(figsize=(7, 3.2 if draw is scaling else 0.9 + 0.3 * rows), layout="constrained")
    draw(figure.subplots(), found, labels)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]


def intervals(axes: Axes, found: Sequence[Prediction], labels: Sequence[str]) -> None:
    """A dot at the median each, on its 50 % band (thick) and 95 % band (thin); red is too large."""
    for row, one in enumerate(found):
        colour = GOOD if one.memory.ok else BAD
        axes.plot(one.band(0.95), (row, row), color=colour, linewidth=1.5)
        axes.plot(one.band(0.5), (row, row), color=colour, linewidth=6, alpha=0.5)
        axes.plot(_time(one), row, "o", color=colour)
        axes.annotate(
            duration(_time(one)), (one.band(0.95)[1], row), (5, -3), textcoords="offset points"
        )
    axes.set(
        yticks=range(len(found)), yticklabels=labels, xticks=[], xlabel="median, 50 % and 95 % band"
    )
    axes.margins(y=0.3)
    axes.set_xlim(0, 1.15 * max(one.band(0.95)[1] for one in found))
    axes.invert_yaxis()


def parts(axes: Axes, found: Sequence[Prediction], _labels: Sequence[str]) -> None:
    """Where the time of a step goes, as the tables price it; parts overlap in a real step."""
    of = found[0].physical
    times = {
        "tensor cores": of.tensor_core_s,
        "other compute": of.compute_s - of.tensor_core_s,
        "host": of.host_s,
        "exposed communication": of.exposed_s,
        "pipeline bubble": of.bubble_s,
        "slowest GPU": of.waiting_s,
        "optimizer": of.optimizer_s,
    }
    names, seconds = zip(*((name, value) for name, value in times.items() if value), strict=True)
    bars = axes.barh(names, seconds, color=PARTS)
    axes.bar_label(bars, [duration(value) for value in seconds], padding=4)
    axes.set(xticks=[], xlabel="parts of one step, from tables", xlim=(0, 1.15 * max(seconds)))
    axes.invert_yaxis()


def scaling(axes: Axes, found: Sequence[Prediction], _labels: Sequence[str]) -> None:
    """Samples per second over GPUs with the 95 % band, beside perfect scaling of the first."""
    ordered = sorted(found, key=lambda one: one.job.gpus)
    gpus, bands = [one.job.gpus for one in ordered], [one.interval(0.95) for one in ordered]
    samples = [one.throughput * one.step_s for one in ordered]
    high = [each / band.low_s for each, band in zip(samples, bands, strict=True)]
    low = [each / band.high_s for each, band in zip(samples, bands, strict=True)]
    axes.fill_between(gpus, low, high, color=GOOD, alpha=0.2, label="95 % band")
    axes.plot(gpus, [one.throughput for one in ordered], "o-", color=GOOD, label="predicted")
    perfect = [ordered[0].throughput / gpus[0] * count for count in gpus]
    axes.plot(gpus, perfect, "--", color="gray", label=f"perfect scaling from {gpus[0]}")
    axes.set(xlabel="GPUs", ylabel="samples/s", xticks=gpus, ylim=(0, None))
    axes.legend()


def _value(found: Prediction, name: str) -> str:
    value = getattr(found.job, name)
    if name == "gpus":
        return f"{value} GPU{'s' * (value != 1)}"
    return str(getattr(value, "value", value))


def _time(found: Prediction) -> float:
    return found.step_s if found.total_s is None else found.total_s
