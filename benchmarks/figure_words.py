"""Figures as people read them: units that suit, three digits, and the verdict on the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answer = Mapping[str, Any]
NOTHING = "\N{EN DASH}"


def amount(samples: Mapping[str, Any] | None) -> str:
    """A median with its unit."""
    if not samples:
        return NOTHING
    value, unit = float(samples["median"]), str(samples["unit"])
    if unit.endswith("/s") and value >= 1e6:
        return f"{digits(value / 1e6)} M {unit}"
    if unit.endswith("/s") and value >= 1e4:
        return f"{digits(value / 1e3)} k {unit}"
    if unit == "bytes" and value >= 1000:
        return f"{digits(value / 1e6)} MB" if value >= 1e6 else f"{digits(value / 1e3)} kB"
    if unit == "s" and value < 1:
        return f"{digits(value * 1000)} ms"
    if unit == "µs" and value >= 1000:
        return f"{digits(value / 1000)} ms"
    return f"{digits(value)} {unit.removesuffix(' p99')}"


def digits(value: float) -> str:
    """Three digits at most after rounding."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def two(value: float) -> str:
    """Two digits: what a ratio is good for."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.2g}'):g}"


def ratio(answer: Answer) -> str:
    """The ratio that the target is about."""
    return NOTHING if answer["ratio"] is None else two(answer["ratio"])


def target(answer: Answer) -> str:
    """The target, and whether it is missed."""
    told = answer["target"]
    if told is None:
        return NOTHING
    words = f"{'≥' if told['at_least'] else '≤'} {two(told['limit'])}"
    return f"{words}, **falls short**" if answer["falls_short"] else words


def reference(answer: Answer, name: str | None = None) -> str:
    """What it is beside, with its figure."""
    if not answer["reference"]:
        return NOTHING
    return f"{name or answer['reference_name']}: {amount(answer['reference'])}"


def machine(run: Mapping[str, Any]) -> str:
    """The machine of a kept run in a line."""
    found = run["machine"]
    parts = [found.get("processor"), f"{found['cores']} cores"]
    if found.get("memory_gb"):
        parts.append(f"{found['memory_gb']:g} GB")
    parts += [found.get("system"), f"Python {found['python']}"]
    return ", ".join(str(part) for part in parts if part)
