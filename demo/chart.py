"""Draws line charts as SVG text: axes with titles and ticks, shaded spans, a legend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 78, 16, 58, 52
INK, GRID, SHADE = "#222", "#ddd", "#f6dcc8"


@dataclass
class Chart:
    title: str
    x_title: str
    y_title: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    logarithmic: bool = False
    width: int = 860
    height: int = 320
    _marks: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str, bool]] = field(default_factory=list)

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (value - low) / (high - low) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.height - BOTTOM - (value - low) / (high - low) * (self.height - TOP - BOTTOM)

    def span(self, begin: float, end: float, label: str) -> None:
        """A shaded stretch of the x axis."""
        left, right = self.x(max(begin, self.x_range[0])), self.x(min(end, self.x_range[1]))
        self._marks.append(
            f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{self.height - TOP - BOTTOM}" fill="{SHADE}"/>'
            f'<text x="{(left + right) / 2:.1f}" y="{TOP + 14}" text-anchor="middle" font-size="12" fill="#8a4a1c">{escape(label)}</text>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, label: str, dashed: bool = False
    ) -> None:
        inside = [(x, y) for x, y in points if self.x_range[0] <= x <= self.x_range[1]]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in inside)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"{dash}/>'
        )
        self._legend.append((label, colour, dashed))

    def svg(self) -> str:
        parts = [
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.title)}" font-family="sans-serif" fill="{INK}">',
            f'<text x="{LEFT}" y="20" font-size="16" font-weight="bold">{escape(self.title)}</text>',
            *self._grid(),
            *self._marks,
            *self._frame(),
            *self._legend_marks(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _grid(self) -> list[str]:
        marks = []
        bottom = self.height - BOTTOM
        for tick in _ticks(*self.x_range):
            at = self.x(tick)
            marks.append(
                f'<line x1="{at:.1f}" y1="{bottom}" x2="{at:.1f}" y2="{bottom + 5}" stroke="{INK}"/>'
                f'<text x="{at:.1f}" y="{bottom + 19}" text-anchor="middle" font-size="12">{_number(tick)}</text>'
            )
        for tick in _decades(*self.y_range) if self.logarithmic else _ticks(*self.y_range):
            at = self.y(tick)
            marks.append(
                f'<line x1="{LEFT}" y1="{at:.1f}" x2="{self.width - RIGHT}" y2="{at:.1f}" stroke="{GRID}"/>'
                f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" font-size="12">{_number(tick)}</text>'
            )
        return marks

    def _frame(self) -> list[str]:
        middle_y = (TOP + self.height - BOTTOM) / 2
        return [
            f'<path d="M{LEFT} {TOP}V{self.height - BOTTOM}H{self.width - RIGHT}" fill="none" stroke="{INK}"/>',
            f'<text x="{(LEFT + self.width - RIGHT) / 2}" y="{self.height - 10}" text-anchor="middle" font-size="13">{escape(self.x_title)}</text>',
            f'<text transform="translate(18 {middle_y}) rotate(-90)" text-anchor="middle" font-size="13">{escape(self.y_title)}</text>',
        ]

    def _legend_marks(self) -> list[str]:
        marks, at = [], float(LEFT)
        for label, colour, dashed in self._legend:
            dash = ' stroke-dasharray="5 4"' if dashed else ""
            marks.append(
                f'<line x1="{at}" y1="40" x2="{at + 24}" y2="40" stroke="{colour}" stroke-width="3"{dash}/>'
                f'<text x="{at + 30}" y="44" font-size="13">{escape(label)}</text>'
            )
            at += 30 + 7.2 * len(label) + 22
        return marks


def _ticks(low: float, high: float, about: int = 8) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / about))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= about)
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:g}"
