"""A map that shares: it behaves as a dict does, its older copies stay, and a change costs what it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strom.metadata.sharing_map import SHARD_ENTRIES, SharingMap

KEYS = st.one_of(st.integers(0, 400).map(str))
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.integers(), max_size=300), st.lists(KEYS, max_size=30)))


@given(STEPS)
def test_it_behaves_as_a_dict_and_older_copies_stay(steps: list[tuple[dict[str, int], list[str]]]) -> None:
    found: SharingMap[str, int] = SharingMap()
    model: dict[str, int] = {}
    copies: list[tuple[SharingMap[str, int], dict[str, int]]] = []
    for put, gone in steps:
        copies.append((found, dict(model)))
        found = found.changed(put, gone)
        for key in gone:
            model.pop(key, None)
        model.update(put)
    copies.append((found, model))
    for kept, expected in copies:
        assert dict(kept.items()) == expected
        assert len(kept) == len(expected)
        assert all(kept[key] == value and kept.get(key) == value for key, value in expected.items())
        assert "401" not in kept
        assert kept.get("401") is None


def test_numbers_are_keys_too() -> None:
    found = SharingMap.of({number: -number for number in range(1_000)}).changed({5: 1}, [7])
    assert (found[5], found.get(7), len(found)) == (1, None, 999)


def test_a_change_copies_one_shard_of_many() -> None:
    before = SharingMap.of({number: number for number in range(100_000)})
    after = before.changed({5: -5})
    copied = [one for one, other in zip(after._shards, before._shards, strict=True) if one is not other]
    assert len(copied) == 1
    assert len(copied[0]) <= 2 * SHARD_ENTRIES


def test_a_map_that_grows_entry_by_entry_keeps_its_shards_small() -> None:
    found: SharingMap[int, int] = SharingMap()
    for number in range(5_000):
        found = found.changed({number: number})
    assert max(map(len, found._shards)) <= 4 * SHARD_ENTRIES


def test_the_order_of_texts_is_the_same_in_every_process() -> None:
    found = SharingMap.of({f"key {number}": number for number in range(200)})
    assert list(found)[:4] == ["key 4", "key 6", "key 15", "key 17"]
