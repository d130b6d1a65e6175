"""Many reads at once fill what they should, and say when a file ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.runtime.files import LocalFiles
from strom.server.tablets.parallel_reads import DEPTH, TOGETHER, ParallelReads

SIZE = 16


@pytest.mark.parametrize("count", [0, 1, 2 * TOGETHER, DEPTH * TOGETHER + 1, 1_000])
def test_every_room_is_filled_from_its_place(tmp_path: Path, count: int) -> None:
    content = b"".join(number.to_bytes(SIZE, "little") for number in range(1_000))
    (tmp_path / "f").write_bytes(content)
    file, room = LocalFiles().open(str(tmp_path / "f")), memoryview(bytearray(SIZE * count))
    places = [(number * 7) % 1_000 for number in range(count)]
    reads = [(file, SIZE * at, room[SIZE * n : SIZE * (n + 1)]) for n, at in enumerate(places)]
    read = ParallelReads()
    assert read(reads)
    assert bytes(room) == b"".join(at.to_bytes(SIZE, "little") for at in places)
    if count:
        assert not read([*reads[:-1], (file, len(content) - 1, reads[-1][2])])
