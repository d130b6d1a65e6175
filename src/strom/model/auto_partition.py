"""Partitions by time, created ahead and dropped after their retention: the rule, without a clock or a catalog.

Given the time and the existing partitions, ``AutoPartition.plan`` says which to create (the current unit and the next
ones) and which to drop (older than the retention). A partition whose value is not a time in the table's format was
created by hand and is left alone. Names are times in the table's zone, so a day begins at local midnight.

Formats are the peer's: ``yyyy MM dd HH Q`` in that order and width, other text in between (letters in quotes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from strom.errors import InvalidConfig
from strom.model.partitions import value_complaint

UNITS = ("HOUR", "DAY", "MONTH", "QUARTER", "YEAR")
FORMATS = {"HOUR": "yyyyMMddHH", "DAY": "yyyyMMdd", "MONTH": "yyyyMM", "QUARTER": "yyyyQ", "YEAR": "yyyy"}
_FIELDS = {"HOUR": "yMdH", "DAY": "yMd", "MONTH": "yM", "QUARTER": "yQ", "YEAR": "y"}
_WIDTHS = {"y": 4, "M": 2, "d": 2, "H": 2, "Q": 1}
_WORDS = {"y": "year", "M": "month", "d": "day", "H": "hour", "Q": "quarter"}
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?")


class PartitionPlan(NamedTuple):
    """What to do now: names to create (earliest first) and names to drop."""

    create: tuple[str, ...]
    drop: tuple[str, ...]


@dataclass(frozen=True)
class AutoPartition:
    """The rule of one table. ``key_position``: the partition key that holds the time.

    ``retention`` is the number of units kept before the current one; negative keeps all. With several partition keys
    partitions are only dropped: the other keys' values are not known ahead.
    """

    key_position: int = 0
    key_count: int = 1
    unit: str = "DAY"
    format: str = FORMATS["DAY"]
    precreate: int = 2
    retention: int = 7
    zone: str = "UTC"

    def __post_init__(self) -> None:
        assert 0 <= self.key_position < self.key_count
        time_zone(self.zone)
        check_format(self.unit, self.format)
        if self.key_count > 1 and self.precreate > 0:
            raise InvalidConfig("A table with several partition keys cannot create partitions ahead")

    def plan(self, now_ms: int, existing: Iterable[str]) -> PartitionPlan:
        """Which partitions to create and to drop now."""
        names = set(existing)
        ahead = [self.value_at(now_ms, units) for units in range(self.precreate)]
        create = tuple(dict.fromkeys(name for name in ahead if name not in names))
        drop = tuple(sorted(name for name in names if self.expired(self._time_value(name), now_ms)))
        return PartitionPlan(create, drop)

    def value_at(self, now_ms: int, units: int = 0) -> str:
        """The partition value of a time, or of the time some units later."""
        return _format(self.format, _shifted(now_ms, time_zone(self.zone), self.unit, units))

    def expired(self, value: str, now_ms: int) -> bool:
        """Whether a partition with this value is past its retention. False for a value that is not a time."""
        if self.retention < 0 or not self.is_time(value):
            return False
        try:
            oldest = self.value_at(now_ms, -self.retention)
        except (OverflowError, ValueError):
            return False  # the retention reaches before the year 1
        return value < oldest

    def is_time(self, value: str) -> bool:
        """Whether the text is a time in this table's format. Fixed widths make text order equal time order."""
        match = _pattern(self.format).fullmatch(value)
        if match is None:
            return False
        parts = {name: int(number) for name, number in match.groupdict().items()}
        try:
            datetime(parts["y"], parts.get("M", 1), parts.get("d", 1), parts.get("H", 0))
        except ValueError:
            return False
        return 1 <= parts.get("Q", 1) <= 4

    def _time_value(self, name: str) -> str:
        if self.key_count == 1:
            return name
        values = name.split("$")
        return values[self.key_position] if len(values) == self.key_count else ""


def check_format(unit: str, text: str) -> None:
    """Refuse a format that does not name exactly the unit's fields, from large to small, at full width."""
    if unit not in UNITS:
        raise InvalidConfig(f"The time unit is one of {', '.join(UNITS)}, not {unit!r}", unit=unit)
    fields = "".join(letter for letter, _ in _pieces(text) if letter)
    if fields != _FIELDS[unit]:
        wanted = ", ".join(_WORDS[letter] for letter in _FIELDS[unit])
        raise InvalidConfig(
            f"The time format {text!r} must name {wanted}, once and in this order", format=text
        )
    example = _format(text, datetime(2024, 11, 23, 7))
    complaint = value_complaint(example)
    if complaint is not None:
        raise InvalidConfig(
            f"The time format {text!r} gives {example!r}, no partition name: {complaint}", format=text
        )


def time_zone(name: str) -> tzinfo:
    """The zone of this name: ``Europe/Berlin``, ``UTC``, ``+08:00``, ``GMT+8``."""
    if name in ("UTC", "GMT", "Z"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None and int(offset[2]) <= 18:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as problem:
        raise InvalidConfig(
            f"There is no time zone {name!r}; write 'Europe/Berlin' or '+02:00'", zone=name
        ) from problem


def _shifted(now_ms: int, zone: tzinfo, unit: str, units: int) -> datetime:
    """The local time some units away; for months and longer the first day, since only the unit is shown."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if unit == "HOUR":
        return (now + timedelta(hours=units)).astimezone(zone)
    local = now.astimezone(zone).replace(tzinfo=None)
    if unit == "DAY":
        return local + timedelta(days=units)
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit] * units
    year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
    return datetime(year, month + 1, 1)


@lru_cache(maxsize=256)
def _pieces(text: str) -> tuple[tuple[str, str], ...]:
    """The format as (field letter or nothing, literal text)."""
    pieces: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            raise InvalidConfig(f"The time format {text!r} has a quote without an end", format=text)
        position = match.end()
        if match[1] is not None:
            pieces.append(("", match[1].replace("''", "'") or "'"))
        elif match[2] is not None:
            pieces.append((_field(match[0], text), ""))
        else:
            pieces.append(("", match[0]))
    return tuple(pieces)


def _field(letters: str, text: str) -> str:
    letter = "y" if letters == "uuuu" else letters[0]
    if _WIDTHS.get(letter) != len(letters):
        raise InvalidConfig(
            f"The time format {text!r} has {letters!r}; only yyyy, MM, dd, HH and Q are known", format=text
        )
    return letter


def _format(text: str, moment: datetime) -> str:
    parts = {
        "y": f"{moment.year:04}",
        "M": f"{moment.month:02}",
        "d": f"{moment.day:02}",
        "H": f"{moment.hour:02}",
        "Q": str((moment.month + 2) // 3),
    }
    return "".join(parts[letter] if letter else literal for letter, literal in _pieces(text))


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    pieces: Sequence[tuple[str, str]] = _pieces(text)
    return re.compile(
        "".join(
            f"(?P<{letter}>[0-9]{{{_WIDTHS[letter]}}})" if letter else re.escape(literal)
            for letter, literal in pieces
        )
    )
