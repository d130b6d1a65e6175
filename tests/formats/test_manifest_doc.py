"""docs/formats/manifest.md says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from strom.kv.runs.run_layout import RunRef
from strom.kv.snapshot import manifest as at
from strom.kv.snapshot.manifest import Manifest, SeriesRef, ShardRef

TEXT = (Path(__file__).parents[2] / "docs" / "formats" / "manifest.md").read_text()


def test_the_header_has_the_documented_fields() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (\w+) \|", TEXT, re.MULTILINE)
    assert "<" + "".join(kind for *_, kind in rows) == at.MANIFEST_HEADER.format
    assert sum(int(length) for _, length, *_ in rows) == at.MANIFEST_HEADER.size
    assert f"`{at.MANIFEST_FORMAT.decode()}`" in TEXT


def test_the_body_has_the_documented_fields() -> None:
    documented = re.findall(r"^\| (\w+) \| [^|]+ \|$", TEXT, re.MULTILINE)
    assert [name for name in documented if name != "field"] == [
        "version",
        *(f.name for f in fields(Manifest)),
    ]
    assert f"of this format: {at.MANIFEST_VERSION};" in TEXT


@pytest.mark.parametrize("kind", [ShardRef, SeriesRef, RunRef])
def test_references_are_lists_in_the_documented_order(
    kind: type[ShardRef] | type[SeriesRef] | type[RunRef],
) -> None:
    assert f"`[{', '.join(kind._fields)}]`" in TEXT


def test_widths_and_names_are_the_documented_ones() -> None:
    assert f"hashes ({at.SHARD_HASH_BYTES} bytes each)" in TEXT
    assert f"row ids ({at.SHARD_ROW_ID_BYTES} bytes)" in TEXT
    assert f"versions ({at.SHARD_VERSION_BYTES} bytes)" in TEXT
    assert f"One cell of {at.SERIES_CELL_BYTES} bytes per offset" in TEXT
    for prefix in (at.BASE_PREFIX, at.INDEX_PREFIX, at.SERIES_PREFIX):
        assert f"`{prefix}`" in TEXT
