"""docs/formats/index_run.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from strom.kv.runs import run_layout as at

TEXT = (Path(__file__).parents[2] / "docs" / "formats" / "index_run.md").read_text()
SECTIONS = TEXT.split("\n## ")


def test_pages_and_entries_have_the_documented_fields() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (\w) \|", TEXT, re.MULTILINE)
    header, entry = rows[: len(at.PAGE_HEADER.format) - 1], rows[len(at.PAGE_HEADER.format) - 1 :]
    for fields, layout in ((header, at.PAGE_HEADER), (entry, at.ENTRY)):
        assert "<" + "".join(kind for *_, kind in fields) == layout.format
        assert sum(int(length) for _, length, *_ in fields) == layout.size
        position = 0
        for start, length, *_ in fields:
            assert int(start) == position
            position += int(length)


def test_sizes_are_the_documented_ones() -> None:
    page, fences, filters = (SECTIONS[number] for number in (1, 2, 3))
    assert f"{at.PAGE_BYTES} bytes each" in page
    assert f"1 to {at.PAGE_ENTRIES} |" in page
    assert f"entries of {at.ENTRY.size} bytes each" in page
    assert f"; {at.GONE}: no key has this hash" in page
    assert f"{at.FENCE_BYTES} bytes per page" in fences
    assert f"Blocks of {at.BLOCK_BYTES} bytes, about {at.FILTER_BITS} bits" in filters
    assert f"has {at.FILTER_PROBES} bits" in filters
    for one in (*at.BLOCK_MIX, *at.BITS_MIX):
        assert f"0x{one:016X}" in filters
