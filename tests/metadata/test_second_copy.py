"""The second copy: what it reads back, and what it notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import NewerFormat
from strom.metadata import layout, second_copy
from strom.metadata.changes import Delete, Put, Update
from strom.metadata.second_copy import SecondCopy, encode_commit, encode_header, encode_snapshot
from strom.metadata.store import Entry
from strom.record.checksum import crc32c
from strom.runtime.files import LocalFiles

KEYS = st.sampled_from(["a", "b/1", "b/2", "ü"])
VALUES = st.binary(max_size=20)
UPDATES = st.lists(
    st.builds(Put, KEYS, VALUES) | st.builds(Delete, KEYS), max_size=4, unique_by=lambda u: u.key
)


def parse(content: bytes) -> second_copy.CopyState:
    return second_copy._parse(content, "metadata.copy")


def replay(commits: list[list[Update]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for version, updates in enumerate(commits, 1):
        for update in updates:
            entries.pop(update.key, None)
            if isinstance(update, Put):
                entries[update.key] = Entry(update.value, version)
    return entries


@settings(max_examples=60, deadline=None)
@given(st.lists(UPDATES, max_size=6), st.integers(0, 6))
def test_what_was_committed_is_read_back_whether_or_not_it_was_compacted(
    commits: list[list[Update]], compacted: int
) -> None:
    compacted = min(compacted, len(commits))
    content = encode_header() + encode_snapshot(compacted, replay(commits[:compacted]))
    for version, updates in enumerate(commits[compacted:], compacted + 1):
        content += encode_commit(version, updates)
    state = parse(content)
    assert (state.found, state.damage, state.version) == (True, None, len(commits))
    assert state.entries == replay(commits)


def test_every_flipped_bit_is_noticed() -> None:
    content = encode_header() + encode_snapshot(1, {"a": Entry(b"x", 1)}) + encode_commit(2, [Put("b", b"y")])
    for position in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        assert parse(bytes(flipped)).damage is not None


def test_every_torn_end_is_noticed_and_what_came_before_is_kept() -> None:
    whole = encode_header() + encode_snapshot(1, {"a": Entry(b"x", 1)})
    content = whole + encode_commit(2, [Put("b", b"y")])
    for size in range(len(content)):
        state = parse(content[:size])
        assert (state.damage is None) == (size == len(whole))
        assert state.version == (1 if size >= len(whole) else 0)


def test_a_skipped_version_is_noticed() -> None:
    content = encode_header() + encode_snapshot(1, {}) + encode_commit(3, [Put("a", b"")])
    assert parse(content).damage is not None


def test_a_second_snapshot_is_noticed() -> None:
    assert parse(encode_header() + encode_snapshot(1, {}) + encode_snapshot(2, {})).damage is not None


def test_a_change_that_contradicts_itself_is_noticed_even_under_a_right_checksum() -> None:
    for change in (
        b"\x01",
        layout.CHANGE_HEAD.pack(layout.CHANGE_PUT, 5, 0, 1),
        layout.CHANGE_HEAD.pack(9, 0, 0, 1),
    ):
        record = second_copy._encode_record(layout.KIND_SNAPSHOT, 1, [change])
        assert parse(encode_header() + record).damage is not None


def test_a_newer_format_is_refused_not_taken_for_damage() -> None:
    facts = layout.COPY_HEADER.pack(layout.COPY_MAGIC, layout.FORMAT + 1, 0)[:-4]
    with pytest.raises(NewerFormat):
        parse(facts + crc32c(facts).to_bytes(4, "little"))


def test_the_end_is_found_without_reading_the_rest(tmp_path: Path) -> None:
    copy = SecondCopy(LocalFiles(), str(tmp_path))
    assert copy.end_version() is None
    copy.rewrite(4, {"a": Entry(b"x", 3)})
    assert copy.end_version() == 4
    position = copy.append(5, [Put("b", b"y")])
    assert copy.end_version() == 5
    copy.cut_back(position)
    assert copy.end_version() == 4
    with open(copy.path, "ab") as file:
        file.write(b"torn")
    assert copy.end_version() is None


def test_an_end_that_points_outside_the_file_is_not_followed(tmp_path: Path) -> None:
    copy = SecondCopy(LocalFiles(), str(tmp_path))
    content = encode_header() + b"\x00" * 20 + layout.RECORD_FOOT.pack(1, 2**32 - 1, 0)
    Path(copy.path).write_bytes(content)
    assert copy.end_version() is None
    Path(copy.path).write_bytes(b"short")
    assert copy.end_version() is None
