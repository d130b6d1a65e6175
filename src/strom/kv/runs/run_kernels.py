"""Kernels over runs: filters and fences, and the entries of pages."""

from __future__ import annotations

from typing import Any

from strom.kv.arrays import Hashes, Int32s, Int64s, Octets
from strom.kv.kernels.compile import (
    boolean,
    fold_multiply,
    int32,
    int64,
    kernel,
    load_i64,
    load_u32,
    load_u64,
    ro,
    rw,
    store_i64,
    store_u32,
    store_u64,
    uint8,
    uint32,
    uint64,
    void,
)
from strom.kv.runs.run_layout import (
    BITS_MIX,
    BLOCK_BYTES,
    BLOCK_MIX,
    ENTRY,
    FILTER_PROBES,
    PAGE_BYTES,
    PAGE_ENTRIES,
    PAGE_HEADER,
)

FILTER, BLOCKS, FENCES, PAGES = 0, 1, 2, 3
RUN_FIELDS = 4
_HEADER, _ENTRY = PAGE_HEADER.size, ENTRY.size
_BLOCK_XOR, _BLOCK_BY = BLOCK_MIX
_BITS_XOR, _BITS_BY = BITS_MIX
_ENTRIES_AT, _NUMBER_AT = 4, 8


@kernel()
def _block_of(value: Any, blocks: int) -> int:
    mixed = fold_multiply(value ^ uint64(_BLOCK_XOR), uint64(_BLOCK_BY))
    return int64(((mixed >> uint64(32)) * uint64(blocks)) >> uint64(32))  # type: ignore[no-any-return]


@kernel()
def _may_have(words: int, blocks: int, value: Any) -> bool:
    block = words + _block_of(value, blocks) * BLOCK_BYTES
    bits = fold_multiply(value ^ uint64(_BITS_XOR), uint64(_BITS_BY))
    for probe in range(FILTER_PROBES):
        bit = (bits >> uint64(9 * probe)) & uint64(511)
        word = load_u64(block + int64(bit >> uint64(6)) * 8)
        if word & (uint64(1) << (bit & uint64(63))) == 0:
            return False
    return True


