"""A table's metadata in a warehouse that lies elsewhere now: every path follows, and nothing else changes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from strom.errors import LakeCorrupt
from strom.moving.moved_paths import Moved
from strom.moving.table_metadata import is_metadata, moved_metadata

MOVED = Moved(["/old"], "/new")
URI = "/new/t/metadata/1.metadata.json"


def plain(value: object) -> bytes:
    return json.dumps(value).encode()


def packed(value: object) -> bytes:
    return gzip.compress(plain(value), mtime=7)


FORMS = pytest.mark.parametrize("written", [plain, packed], ids=["plain", "packed"])


def moved(content: bytes, grown: dict[str, int] | None = None) -> Any:
    found = moved_metadata(content, URI, MOVED, grown or {})
    assert found.startswith(b"\x1f\x8b") == content.startswith(b"\x1f\x8b"), "packed as it was"
    return json.loads(gzip.decompress(found) if found.startswith(b"\x1f\x8b") else found)


@FORMS
def test_every_path_follows(written: Callable[[object], bytes]) -> None:
    def metadata(root: str) -> dict[str, object]:
        return {
            "location": f"{root}/t",
            "properties": {"write.data.path": f"{root}/t/data", "strom.held": f"{root}/t/held"},
            "snapshots": [
                {
                    "snapshot-id": 1,
                    "manifest-list": f"file://{root}/t/metadata/snap-1.avro",
                    "summary": {"strom.offsets": f"{root}/t/offsets", "operation": "append"},
                },
                {"snapshot-id": 2, "manifests": [f"{root}/t/m1.avro", f"{root}/t/m2.avro"]},
            ],
            "metadata-log": [{"metadata-file": f"{root}/t/metadata/0.metadata.json", "timestamp-ms": 5}],
            "statistics": [{"snapshot-id": 1, "statistics-path": f"{root}/t/s.puffin"}],
            "partition-statistics": [{"snapshot-id": 1, "statistics-path": f"{root}/t/p.parquet"}],
        }

    assert moved(written(metadata("/old"))) == metadata("/new")


@FORMS
def test_a_list_of_files_to_be_removed_follows(written: Callable[[object], bytes]) -> None:
    assert moved(written({"files": ["/old/a", "/elsewhere/b", 7]})) == {
        "files": ["/new/a", "/elsewhere/b", 7]
    }


@FORMS
@pytest.mark.parametrize(
    "value",
    [
        {"location": "/elsewhere/t", "snapshots": [{"manifest-list": "s3://old/x"}]},
        {"properties": {"comment": "/old/t", "owner": "/old"}},
        {"snapshots": [{"summary": {"operation": "/old"}}]},
        {"snapshots": "/old", "metadata-log": [None, 3], "files": "/old/t"},
        ["/old/t"],
        "/old/t",
    ],
)
def test_what_names_no_file_of_the_warehouse_stays_to_the_byte(
    written: Callable[[object], bytes], value: object
) -> None:
    """Checksums of the file may be stored elsewhere."""
    content = written(value)
    spaced = content if content.startswith(b"\x1f\x8b") else content.replace(b": ", b" :  ")
    assert moved_metadata(spaced, URI, MOVED, {"/old/other": 9}) == spaced


def test_a_snapshot_whose_manifests_grew_says_so() -> None:
    def snapshot(name: str, **summary: object) -> dict[str, object]:
        return {"manifest-list": f"file:///old/{name}", "summary": summary}

    value = {
        "snapshots": [
            snapshot("a", **{"total-files-size": "100"}),
            snapshot("b", **{"total-files-size": "100"}),
            snapshot("c", **{"total-files-size": "unknown"}),
            snapshot("d"),
            {"manifest-list": "/old/e"},
        ]
    }
    found = moved(plain(value), {f"/new/{name}": 30 for name in "acde"})
    assert [one.get("summary", {}).get("total-files-size") for one in found["snapshots"]] == [
        *("130", "100", "unknown"),
        *(None, None),
    ]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x1f\x8b", packed({"location": "/old"})[:-9], b"\x1f\x8bno gzip", b"[" * 100_000]
)
def test_a_file_that_is_not_whole_is_refused(content: bytes) -> None:
    with pytest.raises(LakeCorrupt, match="not a complete JSON file") as caught:
        moved_metadata(content, URI, MOVED, {})
    assert caught.value.facts["uri"] == URI


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/w/t/metadata/00001-x.metadata.json", True),
        ("x.metadata.json", True),
        ("/w/t/strom-removed-5.json", True),
        ("/w/t/strom-removed-5.avro", False),
        ("/w/strom-removed-5/x.json", False),
        ("/w/t/x.metadata.json/y", False),
        ("/w/t/version-hint.text", False),
    ],
)
def test_it_knows_which_files_have_paths(name: str, expected: bool) -> None:
    assert is_metadata(name) == expected
