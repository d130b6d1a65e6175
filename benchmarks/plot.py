"""Charts as SVG, drawn by plain arithmetic: the same figures give the same bytes, and a picture is a few kilobytes.

Two kinds: ``bars`` (one bar for each figure, in multiples of its reference) and ``lines`` (curves over numbers). Both
have a white ground of their own, so that they can be read on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 780
TIMES = "\N{MULTIPLICATION SIGN}"
COLOURS = ("#1f6feb", "#d1642b", "#2da44e", "#8250df", "#6e7781")
GREY, FAINT, INK = "#57606a", "#d8dee4", "#1f2328"
FALLS_SHORT = "#cf222e"
BAR = 16
ROW = 27
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """One figure: how many times its reference it is, and what is to be read beside it."""

    label: str
    value: float
    text: str
    target: float | None = None
    short: bool = False
    """Whether it falls short of its target."""


@dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``, evenly or by powers of ten; ``ticks`` are the values that are named."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return min(1.0, max(0.0, (self._scaled(value) - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.log else value


def bars(title: str, rows: Sequence[Bar], note: str, *, from_one: bool = False) -> str:
    """Horizontal bars; 1 is the reference. By powers of ten where they differ more than twelvefold.

    ``from_one``: bars begin at 1 and go to the better or the worse side.
    """
    left, right, top = 312, 168, 58
    height = top + ROW * len(rows) + 44
    most = max([1.0, *(row.value for row in rows), *(row.target or 0 for row in rows)])
    least = min([1.0, *(row.value for row in rows)])
    log = most > 12 * least
    axis = _ratio_axis(least, most, log)
    span = WIDTH - left - right

    def x_of(value: float) -> float:
        return left + span * axis.at(value)

    out = [_head(title, note, height)]
    out += [_line(x_of(value), top - 6, x_of(value), height - 36, FAINT) for value, _ in axis.ticks]
    out += [_text(x_of(value), height - 22, words, anchor="middle") for value, words in axis.ticks]
    for number, row in enumerate(rows):
        y = top + ROW * number
        ends = sorted((x_of(1.0 if from_one else axis.low), x_of(row.value)))
        colour = FALLS_SHORT if row.short else COLOURS[0]
        out.append(_text(left - 10, y + 13, row.label, anchor="end", colour=INK))
        out.append(
            f'<rect x="{ends[0]:.1f}" y="{y}" width="{max(1.0, ends[1] - ends[0]):.1f}" height="{BAR}" '
            f'rx="2" fill="{colour}"/>'
        )
        if row.target is not None:
            out.append(_line(x_of(row.target), y - 4, x_of(row.target), y + BAR + 4, INK, width=2))
        out.append(_text(WIDTH - right + 8, y + 13, row.text, colour=INK))
    out.append(_line(x_of(1), top - 6, x_of(1), height - 36, GREY, dash=True))
    return _closed(out)


def lines(title: str, series: Mapping[str, Points], x: Axis, y: Axis, note: str) -> str:
    """Curves, named below the picture."""
    left, right, top, bottom = 66, 30, 74, 74
    height = 340
    across, down = WIDTH - left - right, height - top - bottom
    out = [_head(title, note, height)]
    for value, words in x.ticks:
        at = left + across * x.at(value)
        out += [
            _line(at, top, at, top + down, FAINT),
            _text(at, top + down + 16, words, anchor="middle"),
        ]
    for value, words in y.ticks:
        at = top + down * (1 - y.at(value))
        out += [_line(left, at, left + across, at, FAINT), _text(left - 7, at + 4, words, anchor="end")]
    out.append(_text(left + across, top + down + 33, x.label, anchor="end"))
    out.append(_text(14, top - 12, y.label))
    at = float(left)
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{left + across * x.at(one):.1f},{top + down * (1 - y.at(other)):.1f}" for one, other in points
        )
        dash = ' stroke-dasharray="5 4"' if name.startswith("if ") else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out.append(_line(at, height - 18, at + 18, height - 18, colour, width=3))
        out.append(_text(at + 24, height - 14, name, colour=INK))
        at += 44 + 6.6 * len(name)
    return _closed(out)


def even(label: str, high: float, words: Callable[[float], str] = "{:g}".format, *, low: float = 0.0) -> Axis:
    """An axis from ``low`` with about five even steps."""
    step = _step((high - low) / 5)
    top = low + step * math.ceil((high - low) / step - 1e-9)
    count = round((top - low) / step)
    return Axis(label, low, top, [(low + step * n, words(low + step * n)) for n in range(count + 1)])


def powers(label: str, low: float, high: float, words: Callable[[float], str]) -> Axis:
    """An axis by powers of ten that holds both ends."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    ticks = [(10.0**n, words(10.0**n)) for n in range(first, last + 1)]
    return Axis(label, 10.0**first, 10.0**last, ticks, log=True)


def tail(label: str = "share of calls that are faster") -> Axis:
    """For quantiles: the nearer to 100 %, the wider. A share is given as ``tail_at(share)``."""
    named = [(0.0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")]
    return Axis(label, 0.0, tail_at(0.999), [(tail_at(share), words) for share, words in named])


def tail_at(share: float) -> float:
    """Where a share lies on the axis ``tail``."""
    return -math.log10(1 - min(share, 0.9999))


def _ratio_axis(least: float, most: float, log: bool) -> Axis:
    if not log:
        return even("", most * 1.02, lambda value: f"{value:g} {TIMES}")
    return powers("", least * 0.9, most, lambda value: f"{value:,.5g} {TIMES}")


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= rough - 1e-12)


def _head(title: str, note: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>'
        f'<text x="14" y="22" font-size="15" font-weight="600" fill="{INK}">{escape(title)}</text>'
        f'<text x="14" y="39" font-size="11" fill="{GREY}">{escape(note)}</text>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = GREY) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _line(
    x: float, y: float, to_x: float, to_y: float, colour: str, *, width: float = 1, dash: bool = False
) -> str:
    dashed = ' stroke-dasharray="4 3"' if dash else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def _closed(parts: Sequence[str]) -> str:
    return "\n".join([*parts, "</svg>"]) + "\n"
