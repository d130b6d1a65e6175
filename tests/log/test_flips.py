"""One flipped bit anywhere in a log's folder: detected or harmless, and never the end of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from log.workbench import (
    FOLDER,
    NUMBERS,
    SMALL,
    START_MS,
    Workbench,
    append_bytes,
    batch_bytes,
    numbers_of,
    timestamps_of,
)
from strom.errors import ChecksumMismatch
from strom.log import layout as at
from strom.log.log import Log
from strom.log.opening.inspect import inspect_segment
from strom.log.opening.segment_scan import StoredEntries
from strom.record.checksum import crc32c
from strom.record.project import Projection
from strom.runtime.files import TEMPORARY_SUFFIX
from strom.testing.disk import ForgettingDisk
from strom.testing.disk_state import DiskState

SETTINGS = replace(SMALL, segment_bytes=900, index_interval_bytes=1)
Rows = list[tuple[int, int]]


@pytest.fixture(autouse=True)
def _read_batches_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the small folder has entries of both kinds: with checksums per buffer and without."""
    monkeypatch.setattr(at, "WHOLE_BATCH_BYTES_MAX", 390)


class Folder:
    """A small log's folder, and what it holds."""

    def __init__(self, *, clean: bool) -> None:
        bench = Workbench(segment_bytes=900, index_interval_bytes=1)
        for number, count in enumerate((1, 3, 2, 1, 4)):
            bench.now_ms += 5
            bench.append(count, writer_id=3, sequence=number)
            bench.sync()
            if number == 2:
                bench.reopen()
        assert bench.log.segment_count == 3
        self.stamps = timestamps_of(bench.log.read(0, until=11, max_bytes=10**6))
        self.epochs = [bench.log.epochs.epoch_of(offset) for offset in range(11)]
        if clean:
            bench.log.close()
        assert isinstance(bench.disk, ForgettingDisk)
        self.disk = bench.disk
        self.batches = bench.batches
        self.rows = bench.rows
        self.now_ms = bench.now_ms
        #: No entry tells that the last batch is durable: a crash may leave it torn.
        self.last_name = bench.names(at.LOG_SUFFIX)[-1]
        self.last_position = list(inspect_segment(bench.disk, bench.path(self.last_name)))[-1].position

    def flipped(self, *suffixes: str, step: int = 1) -> Iterator[tuple[str, int, ForgettingDisk]]:
        """The folder with one bit flipped, for every byte of the files with these names (or every few)."""
        names = [name for name in self.disk.list(FOLDER) if name.endswith(suffixes)]
        assert names
        state = self.disk._state
        for name in names:
            path = f"{FOLDER}/{name}"
            for position in range(0, self.disk.size(path), step):
                copy: DiskState = state.after_crash(True)
                disk = ForgettingDisk(record=False, state=copy)
                disk.flip(path, position, position % 8)
                yield name, position, disk


def read_what_is_sound(
    log: Log, projection: Projection | None = None
) -> tuple[Rows, list[tuple[int, int]], int]:
    """Rows and stamps of every batch that can be read, and how many stretches raised."""
    rows: Rows = []
    stamps: list[tuple[int, int]] = []
    raised, offset = 0, log.start_offset
    while offset < log.end_offset:
        try:
            found = log.read(offset, until=log.end_offset, max_bytes=1, projection=projection)
        except ChecksumMismatch:
            raised += 1
            offset += 1
            while offset < log.end_offset and not can_read(log, offset):
                offset += 1
            continue
        rows += [
            row for row in numbers_of(found, projection.schema if projection else None) if row[0] >= offset
        ]
        stamps += timestamps_of(found)
        offset = found.next_offset
    return rows, stamps, raised


def can_read(log: Log, offset: int) -> bool:
    try:
        log.read(offset, until=log.end_offset, max_bytes=1)
    except ChecksumMismatch:
        return False
    return True


def check_flipped(folder: Folder, disk: ForgettingDisk, *, cut_allowed: bool) -> Log:
    log = Log.open(disk, FOLDER, SETTINGS, folder.now_ms)
    for projection in (None, NUMBERS):
        rows, stamps, raised = read_what_is_sound(log, projection)
        assert raised <= 1
        assert set(rows) <= set(folder.rows), "a wrong row was returned"
        assert set(stamps) <= set(folder.stamps), "a wrong offset or timestamp was returned"
        missing = [batch for batch in folder.batches if not set(batch.rows) <= set(rows)]
        if not raised:
            assert rows == folder.rows[: len(rows)]
        if not cut_allowed:
            assert log.end_offset == 11
            assert len(missing) == raised, "one flip hides one batch at most, and not silently"
    return log


