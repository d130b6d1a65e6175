"""Hostile batches, made from good ones by seeded changes that know the format, and from noise.

Whatever the bytes are, every entrance answers with a result or a typed error. A crash of pyarrow would take the
test process with it, which is the point. A failure names its seed: ``exercise(mutated(random.Random(seed)))``.
"""

from __future__ import annotations

import os
import random
import resource
import struct
import time
from collections.abc import Callable

import pytest

from record.batches import resealed
from record.malformed import LAYOUT, LIMITS, ROWS, SCHEMA, good
from strom.errors import StromError
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.record import layout as at
from strom.record import statistics
from strom.record.batch import check, read_columns, read_header, split
from strom.record.decode import changes, decode, offsets
from strom.record.encode import encode
from strom.record.filter import RowFilter
from strom.record.project import Projection, project_batch
from strom.record.prune import Pruner

INTERESTING = [0, 1, 2, 3, 4, 7, 8, 16, 23, 24, 25, 63, 64, 127, 128, 255, 256, 4096, 65535, 65536, 2**24]
INTERESTING += [2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 2, 2**64 - 1]
SEEDS = [
    bytes(good()),
    bytes(good(compression="LZ4_FRAME")),
    bytes(good(compression="ZSTD")),
    bytes(good(changes=bytes(i % 5 for i in range(ROWS.num_rows)))),
    bytes(encode(ROWS, schema_id=1)),
    bytes(encode(ROWS.slice(0, 0), schema_id=1)),
]
PREDICATE = ((col("id") > 5) & col("name").starts_with("name 1")).check(Schema.from_arrow(SCHEMA))
FILTER = RowFilter(PREDICATE, SCHEMA, [0, 3], decompressed_bytes_max=1 << 20)
PRUNER = Pruner(PREDICATE, SCHEMA)
PROJECTION = Projection(LAYOUT, [1, 3, 5])
BATCH_COUNT = 3_000


def mutated(chance: random.Random) -> bytes:
    """A good batch with up to four changes; mostly with length and checksum made right again."""
    batch = bytearray(chance.choice(SEEDS))
    header = read_header(batch)
    head_size = read_columns(batch, header).head_size
    for _ in range(chance.randint(1, 4)):
        _change(chance, batch, head_size)
    if chance.random() < 0.85 and len(batch) >= at.HEADER_SIZE_MIN:
        try:
            resealed(batch)
        except StromError:
            pass  # the header itself was changed beyond reading
    return bytes(batch)


def _change(chance: random.Random, batch: bytearray, head_size: int) -> None:
    kind = chance.random()
    if kind < 0.1:
        del batch[chance.randrange(len(batch) + 1) :]
    elif kind < 0.15:
        batch += chance.randbytes(chance.randint(1, 64))
    elif kind < 0.2 and len(batch) > 16:
        start = chance.randrange(len(batch) - 8)
        batch[start : start + chance.randint(1, 8)] = b""
    elif len(batch) >= 16:
        # Mostly the head: that is where the format is. Sometimes the sizes and offsets in the body.
        end = min(head_size, len(batch)) if chance.random() < 0.8 else len(batch)
        code = chance.choice("BHIQ")
        width = struct.calcsize(code)
        position = chance.randrange(max(end - width, 1)) // 4 * 4 % (len(batch) - 8)
        value = chance.choice(INTERESTING) if chance.random() < 0.7 else chance.getrandbits(64)
        struct.pack_into("<" + code, batch, position, value % (1 << 8 * width))


def noise(chance: random.Random) -> bytes:
    """Bytes without any form, or a header before them."""
    body = chance.randbytes(chance.choice([0, 1, 12, 48, 60, 200, 2000]))
    if chance.random() < 0.5:
        return body
    count = chance.randint(0, 40)
    head = at.HEADER[0].pack(0, 36 + len(body), 0, 0, 0, 1, 1, max(count - 1, 0), -1, -1, count)
    return bytes(resealed(bytearray(head + body)))


def exercise(view: bytes) -> bool:
    """Go through every entrance; True when the batch would have been stored."""
    stored = _survives(lambda: check(view, layout=LAYOUT, limits=LIMITS))
    _survives(lambda: check(view, layout=None, limits=LIMITS))
    _survives(lambda: split(view))
    _survives(lambda: project_batch(view, PROJECTION))
    _survives(lambda: statistics.read(view, SCHEMA, range(len(SCHEMA))))
    _survives(lambda: changes(view, read_header(view)))
    _survives(lambda: offsets(view, read_header(view)) if read_header(view).record_count < 1 << 20 else None)
    _survives(lambda: FILTER.apply(view, verify=False))
    _survives(lambda: PRUNER.skips(read_header(view), view))
    _survives(lambda: _touch(view))
    return stored


def _touch(view: bytes) -> None:
    """Decode with full validation and read every value."""
    found = decode(view, SCHEMA, check_crc=False, full_validation=True, decompressed_bytes_max=1 << 20)
    assert found.serialize().size > 0


def _survives(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except StromError:
        return False
    return True


def run(make: Callable[[random.Random], bytes], seeds: range) -> int:
    stored = 0
    for seed in seeds:
        view = make(random.Random(seed))
        try:
            stored += exercise(view)
        except BaseException as problem:
            raise AssertionError(f"{make.__name__}, seed {seed}") from problem
    return stored


@pytest.mark.slow
def test_changed_batches_give_a_result_or_a_typed_error() -> None:
    stored = run(mutated, range(BATCH_COUNT))
    assert 0 < stored < BATCH_COUNT / 2


def test_noise_gives_a_typed_error() -> None:
    assert run(noise, range(500)) < 50


@pytest.mark.torture
def test_a_long_campaign_of_changed_batches_stays_within_memory() -> None:
    end = time.monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "1"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, stored = 1_000_000, 0
    while time.monotonic() < end:
        stored += run(mutated, range(start, start + 2_000))
        run(noise, range(start, start + 200))
        start += 2_000
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert stored > 0
    assert grown_kib < 256 * 1024