@kernel(void(ro(uint64), rw(uint64)))
def fill_filter(hashes: Hashes, words: Hashes) -> None:
    """Set the bits of these hashes."""
    blocks = len(words) * 8 // BLOCK_BYTES
    for i in range(len(hashes)):
        block = _block_of(hashes[i], blocks) * (BLOCK_BYTES // 8)
        bits = fold_multiply(hashes[i] ^ uint64(_BITS_XOR), uint64(_BITS_BY))
        for probe in range(FILTER_PROBES):
            bit = (bits >> uint64(9 * probe)) & uint64(511)
            words[block + int64(bit >> uint64(6))] |= uint64(1) << (bit & uint64(63))


@kernel()
def _page_of(fences: int, pages: int, value: Any) -> int:
    """The page in which entries with this hash begin if there are any, or -1."""
    low, high = 0, pages  # the first page whose fence is not below the hash
    while low < high:
        middle = (low + high) >> 1
        if load_u64(fences + middle * 8) < value:
            low = middle + 1
        else:
            high = middle
    if low < pages and load_u64(fences + low * 8) == value:
        return low
    return low - 1


@kernel(int64(ro(uint64), int64, ro(int32), ro(int64), ro(int64, 2), rw(int64), rw(int64)))
def ask_filters(
    hashes: Hashes, shift: int, directory: Int32s, starts: Int64s, runs: Int64s, run: Int64s, page: Int64s
) -> int:
    """For each hash the newest run before ``run`` (-1: of all) that may have it, and where; -1 where none does.

    Returns how many have one.
    """
    found = 0
    for i in range(len(hashes)):
        value = hashes[i]
        tile = int64(directory[int64((value >> uint64(1)) >> uint64(shift))])
        at = (starts[tile + 1] if run[i] < 0 else run[i]) - 1
        place = -1
        while at >= starts[tile]:
            if _may_have(runs[at, FILTER], runs[at, BLOCKS], value):
                place = _page_of(runs[at, FENCES], runs[at, PAGES], value)
                if place >= 0:
                    break
            at -= 1
        if place < 0:
            run[i], page[i] = -1, -1
        else:
            run[i], page[i] = at, place
            found += 1
    return found


@kernel(void(ro(uint8, 2), ro(int64), ro(uint64), rw(int64), rw(int64)))
def find_in_pages(room: Octets, place: Int64s, hashes: Hashes, first: Int64s, count: Int64s) -> None:
    """In the page at ``place`` of ``room``: the first entry with each hash, and how many there are.

    The count is negative when the last one ends the page: the next page may have more.
    """
    for i in range(len(hashes)):
        page = room.ctypes.data + place[i] * PAGE_BYTES
        entries = int64(load_u32(page + _ENTRIES_AT))
        low, high = 0, entries
        while low < high:
            middle = (low + high) >> 1
            if load_u64(page + _HEADER + middle * _ENTRY) < hashes[i]:
                low = middle + 1
            else:
                high = middle
        end = low
        while end < entries and load_u64(page + _HEADER + end * _ENTRY) == hashes[i]:
            end += 1
        first[i] = low
        count[i] = low - end if end == entries else end - low


@kernel(void(ro(uint8, 2), ro(int64), ro(int64), ro(int64), rw(int64), rw(int64)))
def take_versions(
    room: Octets, place: Int64s, first: Int64s, count: Int64s, which: Int64s, versions: Int64s
) -> None:
    """The versions that ``find_in_pages`` found (counts positive here), and which question each answers."""
    at = 0
    for i in range(len(place)):
        entry = room.ctypes.data + place[i] * PAGE_BYTES + _HEADER + first[i] * _ENTRY
        for k in range(count[i]):
            which[at] = i
            versions[at] = load_i64(entry + k * _ENTRY + 8)
            at += 1


@kernel()
def _group_end(hashes: Hashes, start: int) -> int:
    end = start + 1
    while end < len(hashes) and hashes[end] == hashes[start]:
        end += 1
    return end


@kernel(int64(ro(uint64), ro(int64), rw(uint8, 2), rw(uint64)))
def fill_pages(hashes: Hashes, versions: Int64s, pages: Octets, fences: Hashes) -> int:
    """Write rising entries into zeroed pages, without checksums; returns the number of pages, or -1: no room.

    Entries with one hash stay together, unless they are more than fill a page.
    """
    page, used = -1, PAGE_ENTRIES
    start = 0
    while start < len(hashes):
        end = _group_end(hashes, start)
        if used + end - start > PAGE_ENTRIES:
            used = PAGE_ENTRIES  # a new page
        for i in range(start, end):
            if used == PAGE_ENTRIES:
                page, used = page + 1, 0
                if page == len(pages):
                    return -1
                fences[page] = hashes[i]
                store_i64(pages.ctypes.data + page * PAGE_BYTES + _NUMBER_AT, page)
            at = pages.ctypes.data + page * PAGE_BYTES
            store_u64(at + _HEADER + used * _ENTRY, hashes[i])
            store_i64(at + _HEADER + used * _ENTRY + 8, versions[i])
            used += 1
            store_u32(at + _ENTRIES_AT, uint32(used))
        start = end
    return page + 1


@kernel(int64(ro(uint8, 2), int64, rw(uint64), rw(int64)))
def take_pages(pages: Octets, number: int, hashes: Hashes, versions: Int64s) -> int:
    """The entries of pages from ``number`` on; -1 when they are too many, fall, or a page is another one."""
    count = 0
    for page in range(len(pages)):
        at = pages.ctypes.data + page * PAGE_BYTES
        entries = int64(load_u32(at + _ENTRIES_AT))
        if (
            entries > PAGE_ENTRIES
            or load_i64(at + _NUMBER_AT) != number + page
            or count + entries > len(hashes)
        ):
            return -1
        for k in range(entries):
            hashes[count] = load_u64(at + _HEADER + k * _ENTRY)
            versions[count] = load_i64(at + _HEADER + k * _ENTRY + 8)
            if count > 0 and hashes[count] < hashes[count - 1]:
                return -1
            count += 1
    return count


@kernel(int64(ro(uint8, 2), ro(int64)))
def strange_page(room: Octets, numbers: Int64s) -> int:
    """The first page that is not the one of its number, or has an impossible number of entries; -1: none."""
    for i in range(len(numbers)):
        at = room.ctypes.data + i * PAGE_BYTES
        if load_i64(at + _NUMBER_AT) != numbers[i] or not 0 < load_u32(at + _ENTRIES_AT) <= PAGE_ENTRIES:
            return i
    return -1


@kernel(int64(ro(uint64), ro(int64), ro(uint64), ro(int64), rw(uint64), rw(int64), boolean))
def merge_newer(
    old_hashes: Hashes,
    old: Int64s,
    new_hashes: Hashes,
    new: Int64s,
    hashes: Hashes,
    versions: Int64s,
    drop: bool,
) -> int:
    """Merge two runs: what the newer one says about a hash is all. ``drop``: leave out the hashes that are gone."""
    i, j, count = 0, 0, 0
    while i < len(old_hashes) or j < len(new_hashes):
        if j == len(new_hashes) or (i < len(old_hashes) and old_hashes[i] < new_hashes[j]):
            hashes[count], versions[count] = old_hashes[i], old[i]
            i, count = i + 1, count + 1
            continue
        value = new_hashes[j]
        while i < len(old_hashes) and old_hashes[i] == value:
            i += 1
        while j < len(new_hashes) and new_hashes[j] == value:
            if new[j] >= 0 or not drop:
                hashes[count], versions[count] = value, new[j]
                count += 1
            j += 1
    return count