@pytest.mark.parametrize(
    "suffix", [at.LOG_SUFFIX, at.SIDECAR_SUFFIX, at.INDEX_SUFFIX, at.EPOCHS_NAME, at.CHECKPOINT_NAME]
)
def test_after_a_clean_stop_one_flip_hides_one_batch_at_most(suffix: str) -> None:
    folder = Folder(clean=True)
    for name, position, disk in folder.flipped(suffix):
        log = check_flipped(folder, disk, cut_allowed=False)
        if suffix != at.LOG_SUFFIX:
            assert read_what_is_sound(log)[0] == folder.rows, "nothing but batches is needed to read batches"
        if position % 7 == 0:
            check_goes_on(folder, log, disk, name, position)


@pytest.mark.parametrize(
    "suffix", [at.LOG_SUFFIX, at.SIDECAR_SUFFIX, at.INDEX_SUFFIX, at.EPOCHS_NAME, at.CHECKPOINT_NAME]
)
def test_after_a_crash_one_flip_hides_one_batch_or_cuts_the_tail(suffix: str) -> None:
    folder = Folder(clean=False)
    for name, position, disk in folder.flipped(suffix, step=3 if suffix == at.LOG_SUFFIX else 1):
        in_last = name == folder.last_name and position >= folder.last_position
        log = check_flipped(folder, disk, cut_allowed=in_last)
        assert log.end_offset >= folder.batches[-1].base_offset
        if position % 7 == 0:
            check_goes_on(folder, log, disk, name, position)


def check_goes_on(folder: Folder, log: Log, disk: ForgettingDisk, name: str, position: int) -> None:
    """Whatever was flipped, the log takes rows, knows its writer, and opens again."""
    end = log.end_offset
    if end == 11:
        repeated = append_bytes(log, batch_bytes(7, 4, writer_id=3, sequence=4), now_ms=folder.now_ms)
        assert repeated == (7, 11, True), f"{name} at {position}: the writer is forgotten"
    epoch = log.epoch
    assert epoch > max(folder.epochs)
    assert append_bytes(log, batch_bytes(100, 2), now_ms=folder.now_ms).base_offset == end
    log.close()
    again = Log.open(disk, FOLDER, SETTINGS, folder.now_ms)
    assert again.epoch > epoch
    assert [row for row in read_what_is_sound(again)[0] if row[0] >= end] == [(end, 100), (end + 1, 101)]


def test_an_entry_of_another_epoch_is_not_believed() -> None:
    """It was written for a batch that power loss took; the same rows came again at another time."""
    folder = Folder(clean=False)
    name = folder.last_name.replace(at.LOG_SUFFIX, at.SIDECAR_SUFFIX)
    content = folder.disk.read_whole(f"{FOLDER}/{name}")
    entry = next(StoredEntries(folder.disk.open(f"{FOLDER}/{name}")).walk())
    stale = at.ENTRY.pack(*entry._replace(epoch=entry.epoch - 1, timestamp_ms=entry.timestamp_ms - 1))
    rest = (
        stale[at.CHECKSUM_LENGTH :]
        + content[at.SIDECAR_HEADER_SIZE + at.ENTRY_SIZE :][: 4 * entry.buffer_count]
    )
    stale = at.CHECKSUM.pack(crc32c(rest)) + rest
    folder.disk.write_whole(
        f"{FOLDER}/{name}",
        content[: at.SIDECAR_HEADER_SIZE] + stale + content[at.SIDECAR_HEADER_SIZE + len(stale) :],
    )
    folder.disk.remove(f"{FOLDER}/{at.CHECKPOINT_NAME}")
    log = Log.open(folder.disk, FOLDER, SETTINGS, folder.now_ms)
    assert log.report.entries_made == 1
    rows, stamps, raised = read_what_is_sound(log)
    assert (rows, stamps, raised) == (folder.rows, folder.stamps, 0)


@pytest.mark.parametrize("checkpoint", ["none yet", "before", "damaged"])
def test_a_batch_that_was_durable_is_never_cut_whatever_the_checkpoint_says(checkpoint: str) -> None:
    """A later entry records that it was synced. A batch without such a record is torn, and is cut."""
    bench = Workbench(segment_bytes=10**6)
    bench.append()
    if checkpoint != "none yet":
        bench.log.checkpoint()
    bench.append_many(3)
    bench.sync()
    bench.append_many(2)
    path = bench.path(bench.names(at.LOG_SUFFIX)[0])
    assert isinstance(bench.disk, ForgettingDisk)
    if checkpoint == "damaged":
        bench.disk.flip(bench.path(at.CHECKPOINT_NAME), 20)
    positions = [batch.position for batch in inspect_segment(bench.disk, path)]
    bench.disk.flip(path, positions[2] + 100)
    bench.disk.flip(path, positions[5] + 100)
    bench.crash()
    assert bench.log.end_offset == 15
    assert bench.log.report.batches_damaged == 1
    rows, _, raised = read_what_is_sound(bench.log)
    assert raised == 1
    assert rows == [(n, n) for n in (*range(6), *range(9, 15))]


