"""Durations and sizes as people write them: ``7 d``, ``100 ms``, ``1 gb``, ``64kb``.

Sizes count in powers of 1024, as the peer does. A plain number is milliseconds, or bytes. What cannot be
read is a ``ValueError`` whose text says what it should look like; the caller knows the name of the setting.
"""

from __future__ import annotations

import re

DURATION_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "min": 60 * 1000,
    "h": 60 * 60 * 1000,
    "d": 24 * 60 * 60 * 1000,
}
DURATION_SYNONYMS = {
    "": "ms",
    **dict.fromkeys(("milli", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
SIZE_UNITS_BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
SIZE_SYNONYMS = {
    "": "b",
    **dict.fromkeys(("byte", "bytes"), "b"),
    **dict.fromkeys(("k", "kib", "kibibytes"), "kb"),
    **dict.fromkeys(("m", "mib", "mebibytes"), "mb"),
    **dict.fromkeys(("g", "gib", "gibibytes"), "gb"),
    **dict.fromkeys(("t", "tib", "tebibytes"), "tb"),
}
LARGEST = 2**63 - 1

_QUANTITY = re.compile(r"\s*(-?[0-9]{1,19})\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)


def parse_duration_ms(text: str) -> int:
    """``"7 d"`` in milliseconds. Negative numbers are kept: many settings use -1 for "never"."""
    return _parse(
        text, DURATION_UNITS_MS, DURATION_SYNONYMS, 'a duration looks like "100 ms", "30 s" or "7 d"'
    )


def parse_size_bytes(text: str) -> int:
    """``"1 gb"`` in bytes."""
    return _parse(text, SIZE_UNITS_BYTES, SIZE_SYNONYMS, 'a size looks like "64 kb", "100mb" or "1 gb"')


def _parse(text: str, units: dict[str, int], synonyms: dict[str, str], advice: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(advice)
    unit = found[2].lower()
    factor = units.get(synonyms.get(unit, unit))
    if factor is None:
        raise ValueError(f"{advice}; there is no unit {found[2]!r}")
    value = int(found[1]) * factor
    if abs(value) > LARGEST:
        raise ValueError(f"{advice}; {text.strip()} is too large")
    return value


def format_duration(milliseconds: int) -> str:
    """The shortest exact spelling of a duration: ``"7 d"``, ``"90 s"``."""
    return _format(milliseconds, DURATION_UNITS_MS)


def format_size(size: int) -> str:
    """The shortest exact spelling of a size: ``"1 gb"``, ``"1500 b"``."""
    return _format(size, SIZE_UNITS_BYTES)


def rough_size(size: int) -> str:
    """A size for display: ``"76.1 GB"``, ``"1.2 MB"``, ``"584 B"`` (1024 to a step)."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(amount) < 1024 or unit == "TB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def _format(value: int, units: dict[str, int]) -> str:
    for unit, factor in reversed(units.items()):
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} {next(iter(units))}"


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``; of a noun that takes an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
