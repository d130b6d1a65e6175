"""A map of all entries: it behaves as a dict does, its older copies stay, and many entries take little memory."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from strom.metadata.entry_map import EntryMap
from strom.metadata.packed_block import PackedBlock, StoredEntry
from strom.metadata.packed_entries import PACKED_FROM_SHARDS, SHARD_ENTRIES
from strom.metadata.store import Entry

MANY = 2 * PACKED_FROM_SHARDS * SHARD_ENTRIES
"""Entries of one kind that are packed."""

KEYS = [f"replicas/{number % 3}/-/{number}" for number in range(40)]
KEYS += ["head", "a", "größe/ü", "servers/1", "servers/10", "servers/1/1", "replicas/1", "re/plicas/1"]
Steps = list[tuple[dict[str, bytes], list[str]]]


def drawn(seed: int) -> Steps:
    """What is put and what is removed, step by step."""
    draw = Random(seed)
    return [
        (
            {key: draw.randbytes(draw.randrange(9)) for key in draw.choices(KEYS, k=draw.randrange(12))},
            draw.choices(KEYS, k=draw.randrange(6)),
        )
        for _ in range(10)
    ]


def many(count: int = MANY) -> dict[str, Entry]:
    draw = Random(3)
    return {
        f"replicas/{one % 7}/-/{one}": Entry(draw.randbytes(40).hex().encode(), one) for one in range(count)
    }


@pytest.mark.parametrize("seed", range(40))
def test_it_behaves_as_a_dict_and_older_copies_stay(seed: int) -> None:
    assert not disagreements(EntryMap(), {}, drawn(seed))


@pytest.mark.parametrize("seed", range(10))
def test_so_it_does_beside_many_packed_entries(seed: int) -> None:
    assert not disagreements(PACKED, MANY_ENTRIES, drawn(seed))


def disagreements(found: EntryMap, model: Mapping[str, Entry], steps: Steps) -> list[object]:
    """In what the maps of all steps differ from dicts that had the same steps."""
    copies: list[tuple[EntryMap, dict[str, Entry]]] = [(found, dict(model))]
    for version, (values, gone) in enumerate(steps, MANY):
        put = {key: Entry(value, version) for key, value in values.items()}
        found = found.changed(put, gone)
        model = {key: entry for key, entry in model.items() if key not in gone} | put
        copies.append((found, dict(model)))
    named = {key for values, gone in steps for key in (*values, *gone)}
    wrong: list[object] = []
    for step, (kept, expected) in enumerate(copies):
        if len(kept) != len(expected):
            wrong.append((step, len(kept), len(expected)))
        for key in named | {"gone", "replicas/4/-/39"}:
            entry = expected.get(key)
            version = None if entry is None else entry.version
            if (kept.get(key), key in kept, kept.version_of(key)) != (entry, entry is not None, version):
                wrong.append((step, key, kept.get(key), entry))
    older, before = copies[0]
    newer = {key: model[key] for key in named & model.keys() if before.get(key) != model[key]}
    if found.newer_than(older) != newer or sorted(found.gone_since(older)) != sorted(
        before.keys() - model.keys()
    ):
        wrong.append(("the difference to the first", found.newer_than(older), found.gone_since(older)))
    return wrong


MANY_ENTRIES = many()
PACKED = EntryMap.of(MANY_ENTRIES)


def test_what_is_packed_is_what_was_put() -> None:
    assert dict(PACKED) == MANY_ENTRIES
    assert dict(PACKED.items()) == MANY_ENTRIES
    assert dict(PACKED.below("replicas/3/")) == {
        key: entry for key, entry in MANY_ENTRIES.items() if key.startswith("replicas/3/")
    }


def test_entries_stay_what_they_are_while_they_are_packed_again_and_again() -> None:
    draw, found, model = Random(5), PACKED, dict(MANY_ENTRIES)
    for version in range(MANY, MANY + 20):
        put = {key: Entry(b"%d" % version, version) for key in draw.sample(sorted(model), MANY // 4)}
        gone = draw.sample(sorted(model), MANY // 50)
        found = found.changed(put, gone)
        model = {key: entry for key, entry in model.items() if key not in gone} | put
    assert len(found) == len(model)
    assert dict(found.items()) == model
    assert set(found) == set(model)


def test_a_change_of_few_entries_shares_the_blocks_of_all_others() -> None:
    before, after = (
        PACKED.of_kind("replicas/"),
        PACKED.changed({"replicas/1/-/1": Entry(b"x", MANY)}).of_kind("replicas/"),
    )
    assert list(after.newer_than(before)) == ["replicas/1/-/1"]
    assert after._blocks is before._blocks


def test_a_version_is_known_without_unpacking_a_value() -> None:
    block = PackedBlock({key: StoredEntry(*entry, 7) for key, entry in MANY_ENTRIES.items()})
    block._values = b"what nobody can unpack"
    place = block.find("replicas/5/-/12")
    assert (block.version(place), block.node(place)) == (12, 7)
    assert block.find("replicas/5/-/1") < 0
    assert block.find("/5/-/12") < 0


def test_only_blocks_that_may_hold_what_is_looked_for_are_unpacked_into_entries() -> None:
    looked_for = MANY_ENTRIES["replicas/4/-/1236"].value
    asked: list[int] = []

    def may_want(value: bytes) -> bool:
        asked.append(len(value))
        return looked_for in value

    assert list(PACKED.of_kind("replicas/").each(may_want)) == [
        ("replicas/4/-/1236", MANY_ENTRIES["replicas/4/-/1236"])
    ]
    assert len(asked) < MANY / 4