def test_a_sealed_segment_is_never_cut_even_if_nobody_knows_that_it_is_durable() -> None:
    bench = Workbench(segment_bytes=900, sync_on_roll=False)
    bench.append_many(6)
    assert isinstance(bench.disk, ForgettingDisk)
    bench.disk.flip(bench.path(bench.names(at.LOG_SUFFIX)[1]), 200)
    bench.crash()
    assert bench.log.end_offset == 18
    rows, _, raised = read_what_is_sound(bench.log)
    assert raised == 1
    assert len(rows) == 15


@pytest.mark.parametrize("position", range(at.SIDECAR_HEADER_SIZE))
def test_a_sidecar_of_another_segment_or_format_is_made_again(position: int) -> None:
    bench = Workbench()
    bench.append_many(4)
    assert isinstance(bench.disk, ForgettingDisk)
    name = bench.path(bench.names(at.SIDECAR_SUFFIX)[-1])
    content = bench.disk.read_whole(name)
    bench.disk.flip(name, position)
    bench.crash(True)
    assert bench.disk.read_whole(name)[: at.SIDECAR_HEADER_SIZE] == content[: at.SIDECAR_HEADER_SIZE]
    bench.check()
    bench.append_many(2)
    bench.reopen()
    bench.check()


@pytest.mark.parametrize("sidecar", [True, False])
def test_a_batch_whose_stamp_was_torn_off_is_cut_and_its_writer_may_send_it_again(sidecar: bool) -> None:
    """Keeping it would acknowledge rows that nobody can read."""
    bench = Workbench()
    bench.append(2, writer_id=3, sequence=0)
    bench.sync()
    bench.append(2, writer_id=3, sequence=1)
    path = bench.path(bench.names(at.LOG_SUFFIX)[0])
    content = bytearray(bench.disk.read_whole(path))
    stamp = [batch.position for batch in inspect_segment(bench.disk, path)][1] + 13
    content[stamp : stamp + 8] = bytes(8)
    bench.disk.write_whole(path, content)
    if not sidecar:
        entries = bench.path(bench.names(at.SIDECAR_SUFFIX)[0])
        bench.disk.open(entries).truncate(at.SIDECAR_HEADER_SIZE + at.ENTRY_SIZE)
    bench.crash()
    assert bench.log.end_offset == 2
    assert bench.append(2, writer_id=3, sequence=1) == (2, 4, False)


@pytest.mark.parametrize("sealed", [True, False])
def test_an_index_of_batches_that_were_replaced_is_not_believed(sealed: bool) -> None:
    """Power loss can bring an old index back. Its offsets and positions fit, its times are of other batches."""
    bench = Workbench(segment_bytes=10**6, index_interval_bytes=1)
    bench.append_many(10)
    bench.log.close()
    path = bench.path(at.segment_name(0, at.INDEX_SUFFIX))
    old = bench.disk.read_whole(path)
    bench.log = bench._open()
    bench.log.truncate(0)
    bench.batches = []
    for _ in range(10):
        bench.now_ms += 10
        bench.append()
    if sealed:
        bench.now_ms += 10**6
        assert bench.log.roll_if_due(bench.now_ms)
    bench.log.close()
    bench.disk.write_whole(path, old)
    bench.log = bench._open()
    for number in range(10):
        assert bench.log.offset_at(START_MS + 10 * number + 1) == 3 * number
    bench.check()


def test_a_log_whose_checkpointed_segment_is_gone_is_opened_from_its_beginning() -> None:
    bench = Workbench(segment_bytes=900)
    bench.append_many(6)
    bench.log.close()
    for suffix in (at.LOG_SUFFIX, at.SIDECAR_SUFFIX, at.INDEX_SUFFIX):
        bench.disk.remove(bench.path(bench.names(suffix)[-1]))
    bench.log = bench._open()
    assert bench.log.end_offset == 18, "no offset is given again as if nothing had been there"
    rows, _, raised = read_what_is_sound(bench.log)
    assert raised == 1
    assert rows == bench.rows[:12]
    assert bench.append().base_offset == 18


def test_a_log_whose_segments_are_all_gone_keeps_its_end() -> None:
    bench = Workbench(segment_bytes=900)
    bench.append_many(6)
    bench.log.close()
    for name in bench.names(at.LOG_SUFFIX):
        bench.disk.remove(bench.path(name))
    bench.log = bench._open()
    assert (bench.log.start_offset, bench.log.end_offset) == (18, 18)
    assert bench.append().base_offset == 18


