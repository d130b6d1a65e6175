"""docs/formats/base_file.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.kv.rows import base_layout as layout
from strom.kv.snapshot.manifest import BASE_PREFIX
from strom.record.struct_fields import StructFields, structure

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "base_file.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    lines = PAGE.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("#") and line.lstrip("# ") == heading)
    rest = lines[start + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith("#")), len(rest))
    rows = [line for line in rest[:end] if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("Header", layout.HEADER_FIELDS),
        ("Footer", layout.FOOTER_FIELDS),
        ("Column", layout.COLUMN_FIELDS),
        ("Block", layout.BLOCK_FIELDS),
        ("Buffer", layout.BUFFER_FIELDS),
        ("Trailer", layout.TRAILER_FIELDS),
    ],
)
def test_the_fields_are_where_the_document_says(heading: str, fields: StructFields) -> None:
    expected, position = [], 0
    for field in fields:
        expected.append([str(position), str(field.length), field.name, field.code])
        position += field.length
    assert [row[:4] for row in table(heading)] == expected
    assert structure(fields).size == position


@pytest.mark.parametrize(
    "words",
    [
        f"`{layout.FORMAT.decode()}`",
        f"A name begins with `{BASE_PREFIX}`",
        f"{layout.ALIGNMENT} bytes (`ALIGNMENT`)",
        f"{layout.BLOCK_ROWS} rows (`BLOCK_ROWS`)",
        f"{layout.BLOCK_DATA_BYTES} bytes (`BLOCK_DATA_BYTES`)",
        f"{layout.COLUMN_BUFFERS} buffers (`COLUMN_BUFFERS`)",
        f"{layout.RANK_BITS} bits (`RANK_BITS`)",
        f"`offsets_form` {layout.DENSE} (`DENSE`)",
        f"`offsets_form` {layout.SPARSE} (`SPARSE`)",
    ],
)
def test_the_constants_are_what_the_document_says(words: str) -> None:
    assert words in PAGE


def test_what_a_checksum_covers_begins_behind_it() -> None:
    assert (layout.HEADER_CHECKED_FROM, layout.TRAILER_CHECKED_FROM) == (12, 4)
