"""docs/formats/record_batch.md and record/layout.py say the same; batches written long ago are still read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from strom.record import layout as at
from strom.record import message, statistics

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "record_batch.md"


def tables() -> dict[str, list[list[str]]]:
    """Every table of the page by the first word of its header, as rows of cells."""
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        cells = [cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")]
        if rows is None:
            rows = found.setdefault(cells[0], [])
        elif set(line) != set("|-"):
            rows.append(cells)
    return found


HEADER = {row[0]: row[1:] for row in tables()["field"]}
ABSENT, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
CODES = {"i64": "q", "i32": "i", "u32": "I", "i16": "h", "i8": "b", "u8": "B"}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("field", [name for name in HEADER if not name.startswith("*")])
def test_a_header_field_lies_where_the_page_says(field: str, magic: int) -> None:
    _, length, *positions = HEADER[field]
    prefix = field.upper()
    assert int(length) == getattr(at, f"{prefix}_LENGTH")
    if positions[magic] != ABSENT:
        known = getattr(at, f"{prefix}_POSITION")
        assert int(positions[magic]) == (known[magic] if isinstance(known, tuple) else known)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_header_is_packed_in_the_order_and_types_of_the_page(magic: int) -> None:
    there = [row for name, row in HEADER.items() if not name.startswith("*") and row[2 + magic] != ABSENT]
    assert at.HEADER[magic].format == "<" + "".join(CODES[row[0]] for row in there)
    assert at.HEADER[magic].size == at.HEADER_SIZE[magic] == int(HEADER["*end of header*"][2 + magic])
    assert [int(row[2 + magic]) for row in there] == [
        struct.calcsize("<" + "".join(CODES[row[0]] for row in there[:index])) for index in range(len(there))
    ]


def test_attributes_and_change_types_have_the_numbers_of_the_page() -> None:
    attributes = {row[0]: int(row[1]) for row in tables()["attribute"]}
    assert attributes == {"append_only": 0, "sparse": 1, "damaged": 2}
    assert {name: 1 << bit for name, bit in attributes.items()} == {
        "append_only": at.ATTRIBUTE_APPEND_ONLY,
        "sparse": at.ATTRIBUTE_SPARSE,
        "damaged": at.ATTRIBUTE_DAMAGED,
    }
    changes = {row[0]: int(row[1]) for row in tables()["change type"]}
    assert changes == {name: getattr(at, f"CHANGE_{name.upper()}") for name in changes}
    assert max(changes.values()) == at.CHANGE_MAX


def test_arrow_values_and_limits_are_those_of_the_page() -> None:
    values = {row[0]: int(row[1], 0) for row in tables()["value"]}
    assert values == {
        "continuation": at.CONTINUATION,
        "codec LZ4_FRAME": message.CODEC_LZ4_FRAME,
        "codec ZSTD": message.CODEC_ZSTD,
        "not compressed": at.NOT_COMPRESSED,
    }
    limits = {row[0]: int(row[1]) for row in tables()["limit"]}
    assert limits == {
        "inline bytes": at.ROW_INLINE_MAX,
        "compact decimal precision": at.DECIMAL_COMPACT_PRECISION_MAX,
        "decimal area": at.DECIMAL_AREA_LENGTH,
        "text bound kept": statistics.TEXT_BYTES_MAX,
    }


def test_the_parts_after_the_header_have_the_sizes_of_the_page() -> None:
    sizes = {row[0]: row[-1] for row in tables()["part"]}
    assert sizes["offset deltas"] == f"record_count {TIMES} {at.OFFSET_DELTA_LENGTH}"
    assert sizes["change types"] == f"record_count {TIMES} {at.CHANGE_TYPE_LENGTH}"
    assert sizes["version"] == str(at.STATISTICS_VERSION_LENGTH)
    assert sizes["count"] == str(at.STATISTICS_COUNT_LENGTH)
    assert sizes["column positions"] == f"count {TIMES} {at.STATISTICS_COLUMN_LENGTH}"
    assert sizes["null counts"] == f"count {TIMES} {at.STATISTICS_NULL_COUNT_LENGTH}"
    assert sizes["size of the minima"] == sizes["size of the maxima"] == str(at.STATISTICS_ROW_SIZE_LENGTH)
