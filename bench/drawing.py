"""Figures of a report: how all of ours look, and an `svg` element in the page's own colours.

Drawn by matplotlib, light or dark as the reader's page is. A figure says what its axes are, and
labels its lines where they end.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

__all__ = [
    "INK",
    "MUTED",
    "Plot",
    "apart",
    "label_ends",
    "label_logarithmic",
    "name_of",
    "save_png",
    "tick",
    "to_svg",
]

# In the page these three become its own.
INK, MUTED, GRID = "#1f2328", "#6e7781", "#d8dee4"
IN_PAGE = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)"}

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names come from the network: a $ in them is a $
}


#: Inches of a figure, and pixels of one in a file: what a page of documentation shows.
WIDTH = 7.2
PNG_WIDTH = 1200


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure: a name for its file, a caption, and what draws it.

    `height` is in inches.
    """

    name: str
    section: str
    caption: str
    draw: Callable[[Figure], None]
    height: float = 3.0


def tick(value: float, _: object = None) -> str:
    """Return a number at an axis: short."""
    return f"{value / 1e6:,g} M" if abs(value) >= 1e6 else f"{value:,g}"


def render(plot: Plot) -> Figure:
    """Draw a figure."""
    canvas = Figure(figsize=(WIDTH, plot.height), dpi=100, layout="constrained")
    plot.draw(canvas)
    return canvas


def to_svg(plot: Plot) -> str:
    """Return an `svg` element whose ink is the page's."""
    file = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.hashsalt": plot.name}):
        render(plot).savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 role="img"', svg, count=1)
    # Inside tags only: what is text is what somebody called an instrument.
    return re.sub(r"<[^>]*>", lambda tag: re.sub("|".join(IN_PAGE), _in_page, tag[0]), svg)


def _in_page(colour: re.Match[str]) -> str:
    return IN_PAGE[colour[0]]


def save_png(plot: Plot, folder: Path) -> Path:
    """Write the figure on white, legible on a page of any kind."""
    path = folder / f"{plot.name}.png"
    with mpl.rc_context(STYLE):
        render(plot).savefig(
            path, dpi=PNG_WIDTH / WIDTH, facecolor="white", metadata={"Software": None}
        )
    return path


def label_logarithmic(axis: Any, which: str = "y") -> None:
    """Put numbers on an axis ("x" or "y"); on a logarithmic one at 1, 2 and 5."""
    axis.minorticks_off()
    own = axis.yaxis if which == "y" else axis.xaxis
    if own.get_scale() == "log":
        own.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    own.set_major_formatter(tick)


def label_ends(axis: Any, ends: list[tuple[float, float, str]], palette: dict[str, str]) -> None:
    """Write each line's name at its right end, the names apart from each other."""
    ends = sorted(ends, key=lambda end: end[1])
    axis.figure.canvas.draw()
    points = 72 / axis.figure.dpi
    at = [float(axis.transData.transform((x, y))[1]) * points for x, y, _ in ends]
    for (x, y, name), own, place in zip(ends, at, apart(at, 10.0), strict=True):
        axis.annotate(
            name,
            (x, y),
            xytext=(6, place - own),
            textcoords="offset points",
            va="center",
            color=palette[name] if palette[name] != MUTED else INK,
            fontsize=8,
            annotation_clip=False,
        )


def apart(places: list[float], gap: float) -> list[float]:
    """Move sorted places away from each other, to both sides, until all gaps are wide enough."""
    moved = list(places)
    for _ in range(200):
        for i in range(1, len(moved)):
            overlap = gap - (moved[i] - moved[i - 1])
            if overlap > 0:
                moved[i - 1] -= overlap / 2
                moved[i] += overlap / 2
    return moved


def name_of(benchmark: str, kind: str, words: str) -> str:
    """Return a name for a file."""
    return re.sub(r"[^a-z0-9]+", "-", f"{benchmark} {kind} {words}".lower()).strip("-")
