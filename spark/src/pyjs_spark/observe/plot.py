"""Chart of a run over time: rows per second above, remaining rows below. Plain SVG, without a library.

Pure: samples in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 720, 200  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 34, 30  # around its curve
POINTS_MAX = 500


@dataclass(frozen=True, slots=True)
class Sample:
    """Progress of a run at one moment."""

    at_s: float  # since its start
    rows: int  # read until then
    lag: int  # sequences left


def svg(samples: Sequence[Sample], name: str) -> str:
    """Return the drawing of a run."""
    kept = thinned(samples)
    rates = [(after.at_s, rate(before, after)) for before, after in pairwise(kept)]
    lags = [(each.at_s, float(each.lag)) for each in kept]
    panels = [
        _panel(rates, f"{name}: rows for each second", 0, is_stepped=True),
        _panel(lags, f"{name}: lag in sequences", HEIGHT, is_stepped=False),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{2 * HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"{''.join(panels)}</svg>\n"
    )


def rate(before: Sample, after: Sample) -> float:
    """Return the rows per second between two samples."""
    seconds = after.at_s - before.at_s
    return (after.rows - before.rows) / seconds if seconds > 0 else 0.0


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Return at most 500 of the samples, the first and the last among them."""
    if len(samples) <= POINTS_MAX:
        return list(samples)
    last = len(samples) - 1
    return [samples[index * last // (POINTS_MAX - 1)] for index in range(POINTS_MAX)]


def _panel(points: Sequence[tuple[float, float]], title: str, y: int, *, is_stepped: bool) -> str:
    end_s = max([at_s for at_s, _ in points], default=0.0) or 1.0
    top = max([value for _, value in points], default=0.0) or 1.0
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    base = y + HEIGHT - BOTTOM

    def place(at_s: float, value: float) -> str:
        return f"{LEFT + wide * at_s / end_s:.1f},{base - high * value / top:.1f}"

    cells = []
    before_s = 0.0
    for at_s, value in points:
        if is_stepped:  # a rate holds since the sample before
            cells.append(place(before_s, value))
        cells.append(place(at_s, value))
        before_s = at_s
    lines = [
        f'<text x="{LEFT}" y="{y + 22}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{LEFT},{y + TOP} V{base} H{WIDTH - RIGHT}" fill="none" stroke="black"/>',
        f'<text x="{LEFT - 6}" y="{y + TOP + 5}" text-anchor="end">{top:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{base + 16}" text-anchor="end">{end_s:,.1f} s</text>',
        f'<polyline points="{" ".join(cells)}" fill="none" stroke="#1f5fa8" stroke-width="1.5"/>',
    ]
    return "".join(f"{line}\n" for line in lines)
