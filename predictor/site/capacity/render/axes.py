"""Names, legends and scales that the plots of a report share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .ink import INK, MUTED, Canvas
from .text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LETTERS, _FEW_LETTERS = 54, 18


def when(unix_s: float) -> float:
    """Days since 1970, which matplotlib takes for dates."""
    return unix_s / 86400


def at_ends(axes: Axes, at: Sequence[float], labels: Sequence[str], *, gap: int = 4) -> None:
    """Labels behind the ends of rows."""
    for row, (x, label) in enumerate(zip(at, labels, strict=True)):
        axes.annotate(label, (x, row), xytext=(gap, 0), textcoords="offset points", va="center")


def short(canvas: Canvas, name: str) -> str:
    """A name as short as the drawing needs it."""
    return shown(name, _FEW_LETTERS if canvas.narrow else _LETTERS)


def names_of_rows(canvas: Canvas, axes: Axes, names: Sequence[str]) -> None:
    """Rows from the top, named."""
    axes.set_yticks(range(len(names)), [short(canvas, name) for name in names], color=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def hours_axis(axes: Axes, label: str) -> None:
    """The axis of amounts, with room for labels behind the longest row."""
    axes.set_xlabel(label)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.18)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def legend(canvas: Canvas, axes: Axes, columns: int) -> None:
    """The legend above the plot."""
    canvas.figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper left",
        ncols=2 if canvas.narrow and columns > 3 else columns,
        handlelength=1,
        columnspacing=1.2,
    )


def titled(axes: Axes, title: str) -> None:
    """A quiet title to the left."""
    axes.set_title(title, loc="left", fontsize=10, color=MUTED)


def dates_below(axes: Axes, most: int) -> None:
    """At most so many dates below."""
    from matplotlib import dates

    # Their types are not stated.
    untyped: Any = dates
    locator = untyped.AutoDateLocator(minticks=2, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
