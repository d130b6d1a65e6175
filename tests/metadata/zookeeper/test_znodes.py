"""Names and bytes of nodes: round trips, and what is not ours is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import MetadataCorrupt
from strom.metadata.changes import VALUE_BYTES_MAX, is_key
from strom.metadata.zookeeper.znodes import (
    COMPRESS_FROM_BYTES,
    COMPRESSED,
    PLAIN,
    SHARD_COUNT,
    ChangedEntry,
    Deed,
    NodePaths,
    decode_change,
    decode_identity,
    encode_change,
    encode_identity,
    key_of,
    node_name,
    packed,
    unpacked,
)

KEYS = st.text(min_size=1, max_size=40).filter(is_key)
VALUES = st.binary(max_size=200) | st.builds(
    bytes, st.integers(COMPRESS_FROM_BYTES - 1, 3 * COMPRESS_FROM_BYTES)
)
CHANGES = st.lists(st.builds(ChangedEntry, st.sampled_from(Deed), KEYS, VALUES), max_size=5).map(tuple)


@settings(deadline=None)
@given(KEYS)
def test_a_key_is_one_node_whatever_letters_it_has(key: str) -> None:
    name = node_name(key)
    assert "/" not in name
    assert name.isascii()
    assert key_of(name) == key


@settings(deadline=None)
@given(KEYS, KEYS)
def test_two_keys_never_share_a_node(one: str, other: str) -> None:
    paths = NodePaths("/r")
    assert (paths.entry(one) == paths.entry(other)) == (one == other)


def test_entries_are_spread_over_all_shards() -> None:
    paths = NodePaths("/r")
    found = {paths.entry(f"replicas/{number}/-/0").rpartition("/")[0] for number in range(1_000)}
    assert found == set(paths.shards)
    assert len(found) == SHARD_COUNT


@pytest.mark.parametrize("name", ["", "%", "%zz", "a%2fb", "tables::5", ":a", "..", "%41"])
def test_a_name_that_no_key_has_is_refused(name: str) -> None:
    with pytest.raises(MetadataCorrupt):
        key_of(name)


@settings(deadline=None)
@given(VALUES)
def test_a_value_comes_back(value: bytes) -> None:
    assert unpacked(packed(value), "here") == value


def test_only_what_gets_smaller_is_compressed() -> None:
    assert packed(b"x" * (COMPRESS_FROM_BYTES - 1))[:1] == PLAIN
    assert packed(b"x" * COMPRESS_FROM_BYTES)[:1] == COMPRESSED
    noise = zlib.compress(b"".join(b"%d" % (number**7) for number in range(9_000)))
    assert packed(noise)[:1] == PLAIN


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{}",
        COMPRESSED,
        COMPRESSED + b"not zlib",
        COMPRESSED + zlib.compress(b"x" * 5_000)[:-1],
        COMPRESSED + zlib.compress(b"x" * 5_000) + b"more",
        COMPRESSED + zlib.compress(b"x" * (VALUE_BYTES_MAX + 1)),
    ],
)
def test_a_value_that_we_did_not_write_is_refused(stored: bytes) -> None:
    with pytest.raises(MetadataCorrupt) as raised:
        unpacked(stored, "/strom/entries/00/a")
    assert raised.value.facts["path"] == "/strom/entries/00/a"


def test_a_compressed_value_may_have_the_longest_length() -> None:
    assert unpacked(packed(b"x" * VALUE_BYTES_MAX), "here") == b"x" * VALUE_BYTES_MAX


@settings(deadline=None)
@given(CHANGES)
def test_a_change_comes_back(changes: tuple[ChangedEntry, ...]) -> None:
    assert decode_change(encode_change(changes), "here") == changes


@settings(deadline=None)
@given(CHANGES.filter(bool), st.data())
def test_a_change_that_ends_early_is_refused(changes: tuple[ChangedEntry, ...], data: st.DataObject) -> None:
    body = unpacked(encode_change(changes), "here", 1 << 22)
    ends = {len(unpacked(encode_change(changes[:count]), "", 1 << 22)) for count in range(len(changes) + 1)}
    cut = data.draw(st.integers(0, len(body)).filter(lambda end: end not in ends))
    with pytest.raises(MetadataCorrupt):
        decode_change(PLAIN + body[:cut], "here")


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_change_or_refused(stored: bytes) -> None:
    try:
        found = decode_change(stored, "here")
    except MetadataCorrupt:
        return
    assert all(is_key(one.key) for one in found)


def test_an_identity_comes_back_and_anything_else_is_none() -> None:
    assert decode_identity(encode_identity("abc")) == (1, "abc", SHARD_COUNT, None)
    assert decode_identity(encode_identity("abc", moved="there")) == (1, "abc", SHARD_COUNT, "there")
    for stored in (b"", b"{}", b"[]", b"1", b'{"strom": "1", "cluster": "a", "shards": 64}', b"\xff"):
        assert decode_identity(stored) is None
