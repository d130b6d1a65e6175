"""``python tools/house_picture.py docs/pictures/house.svg``: the packages and who may call whom.

Drawn from the contracts in ``.importlinter``, which ``make check`` enforces, so the picture cannot show a house that
does not exist. A package may import what stands below it, never what stands beside or above it. The line in a box
lists the rooms of a package, lowest first.
"""

from __future__ import annotations

import ast
import sys
from configparser import ConfigParser
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INK, GREY, FAINT = "#1f2328", "#57606a", "#d0d7de"
FILLS = ("#ddf4ff", "#f6f8fa")
WIDTH, MARGIN, GAP = 960, 16, 10
ROW_HEIGHT, ROOMS_HEIGHT = 34, 18

Layers = list[list[str]]


@dataclass(frozen=True)
class House:
    """What the contracts say: the layers from the top down, and those of the rooms of each divided package."""

    layers: Layers
    rooms: dict[str, Layers]


def read_house(contracts: Path = ROOT / ".importlinter") -> House:
    """The house, without what the contracts only reserve a place for."""
    parsed = ConfigParser(comment_prefixes=("#", ";"))
    parsed.read(contracts)
    found = {
        section["containers"].strip(): _layers(section["layers"])
        for section in parsed.values()
        if section.get("type") == "layers"
    }
    layers = found.pop("strom")
    return House(layers, {container.removeprefix("strom."): rooms for container, rooms in found.items()})


def _layers(text: str) -> Layers:
    rows = [[name.strip() for name in line.split("|")] for line in text.strip().splitlines()]
    present = [[name for name in row if not name.startswith("(")] for row in rows]
    return [row for row in present if row]


def rooms_line(layers: Layers) -> str:
    """The rooms of a package, lowest first; ``|`` joins those that do not know each other."""
    return "  ◂  ".join(" | ".join(row) for row in reversed(layers))


def purpose(package: str) -> str:
    """The first sentence of a package, as it stands in its own opening."""
    source = ROOT / "src" / "strom" / package
    opening = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    return (ast.get_docstring(ast.parse(opening.read_text())) or "").splitlines()[0].replace("``", "")


def draw(house: House) -> str:
    """The picture as SVG."""
    body: list[str] = []
    y = MARGIN
    edges: list[int] = []
    for number, row in enumerate(house.layers):
        height = ROW_HEIGHT + (ROOMS_HEIGHT * _lines(row, house) if _divided(row, house) else 0)
        body += _row(row, house, y, height, FILLS[number % 2])
        edges.append(y + height)
        y += height + GAP
    for bottom, _ in pairwise(edges):
        body.append(_arrow(bottom))
    body.append(_caption(y + 8))
    return _frame(body, y + 24)


def _divided(row: list[str], house: House) -> bool:
    return any(name in house.rooms for name in row)


def _lines(row: list[str], house: House) -> int:
    """Two packages side by side leave half of the width: their rooms take two lines."""
    return 1 if len(row) == 1 else 2


def _row(row: list[str], house: House, y: int, height: int, fill: str) -> list[str]:
    width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) // len(row)
    parts = []
    for place, name in enumerate(row):
        x = MARGIN + place * (width + GAP)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{FAINT}"/>'
            f'<text x="{x + 12}" y="{y + 22}" font-weight="600" fill="{INK}">{escape(name)}</text>'
        )
        if len(row) == 1:
            words = f'<text x="{x + 120}" y="{y + 22}" font-size="12" fill="{GREY}">{escape(purpose(name))}</text>'
            parts.append(words)
        if name in house.rooms:
            parts += _rooms(house.rooms[name], x + 12, y + 22, lines=_lines(row, house))
    return parts


def _rooms(layers: Layers, x: int, y: int, *, lines: int) -> list[str]:
    shares = [layers] if lines == 1 else [layers[len(layers) // 2 :], layers[: len(layers) // 2]]
    texts = [rooms_line(share) for share in shares]
    texts[1:] = [f"◂  {text}" for text in texts[1:]]
    return [
        f'<text x="{x}" y="{y + ROOMS_HEIGHT * (number + 1)}" font-size="12" fill="{GREY}">{escape(text)}</text>'
        for number, text in enumerate(texts)
    ]


def _arrow(bottom: int) -> str:
    x = WIDTH // 2
    return (
        f'<path d="M{x} {bottom + 1} v{GAP - 2}" stroke="{GREY}" stroke-width="1.4" marker-end="url(#tip)"/>'
    )


def _caption(y: int) -> str:
    words = "imports go down only; packages side by side do not know each other; ◂ reads “is imported by”"
    return f'<text x="{MARGIN}" y="{y}" font-size="12" fill="{GREY}">{escape(words)}</text>'


def _frame(body: list[str], height: int) -> str:
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img" '
        'aria-label="The packages of Strom in layers: each imports only what stands below it">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
    )
    return "\n".join([opening, *body, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(read_house()), encoding="utf-8")
