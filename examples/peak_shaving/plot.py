"""The picture: arrivals and departures above, the queue that lies between them below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from examples.peak_shaving.course import Point

ARRIVALS, DEPARTURES, DEPTH, INK, FAINT = "#d9730d", "#2463a8", "#7c5cbf", "#222222", "#dddddd"


def draw(points: Sequence[Point], capacity: int, path: Path) -> None:
    figure = Figure(figsize=(10, 6), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    rates, depths = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    times = [point.at_s for point in points]
    arrivals = [point.arrivals for point in points]
    departures = [point.departures for point in points]
    depth = [point.depth for point in points]

    rates.fill_between(times, arrivals, color=ARRIVALS, alpha=0.12, linewidth=0)
    rates.plot(times, arrivals, color=ARRIVALS, linewidth=2)
    rates.plot(times, departures, color=DEPARTURES, linewidth=2.5)
    rates.axhline(capacity, color=INK, linewidth=0.8, linestyle=(0, (4, 4)), zorder=0)
    peak = arrivals.index(max(arrivals))
    told = f"arrivals: a peak of {arrivals[peak]:,.0f} a second"
    _label(rates, times[peak], arrivals[peak], told, ARRIVALS)
    flat = len(times) // 4  # beyond the peak
    told = f"departures: the {capacity:,} a second that the database takes"
    _label(rates, times[flat], max(departures[flat:]), told, DEPARTURES)
    rates.set_ylabel("orders a second", color=INK)
    rates.set_ylim(0, max(*arrivals, capacity) * 1.12)

    depths.fill_between(times, depth, color=DEPTH, alpha=0.25, linewidth=0)
    depths.plot(times, depth, color=DEPTH, linewidth=2)
    deepest = depth.index(max(depth))
    _label(depths, times[deepest], depth[deepest], f"{depth[deepest]:,} waiting", DEPTH)
    depths.set_ylabel("orders waiting", color=INK)
    depths.set_xlabel("seconds", color=INK)
    depths.set_ylim(0, max(*depth, 1) * 1.2)
    depths.set_xlim(0, times[-1])
    depths.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (rates, depths):
        _plain(axes)
    figure.suptitle(
        "The queue takes the peak, so the database does not have to",
        x=0.01,
        ha="left",
        fontsize=14,
        fontweight="bold",
        color=INK,
    )
    figure.savefig(path)


def _label(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Beside what it names, in its colour: a legend would have to be looked up."""
    axes.annotate(
        text,
        (x, y),
        xytext=(8, 5),
        textcoords="offset points",
        color=colour,
        fontweight="bold",
    )


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