def test_epochs_are_known_again_after_a_flip_in_their_file() -> None:
    folder = Folder(clean=True)
    for _, _, disk in folder.flipped(at.EPOCHS_NAME):
        log = Log.open(disk, FOLDER, SETTINGS, START_MS)
        assert [log.epochs.epoch_of(offset) for offset in range(11)] == folder.epochs


@pytest.mark.parametrize("missing", [at.SIDECAR_SUFFIX, at.INDEX_SUFFIX, at.EPOCHS_NAME, at.CHECKPOINT_NAME])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_file_is_made_again(missing: str, clean: bool) -> None:
    folder = Folder(clean=clean)
    disk = ForgettingDisk(state=folder.disk._state.copy())
    for name in disk.list(FOLDER):
        if name.endswith(missing):
            disk.remove(f"{FOLDER}/{name}")
    log = check_flipped(folder, disk, cut_allowed=False)
    log.mend()
    check_goes_on(folder, log, disk, missing, 0)
    if missing in (at.SIDECAR_SUFFIX, at.INDEX_SUFFIX):
        stems = {name.partition(".")[0] for name in disk.list(FOLDER) if name.endswith(at.LOG_SUFFIX)}
        assert {name.partition(".")[0] for name in disk.list(FOLDER) if name.endswith(missing)} == stems


def worn_log(*, full: bool = False, beyond_repair: bool = False) -> Workbench:
    """A log in which readers found a sealed segment without its sidecar."""
    bench = Workbench(segment_bytes=900)
    bench.append_many(6)
    bench.log.close()
    assert isinstance(bench.disk, ForgettingDisk)
    bench.disk.remove(bench.path(bench.names(at.SIDECAR_SUFFIX)[1]))
    if beyond_repair:
        bench.disk.flip(bench.path(bench.names(at.LOG_SUFFIX)[1]), 200)
    bench.log = bench._open()
    assert read_what_is_sound(bench.log)[2] == int(beyond_repair)
    if full:
        bench.disk.fill(0)
    return bench


def test_a_sidecar_that_readers_miss_is_made_again_by_housekeeping() -> None:
    bench = worn_log()
    assert bench.log.mend() == 1
    assert len(bench.names(at.SIDECAR_SUFFIX)) == 3
    assert bench.log.mend() == 0
    bench.check()


@pytest.mark.parametrize("why", [{"full": True}, {"beyond_repair": True}], ids=str)
def test_a_sidecar_that_cannot_be_made_again_leaves_nothing_behind(why: dict[str, bool]) -> None:
    bench = worn_log(**why)
    assert bench.log.mend() == 0
    assert len(bench.names(at.SIDECAR_SUFFIX)) == 2
    assert bench.names(TEMPORARY_SUFFIX) == []
    assert set(read_what_is_sound(bench.log)[0]) <= set(bench.rows)


@pytest.mark.parametrize("suffix", [at.SIDECAR_SUFFIX, at.INDEX_SUFFIX, at.EPOCHS_NAME, at.CHECKPOINT_NAME])
@pytest.mark.parametrize("clean", [True, False])
def test_a_shortened_file_is_made_again(suffix: str, clean: bool) -> None:
    folder = Folder(clean=clean)
    for name in folder.disk.list(FOLDER):
        for size in (0, 5, 30, 100) if name.endswith(suffix) else ():
            disk = ForgettingDisk(state=folder.disk._state.copy())
            if size < disk.size(f"{FOLDER}/{name}"):
                disk.open(f"{FOLDER}/{name}").truncate(size)
                log = check_flipped(folder, disk, cut_allowed=False)
                assert log.end_offset == 11
                assert set(read_what_is_sound(log)[0]) == set(folder.rows)
                check_goes_on(folder, log, disk, name, size)


def test_a_shortened_segment_is_a_hole_not_the_end_of_the_log() -> None:
    """Something durable is gone: this is reported, never covered up, and the log goes on behind it."""
    folder = Folder(clean=True)
    for name in folder.disk.list(FOLDER):
        if name.endswith(at.LOG_SUFFIX):
            disk = ForgettingDisk(state=folder.disk._state.copy())
            disk.open(f"{FOLDER}/{name}").truncate(disk.size(f"{FOLDER}/{name}") - 10)
            log = Log.open(disk, FOLDER, SETTINGS, folder.now_ms)
            rows, _, raised = read_what_is_sound(log)
            assert raised == 1
            assert set(rows) < set(folder.rows)
            assert log.end_offset == 11
            check_goes_on(folder, log, disk, name, 0)
