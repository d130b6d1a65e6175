"""docs/formats/remote_manifest.md and remote_segment.md say what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from strom.record.struct_fields import StructFields
from strom.remote import column_extents, remote_manifest, segment_directory
from strom.remote.remote_manifest import (
    RemoteEpoch,
    RemoteManifest,
    RemoteSegment,
    RemoteWriter,
    RetiredSegment,
)

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
MANIFEST = (FORMATS / "remote_manifest.md").read_text()
SEGMENT = (FORMATS / "remote_segment.md").read_text()


def tables(text: str) -> list[list[tuple[int, int, str, str]]]:
    """The tables of bytes in a page."""
    found: list[list[tuple[int, int, str, str]]] = []
    for line in text.splitlines():
        row = re.match(r"^\| (\d+) \| (\d+) \| (\w+) \| (\w+) \|", line)
        if row and row[1] == "0":
            found.append([])
        if row:
            found[-1].append((int(row[1]), int(row[2]), row[3], row[4]))
    return found


def laid_out(structure: StructFields) -> list[tuple[int, int, str, str]]:
    """The same of a structure."""
    rows, position = [], 0
    for field in structure:
        rows.append((position, field.length, field.name, field.code))
        position += field.length
    return rows


def test_a_segment_has_the_documented_structures() -> None:
    structures = (
        segment_directory.SEGMENT_HEADER_FIELDS,
        segment_directory.BATCH_FIELDS,
        segment_directory.EXTENT_FIELDS,
        segment_directory.COLUMN_FIELDS,
    )
    assert tables(SEGMENT) == [laid_out(one) for one in structures]
    assert f"`{segment_directory.SEGMENT_FORMAT.decode()}`" in SEGMENT
    checksum = segment_directory.SEGMENT_HEADER_FIELDS[1]
    assert 8 + checksum.length == segment_directory.CHECKED_FROM


def test_an_extent_has_the_documented_size() -> None:
    mib = column_extents.MIB
    assert (8 * mib, 64 * mib) == (column_extents.EXTENT_BYTES_MIN, column_extents.EXTENT_BYTES_MAX)
    assert column_extents.COLUMN_BYTES == 512 * 1024
    assert "columns \u00d7 512 KB, at least 8 MB and at most 64 MB" in SEGMENT


def test_a_manifest_has_the_documented_header() -> None:
    [rows] = tables(MANIFEST)
    assert "<" + "".join(kind for *_, kind in rows) == remote_manifest.REMOTE_MANIFEST_HEADER.format
    assert sum(length for _, length, *_ in rows) == remote_manifest.REMOTE_MANIFEST_HEADER.size
    assert f"`{remote_manifest.REMOTE_MANIFEST_FORMAT.decode()}`" in MANIFEST
    assert remote_manifest.REMOTE_MANIFEST_BYTES_MAX == 64 * 1024 * 1024
    assert str(remote_manifest.DROPPED_EPOCH) in MANIFEST


def test_a_manifest_has_the_documented_fields() -> None:
    documented = re.findall(r"^\| (\w+) \| [^|]+ \|$", MANIFEST, re.MULTILINE)
    names = [field.name for field in fields(RemoteManifest)]
    assert [name for name in documented if name != "field"] == ["version", *names]
    assert f"of this format: {remote_manifest.REMOTE_MANIFEST_VERSION};" in MANIFEST


@pytest.mark.parametrize("kind", [RemoteEpoch, RemoteSegment, RemoteWriter, RetiredSegment])
def test_lists_have_the_documented_order(kind: type[RemoteSegment]) -> None:
    assert f"`[{', '.join(kind._fields)}]`" in MANIFEST
