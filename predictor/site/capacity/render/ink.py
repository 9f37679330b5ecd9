"""Matplotlib figures as SVG that takes its colours from the page and says values on hover."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from ....optional import needs
from .text import shown

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


# What is drawn in these colours takes the CSS variable of the same name.
DONE, RUNNING, CANCELLED, LOST = "#0072b2", "#009e73", "#808080", "#d55e00"
INK, MUTED, GRID = "#1b1f24", "#59636e", "#d1d9e0"
_VARIABLES = {
    DONE: "--plot-done",
    RUNNING: "--plot-running",
    CANCELLED: "--plot-cancelled",
    LOST: "--plot-lost",
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
}
WIDE_IN, NARROW_IN = 9.6, 4.4
_STYLE: Any = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "precision-time",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


@dataclass(frozen=True, slots=True)
class Canvas:
    """One figure being drawn; ``narrow`` is the drawing for a phone."""

    figure: Figure
    narrow: bool
    tips: list[str]

    def axes(self, rows: int = 1, **given: Any) -> list[Axes]:
        """Axes below one another."""
        found = self.figure.subplots(rows, 1, squeeze=False, **given)
        return [row[0] for row in found]

    def tip(self, artist: Artist, text: str) -> None:
        """What is said on hover."""
        artist.set_gid(f"tip-{len(self.tips)}")
        self.tips.append(text)


def draw(name: str, height_in: float, paint: Callable[[Canvas], None], *, narrow: bool) -> str:
    """The SVG element of one drawing, ids prefixed with its name.

    Raises NotInstalledError without matplotlib.
    """
    with needs("report"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    with rc_context(_STYLE), warnings.catch_warnings():
        # The browser has the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure = Figure((NARROW_IN if narrow else WIDE_IN, height_in), layout="constrained")
        canvas = Canvas(figure, narrow, [])
        paint(canvas)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _for_page(text.getvalue(), f"{name}-{'narrow' if narrow else 'wide'}", canvas.tips)


def _for_page(svg: str, prefix: str, tips: list[str]) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"\s*<style.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"<svg {attributes} \1>", svg, count=1)
    svg = re.sub(
        r"(<g id=\"tip-(\d+)\"[^>]*>)",
        lambda found: f"{found[1]}<title>{escape(tips[int(found[2])])}</title>",
        svg,
    )
    # Every drawing of a page needs ids of its own.
    svg = re.sub(r"(?<=\sid=\")(?=[\w.-]+\")", f"{prefix}-", svg)
    svg = re.sub(r"(?<=href=\"#)|(?<=url\(#)", f"{prefix}-", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r"(?<=font: )([^;\"]*?px) [^;\"]*", r"\1 var(--font)", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.replace("{attributes}", f'class="{prefix.rsplit("-", 1)[1]}" aria-hidden="true"', 1)
