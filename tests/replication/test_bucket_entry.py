"""The bucket's entry: what is written is read, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.errors import MetadataCorrupt
from strom.model.document import canonical
from strom.replication.bucket_entry import (
    Assignment,
    BucketEntry,
    BucketOutline,
    decode_bucket,
    encode_bucket,
    may_name,
    outline_bucket,
)
from strom.replication.member import CopyIdentity, Member, identity_of
from strom.replication.registration import DataDisk, Registration

ENTRY = BucketEntry(
    replicas=(Assignment(4, 1), Assignment(2, 1), Assignment(7, 3)),
    wanted=(7, 4, 2),
    leader=4,
    incarnation=99,
    epoch=12,
    in_sync=(Member(2, CopyIdentity("d2", 1, 5)), Member(4, CopyIdentity("d4", 1, 1))),
    losses=1,
    drawn=3,
)


@st.composite
def _entries(draw: st.DrawFn) -> BucketEntry:
    servers = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6, unique=True))
    drawn = draw(st.integers(1, 2**63 - 1))
    replicas = tuple(Assignment(one, draw(st.integers(1, drawn))) for one in servers)
    in_sync = sorted(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    return BucketEntry(
        replicas,
        tuple(draw(st.permutations(servers))),
        leader=draw(st.sampled_from(in_sync)).server_id,
        incarnation=draw(st.integers(0, 2**63 - 1)),
        epoch=draw(st.integers(0, 2**31 - 1)),
        in_sync=tuple(
            Member(server, CopyIdentity(f"disk-{server}", placement, draw(st.integers(0, 2**63 - 1))))
            for server, placement in in_sync
        ),
        losses=draw(st.integers(0, 2**63 - 1)),
        drawn=drawn,
    )


@st.composite
def _whole_entries(draw: st.DrawFn) -> BucketEntry:
    """Entries that lack nothing, with small numbers, so that a changed one is likely to name another copy."""
    count = draw(st.integers(1, 4))
    servers = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count, unique=True))
    replicas = tuple(Assignment(one, draw(st.integers(1, 12))) for one in servers)
    return BucketEntry(
        replicas,
        tuple(draw(st.permutations(servers))),
        leader=draw(st.sampled_from(servers)),
        incarnation=draw(st.integers(0, 99)),
        epoch=draw(st.integers(0, 99)),
        in_sync=tuple(sorted(Member(one, CopyIdentity(f"d{one}", placement)) for one, placement in replicas)),
        drawn=draw(st.integers(max(one.placement for one in replicas), 20)),
    )


@given(_entries())
def test_what_is_written_is_read(entry: BucketEntry) -> None:
    assert decode_bucket("replicas/1/-/0", encode_bucket(entry)) == entry


@given(_entries())
def test_an_outline_says_what_the_entry_says(entry: BucketEntry) -> None:
    lacking = len(entry.in_sync) < len(entry.wanted) or entry.moving or entry.losses > 0
    expected = BucketOutline(entry.leader, entry.incarnation, list(entry.servers), lacking)
    assert outline_bucket("replicas/1/-/0", encode_bucket(entry)) == expected


@given(_whole_entries(), st.data())
def test_a_quick_look_at_an_entry_finds_what_a_thorough_one_finds(
    entry: BucketEntry, data: st.DataObject
) -> None:
    value = encode_bucket(entry)
    assert (
        _quick_and_thorough(value)
        == [BucketOutline(entry.leader, entry.incarnation, list(entry.servers), False)] * 2
    )
    digits = [at for at, one in enumerate(value) if chr(one).isdigit()]
    at = data.draw(st.sampled_from(digits))
    put = data.draw(st.sampled_from([b"", b"0", b"1", b"7", b"-", b"99999999999999999999"]))
    quick, thorough = _quick_and_thorough(value[:at] + put + value[at + 1 :])
    assert quick == thorough


WHOLE = replace(
    ENTRY,
    losses=0,
    in_sync=tuple(
        Member(one, CopyIdentity(f"d{one}", placement)) for one, placement in sorted(ENTRY.replicas)
    ),
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("leader", 5),
        ("leader", 2**31),
        ("in_sync", [[4, "d4", 1, 0], [2, "d2", 1, 0], [7, "d7", 3, 0]]),
        ("in_sync", [[2, "d2", 1, 0], [2, "d2", 1, 0], [7, "d7", 3, 0]]),
        ("in_sync", [[2, "d2", 1, 0], [4, "d4", 1, 0], [8, "d8", 3, 0]]),
        ("in_sync", [[2, "", 1, 0], [4, "d4", 1, 0], [7, "d7", 3, 0]]),
        ("in_sync", [[2, "d" * 65, 1, 0], [4, "d4", 1, 0], [7, "d7", 3, 0]]),
        ("replicas", [[4, 1], [2, 1], [2, 3]]),
        ("replicas", [[4, 0], [2, 1], [7, 3]]),
        ("replicas", [[4, 1], [2, 1], [7, 4]]),
        ("wanted", [7, 4, 4]),
        ("epoch", 2**31),
        ("incarnation", 2**63),
        ("drawn", 0),
    ],
)
def test_a_quick_look_believes_nothing_that_a_thorough_one_refuses(key: str, value: object) -> None:
    written = canonical(json.loads(encode_bucket(WHOLE)) | {key: value}).encode()
    assert _quick_and_thorough(written) == [None, None]


def test_a_quick_look_knows_the_numbers_that_json_has_not() -> None:
    written = encode_bucket(WHOLE)
    for number, other in (
        (b'"epoch":12', b'"epoch":012'),
        (b"[4,1]", b"[+4,1]"),
        (b'"leader":4', b'"leader":4.0'),
    ):
        assert _quick_and_thorough(written.replace(number, other)) == [None, None]


def test_a_server_beyond_the_highest_number_is_found_in_both_looks() -> None:
    assert _quick_and_thorough(encode_bucket(WHOLE).replace(b"7", b"%d" % 2**31)) == [None, None]


def _quick_and_thorough(value: bytes) -> list[BucketOutline | None]:
    """What is found in an entry as we write it, and in one with blanks, which only a thorough look reads."""
    found: list[BucketOutline | None] = []
    for written in (value, value.replace(b",", b", ")):
        try:
            found.append(outline_bucket("r", written))
        except MetadataCorrupt:
            found.append(None)
    return found


def test_a_bucket_on_the_move_or_with_fewer_copies_in_sync_or_with_losses_lacks_something() -> None:
    whole = replace(ENTRY, losses=0, wanted=(2, 4), replicas=ENTRY.replicas[:2])
    kinds = (
        whole,
        replace(whole, losses=1),
        replace(whole, wanted=(4, 7)),
        whole.with_in_sync(whole.in_sync[1:]),
    )
    assert [outline_bucket("r", encode_bucket(one)).lacking for one in kinds] == [False, True, True, True]
    assert [one.moving for one in kinds] == [False, False, True, False], "in whatever order its copies are"


@given(_entries(), st.integers(0, 2**31 - 1))
def test_an_entry_that_names_a_server_is_never_passed_over(entry: BucketEntry, other: int) -> None:
    value = encode_bucket(entry)
    assert all(may_name(value, one) for one in entry.servers)
    assert may_name(json.dumps(json.loads(value)).encode(), other), "not as we write it: read it to be sure"


def test_most_entries_of_others_are_passed_over() -> None:
    assert [one for one in range(10) if may_name(encode_bucket(ENTRY), one)] == [2, 4, 7]


def test_the_value_is_the_documented_one() -> None:
    assert encode_bucket(ENTRY).decode() == (
        '{"drawn":3,"epoch":12,"in_sync":[[2,"d2",1,5],[4,"d4",1,1]],"incarnation":99,"leader":4,"losses":1,'
        '"replicas":[[4,1],[2,1],[7,3]],"wanted":[7,4,2]}'
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replicas", []),
        ("replicas", [[4, 1], [4, 2], [2, 1]]),
        ("replicas", [[4, 0], [2, 1]]),
        ("replicas", [[4, 1, 1], [2, 1]]),
        ("replicas", "42"),
        ("replicas", [[4, 1, 1], [2, 1, 1], [7, 3, 1]]),
        ("wanted", []),
        ("wanted", [1, 1]),
        ("wanted", [True]),
        ("leader", 7),
        ("leader", -1),
        ("incarnation", 1.5),
        ("epoch", 2**31),
        ("in_sync", []),
        ("in_sync", [[4, "d4", 1, 1], [2, "d2", 1, 5]]),
        ("in_sync", [[4, "d4", 1, 1], [4, "d5", 1, 1]]),
        ("in_sync", [[4, "", 1, 1]]),
        ("in_sync", [[4, "ä", 1, 1]]),
        ("in_sync", [[4, "d4", 1, 1], [9, "d9", 1, 1]]),
        ("losses", -1),
        ("drawn", 2),
    ],
)
def test_an_impossible_entry_is_refused(key: str, value: object) -> None:
    document = json.loads(encode_bucket(ENTRY)) | {key: value}
    for read in (decode_bucket, outline_bucket):
        with pytest.raises(MetadataCorrupt, match="replicas/1/-/0"):
            read("replicas/1/-/0", json.dumps(document).encode())


def test_an_entry_without_its_leader_in_sync_is_not_written() -> None:
    with pytest.raises(AssertionError, match="leader"):
        encode_bucket(ENTRY.with_in_sync(ENTRY.in_sync[:1]))


@given(st.binary(max_size=80))
def test_any_bytes_are_an_entry_or_refused(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        decode_bucket("replicas/1/-/0", value)


def test_under_group_an_unclean_end_changes_no_identity_and_under_os_it_does() -> None:
    before, after = (Registration(1, run, (DataDisk("d", run),)) for run in (1, 2))
    for durability, same in (("group", True), ("os", False)):
        identity = identity_of("d", 1, before.disks[0].lineage, durability)  # type: ignore[arg-type]
        assert after.holds(identity, durability) is same  # type: ignore[arg-type]


def test_a_replaced_disk_is_another_copy_under_either_promise() -> None:
    registration = Registration(1, 1, (DataDisk("new", 1), DataDisk("second", 4)))
    assert not registration.holds(CopyIdentity("old", 1, 1), "os")
    assert not registration.holds(CopyIdentity("old", 1), "group")
    assert registration.holds(CopyIdentity("second", 1, 4), "os")
