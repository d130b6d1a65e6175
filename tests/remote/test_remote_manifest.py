"""Manifests as bytes: what was written comes back, and nothing else is taken for a manifest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strom.errors import MetadataCorrupt, NewerFormat
from strom.record.checksum import crc32c
from strom.remote.remote_manifest import (
    REMOTE_MANIFEST_FORMAT,
    REMOTE_MANIFEST_HEADER,
    RemoteEpoch,
    RemoteManifest,
    RemoteSegment,
    RemoteWriter,
    RetiredSegment,
    decode_manifest,
    encode_manifest,
)
from strom.remote.remote_names import RemoteNames, SegmentName


def segment(start: int, end: int, epoch: int = 3) -> RemoteSegment:
    return RemoteSegment(f"{epoch}-{start}-{end}-abc", start, end, 1000, 100, 7, 5, 6)


FULL = RemoteManifest(
    epoch=5,
    by="0f",
    about={"name": "events", "schemas": [{"id": 1}]},
    start_offset=12,
    end_offset=40,
    lake_offset=20,
    group_number=3,
    epochs=(RemoteEpoch(1, 0), RemoteEpoch(5, 30)),
    segments=(segment(10, 25), segment(25, 40, 5)),
    writers=(RemoteWriter(9, 4, 30, 40, 77),),
    retired=(RetiredSegment("1-0-10-x", 123),),
    keys={"horizon": 3},
)


def test_a_manifest_comes_back_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(FULL), "m/1") == FULL
    empty = RemoteManifest(1, "id", {})
    assert decode_manifest(encode_manifest(empty), "m/1") == empty


def test_the_bytes_of_version_1_are_unchanged() -> None:
    content = encode_manifest(RemoteManifest(1, "id", {}))
    assert content == REMOTE_MANIFEST_HEADER.pack(b"STROMRM1", 2307346299, 173) + (
        b'{"about":{},"by":"id","end_offset":0,"epoch":1,"epochs":[],"group_number":0,"keys":null,"lake_offset":0,'
        b'"retired":[],"segments":[],"start_offset":0,"version":1,"writers":[]}'
    )


def test_every_flipped_byte_is_noticed() -> None:
    content = encode_manifest(FULL)
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1
        with pytest.raises((MetadataCorrupt, NewerFormat)):
            decode_manifest(bytes(flipped), "m/1")
    for size in range(len(content)):
        with pytest.raises(MetadataCorrupt):
            decode_manifest(content[:size], "m/1")
    with pytest.raises(MetadataCorrupt):
        decode_manifest(content + b" ", "m/1")


@pytest.mark.parametrize(
    "changed",
    [
        {"epoch": 0},
        {"epoch": 2**31},
        {"by": ""},
        {"start_offset": 41},
        {"start_offset": -1},
        {"start_offset": 5},
        {"end_offset": 41},
        {"end_offset": "40"},
        {"end_offset": True},
        {"lake_offset": 2**63},
        {"segments": (segment(10, 25), segment(26, 40))},
        {"segments": (segment(10, 25), segment(24, 40))},
        {"segments": (segment(10, 25), RemoteSegment("3-25-41-abc", 25, 40, 1000, 100, 7, 5, 6))},
        {"segments": (segment(10, 25), RemoteSegment("../../x", 25, 40, 1000, 100, 7, 5, 6))},
        {"segments": (segment(10, 25), RemoteSegment("3-25-40-a", 25, 40, 1000, 1001, 7, 5, 6))},
        {"epochs": (RemoteEpoch(5, 0), RemoteEpoch(5, 30))},
        {"epochs": (RemoteEpoch(1, 30), RemoteEpoch(5, 30))},
        {"about": 5},
        {"nothing_of_ours": 1},
    ],
)
def test_what_contradicts_itself_is_damaged_though_its_checksum_fits(changed: dict[str, object]) -> None:
    import json

    body = json.loads(encode_manifest(FULL)[REMOTE_MANIFEST_HEADER.size :]) | changed
    text = json.dumps(body).encode()
    content = REMOTE_MANIFEST_HEADER.pack(REMOTE_MANIFEST_FORMAT, crc32c(text), len(text)) + text
    with pytest.raises(MetadataCorrupt):
        decode_manifest(content, "m/1")


def test_nobody_writes_what_contradicts_itself() -> None:
    with pytest.raises(AssertionError):
        encode_manifest(replace(FULL, end_offset=50))


def test_a_newer_version_is_said_to_be_one() -> None:
    with pytest.raises(NewerFormat):
        decode_manifest(encode_manifest(FULL).replace(b"STROMRM1", b"STROMRM2"), "m/1")


def test_names_are_read_as_they_are_written() -> None:
    names = RemoteNames("c", 7, None, 0)
    assert names.manifest(12) == "c/7/-/0/m/00000000000000000012"
    assert names.number_of(names.manifest(12)) == 12
    assert RemoteNames("c", 7, 3, 1).folder == "c/7/3/1"
    name = SegmentName(3, 10, 20, "ab")
    assert names.segment_of(names.segment(str(name))) == name
    for other in ("c/7/-/0/m/12", "c/7/-/1/m/00000000000000000012", "x", "c/7/-/0/m/0000000000000000001²"):
        assert names.number_of(other) is None
    for other in ("3-10-20", "3-10-20-", "03-10-20-a", "3-10-20-a-b", "x-1-2-3", "3--10-20-a"):
        assert SegmentName.parse(other) is None
