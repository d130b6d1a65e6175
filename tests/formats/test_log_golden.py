"""A log written by the first version is read by every later one.

The folder ``log/v1`` was written once and never changes: two segments, two epochs, one writer, batches with and
without statistics, compressed and not, the last segment with a batch large enough for checksums per buffer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from log.workbench import NUMBERS, START_MS, Workbench, append_bytes, batch_bytes, timestamps_of
from strom.log import layout as at
from strom.runtime.files import LocalFiles

GOLDEN = Path(__file__).parent / "log" / "v1"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """The golden log, in a folder of its own."""
    shutil.copytree(GOLDEN / "folder", tmp_path / "0")
    return Workbench(LocalFiles(), folder=str(tmp_path / "0"))


def rows() -> list[tuple[int, int]]:
    return [(offset, offset) for offset in range(EXPECTED["end_offset"])]


def test_an_old_log_is_read(bench: Workbench) -> None:
    assert bench.log.report.clean
    assert bench.read() == rows()
    assert bench.read(projection=NUMBERS) == rows()
    assert [start.start_offset for start in bench.log.epochs.starts[:-1]] == EXPECTED["epoch_starts"]
    found = bench.log.read(0, until=bench.log.end_offset, max_bytes=10**7)
    assert [list(stamp) for stamp in timestamps_of(found)] == EXPECTED["stamps"]
    repeated = append_bytes(bench.log, batch_bytes(0, EXPECTED["writer_rows"], writer_id=7, sequence=4))
    assert repeated.duplicate


def test_an_old_log_goes_on(bench: Workbench) -> None:
    bench.now_ms = START_MS + 10**6
    appended = append_bytes(bench.log, batch_bytes(EXPECTED["end_offset"], 2), now_ms=bench.now_ms)
    assert appended.base_offset == EXPECTED["end_offset"]
    bench.reopen()
    assert bench.read() == [*rows(), *((n, n) for n in range(appended.base_offset, appended.next_offset))]


def test_an_old_log_without_its_derived_files_is_read(bench: Workbench) -> None:
    bench.log.close()
    for name in bench.names():
        if not name.endswith(at.LOG_SUFFIX):
            bench.disk.remove(bench.path(name))
    bench.log = bench._open()
    assert bench.read() == rows()
    assert bench.read(projection=NUMBERS) == rows()


def test_what_is_derived_from_an_old_log_is_what_it_was(bench: Workbench) -> None:
    """Indexes are made again byte for byte; so is everything in an entry that the batch itself knows."""
    before = {name: bench.disk.read_whole(bench.path(name)) for name in bench.names(at.INDEX_SUFFIX)}
    bench.log.close()
    for name in before:
        bench.disk.remove(bench.path(name))
    bench.log = bench._open()
    bench.check_all_indexes()
    bench.log.mend()
    assert {name: bench.disk.read_whole(bench.path(name)) for name in before} == before
