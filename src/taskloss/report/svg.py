"""Small charts as inline SVG; the style sheet of the page colours them by class, so that one picture suits both themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

import numpy as np
from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 310
LEFT, RIGHT, TOP, BOTTOM = 60, 18, 12, 46


@dataclass(frozen=True)
class Axis:
    """An axis: the range of its values, its label and its ticks."""

    low: float
    high: float
    label: str
    ticks: tuple[float, ...] = ()

    @staticmethod
    def around(values: Iterable[float], label: str) -> Axis:
        """Return an axis with round ticks that contains all the values.

        >>> Axis.around([0.62, 0.91], "metric").ticks
        (0.6, 0.7, 0.8, 0.9, 1.0)
        """
        values = list(values)
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if high - low < 1e-9:
            low, high = low - 0.01, high + 0.01
        step = 10 ** floor(log10((high - low) / 3))
        step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5)
        first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
        ticks = tuple(round(step * multiple, 10) for multiple in range(first, last + 1))
        return Axis(ticks[0], ticks[-1], label, ticks)


def unit_axis(label: str) -> Axis:
    """Return an axis from 0 to 1."""
    return Axis(0.0, 1.0, label, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))


@dataclass
class Chart:
    """A chart under construction; shapes are painted in the order in which they are added."""

    x: Axis
    y: Axis
    title: str
    """Description for screen readers."""
    height: int = HEIGHT
    shapes: list[Markup] = field(default_factory=list)

    def to_pixels(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> list[tuple[float, float]]:
        """Convert values to coordinates in the picture, clipped to the axes."""
        across = (np.clip(np.asarray(x, float), self.x.low, self.x.high) - self.x.low) / (self.x.high - self.x.low)
        up = (np.clip(np.asarray(y, float), self.y.low, self.y.high) - self.y.low) / (self.y.high - self.y.low)
        left = LEFT + across * (WIDTH - LEFT - RIGHT)
        top = self.height - BOTTOM - up * (self.height - TOP - BOTTOM)
        return [(round(float(a), 1), round(float(b), 1)) for a, b in zip(left, top, strict=True)]

    def line(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, style: str) -> None:
        """Draw a line through the points."""
        self._path(self.to_pixels(x, y), style)

    def band(
        self, x: Sequence[float] | np.ndarray, low: Sequence[float] | np.ndarray, high: Sequence[float] | np.ndarray, style: str
    ) -> None:
        """Fill the area between two lines."""
        self._path([*self.to_pixels(x, low), *reversed(self.to_pixels(x, high))], style, close=True)

    def dot(self, x: float, y: float, style: str, note: str = "") -> None:
        """Draw a point; the note appears when the mouse is over it."""
        ((left, top),) = self.to_pixels([x], [y])
        self.shapes.append(
            Markup('<circle class="{}" cx="{}" cy="{}" r="4"><title>{}</title></circle>').format(style, left, top, note)
        )

    def text(self, x: float, y: float, content: str, style: str) -> None:
        """Write text that begins at a point."""
        ((left, top),) = self.to_pixels([x], [y])
        self.shapes.append(Markup('<text class="{}" x="{}" y="{}">{}</text>').format(style, left, top, content))

    def bar(self, low: float, high: float, value: float, style: str) -> None:
        """Draw a bar from the x axis up to a value, ``low`` to ``high`` wide."""
        (left, top), (right, bottom) = self.to_pixels([low, high], [value, self.y.low])
        self.shapes.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                style, left, top, round(max(right - left - 0.6, 0.4), 1), round(bottom - top, 1)
            )
        )

    def _path(self, points: Sequence[tuple[float, float]], style: str, *, close: bool = False) -> None:
        steps = "L".join(f"{left:g} {top:g}" for left, top in points)
        if not steps:
            return
        self.shapes.append(Markup('<path class="{}" d="M{}{}"/>').format(style, steps, "Z" if close else ""))

    def render(self) -> Markup:
        """Return the whole picture."""
        frame = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>')
        return frame.format(WIDTH, self.height, self.title, self._grid(), Markup("").join(self.shapes), self._labels())

    def _grid(self) -> Markup:
        lines = []
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        for tick, (_, top) in zip(self.y.ticks, self.to_pixels([self.x.low] * len(self.y.ticks), self.y.ticks), strict=True):
            lines.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, top, right))
            lines.append(Markup('<text class="tick y" x="{}" y="{}">{}</text>').format(LEFT - 8, top + 4, _tick(tick)))
        for tick, (left, _) in zip(self.x.ticks, self.to_pixels(self.x.ticks, [self.y.low] * len(self.x.ticks)), strict=True):
            lines.append(Markup('<text class="tick x" x="{}" y="{}">{}</text>').format(left, bottom + 18, _tick(tick)))
        lines.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(LEFT, bottom, right))
        return Markup("").join(lines)

    def _labels(self) -> Markup:
        middle = (LEFT + WIDTH - RIGHT) / 2
        across = (TOP + self.height - BOTTOM) / 2
        return Markup(
            '<text class="label" x="{}" y="{}">{}</text><text class="label" transform="translate(12 {}) rotate(-90)">{}</text>'
        ).format(middle, self.height - 8, self.x.label, across, self.y.label)


def _tick(value: float) -> Markup:
    return escape(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}")
