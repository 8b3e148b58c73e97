"""The report's plots: SVG written by hand, colours and fonts from report.css, nothing that needs a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 560
LEFT, RIGHT = 40, 112  # room for the numbers of the y axis, and for the lines' names at their ends
BOTTOM = 34
LANE_HEIGHT = 16
LABEL_GAP = 14  # two line names closer than this are moved apart

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """`css` names its colour in report.css; a dashed line lies on top of one that it may equal."""

    name: str
    css: str
    points: Sequence[Point]
    dashed: bool = False
    stepped: bool = True


@dataclass(frozen=True)
class Mark:
    """A moment in a lane above the plot, or a span if it has an end; a shaded one reaches down through the plot."""

    at: float
    text: str
    end: float | None = None
    shaded: bool = False


@dataclass(frozen=True)
class Lane:
    name: str
    css: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Axis:
    """Linear, or by powers of ten."""

    low: float
    high: float
    title: str = ""
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _round_step(rough: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(max(rough, 1e-9)))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= rough * 0.999)


@dataclass
class Chart:
    """Lines over a common x axis, with lanes of marks above them; `svg()` draws it."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    lanes: Sequence[Lane] = ()
    height: int = 230
    named_with_value: bool = False
    _parts: list[str] = field(default_factory=list)

    def svg(self) -> str:
        top = 10 + LANE_HEIGHT * len(self.lanes)
        self._top, self._height = top, top + self.height + BOTTOM
        self._parts = [
            f'<svg viewBox="0 0 {WIDTH} {self._height}" role="img" aria-label="{escape(self.title, quote=True)}">',
            f"<title>{escape(self.title)}</title>",
        ]
        self._draw_axes()
        self._draw_lanes()
        for line in self.lines:
            self._draw_line(line)
        self._name_lines()
        return "".join([*self._parts, "</svg>"])

    def _px(self, value: float) -> float:
        return round(LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT), 1)

    def _py(self, value: float) -> float:
        return round(self._top + (1 - self.y.share(value)) * self.height, 1)

    def _draw_axes(self) -> None:
        base = self._top + self.height
        for tick in self.y.ticks():
            y = self._py(tick)
            self._parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            self._parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
        for tick in self.x.ticks():
            x = self._px(tick)
            self._parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{base}" y2="{base + 4}"/>')
            self._parts.append(f'<text class="tick" x="{x}" y="{base + 16}" text-anchor="middle">{tick:g}</text>')
        self._parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
        self._parts.append(
            f'<text class="tick" x="{WIDTH - RIGHT}" y="{base + 30}" text-anchor="end">{escape(self.x.title)}</text>'
        )

    def _draw_lanes(self) -> None:
        for number, lane in enumerate(self.lanes):
            y = 10 + LANE_HEIGHT * number
            self._parts.append(
                f'<text class="lane {lane.css}" x="{LEFT - 7}" y="{y + 4}" text-anchor="end">{escape(lane.name)}</text>'
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            )
            for mark in lane.marks:
                self._parts.append(self._mark(mark, lane.css, y))

    def _mark(self, mark: Mark, css: str, y: float) -> str:
        tip = f"<title>{escape(mark.text)}</title>"
        if mark.end is None:
            return f'<circle class="{css}" cx="{self._px(mark.at)}" cy="{y}" r="4">{tip}</circle>'
        start, end = self._px(mark.at), self._px(mark.end)
        width, foot = max(round(end - start, 1), 1.0), self._top + self.height
        shade = f'<rect class="shade {css}" x="{start}" y="{y}" width="{width}" height="{foot - y}"/>'
        return (
            f"{shade if mark.shaded else ''}"
            f'<g class="{css}"><rect x="{start}" y="{y - 1.5}" width="{width}" height="3"/>'
            f'<circle cx="{end}" cy="{y}" r="4"/>{tip}</g>'
        )

    def _draw_line(self, line: Line) -> None:
        if not line.points:
            return
        x, y = line.points[0]
        path = [f"M{self._px(x)} {self._py(y)}"]
        for x, y in line.points[1:]:
            path.append(f"H{self._px(x)}V{self._py(y)}" if line.stepped else f"L{self._px(x)} {self._py(y)}")
        dashed = " dashed" if line.dashed else ""
        self._parts.append(
            f'<path class="line {line.css}{dashed}" d="{"".join(path)}"><title>{escape(line.name)}</title></path>'
        )

    def _name_lines(self) -> None:
        """Each line's name at its right end, moved apart where they would cover one another."""
        drawn = [(self._py(line.points[-1][1]), line) for line in self.lines if line.points]
        ends = sorted(drawn, key=lambda end: end[0])
        placed = spread([y for y, _ in ends], LABEL_GAP, self._top + self.height)
        for y, (_, line) in zip(placed, ends, strict=True):
            value = f" {line.points[-1][1]:g}" if self.named_with_value else ""
            x = WIDTH - RIGHT + 9
            self._parts.append(
                f'<text class="name {line.css}" x="{x}" y="{round(y + 4, 1)}">{escape(line.name)}{value}</text>'
            )


def spread(wanted: Sequence[float], gap: float, lowest: float) -> list[float]:
    """Ascending positions, each at least `gap` apart, near the wanted ones, none beyond `lowest`."""
    placed: list[float] = []
    for position in wanted:
        placed.append(max(position, placed[-1] + gap) if placed else position)
    limit = lowest
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed
