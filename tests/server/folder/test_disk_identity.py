"""A data folder as a disk: the same after a kill, another lineage after an unclean reboot, another disk when copied."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from strom.replication.registration import DataDisk
from strom.server.folder.disk_identity import DISK_FILE, FolderDisk
from strom.testing.disk import ForgettingDisk
from strom.testing.random import SeededRandomness

FOLDER = "/data"
DRAWS = SeededRandomness(1)


def started(
    files: ForgettingDisk,
    *,
    boot: str = "first boot",
    incarnation: str = "here",
    registered: Collection[str] | None = None,
) -> FolderDisk:
    files.make_folder(FOLDER)
    return FolderDisk.open(
        files, FOLDER, incarnation=incarnation, boot=boot, randomness=DRAWS, registered=registered
    )


def wrote(files: ForgettingDisk, name: str, content: bytes) -> None:
    """As a log under ``os`` writes: the system has it, the disk not yet."""
    files.make_folder(f"{FOLDER}/buckets/1")
    file = files.open(f"{FOLDER}/{name}", create=True)
    file.append([content])
    file.close()


def test_a_new_folder_is_a_disk_of_its_own() -> None:
    first, second = started(ForgettingDisk()).disk, started(ForgettingDisk()).disk
    assert first.disk != second.disk
    assert first.lineage == second.lineage == 0


def test_a_killed_process_loses_nothing_so_the_disk_is_the_same() -> None:
    files = ForgettingDisk()
    first = started(files).disk
    files.crash(keep_unsynced=True)
    assert started(files).disk == first


def test_after_a_clean_stop_the_machine_may_go_down() -> None:
    files = ForgettingDisk()
    first = started(files)
    first.close_cleanly()
    files.crash()
    assert started(files, boot="second boot").disk == first.disk


def test_the_lineage_rises_each_time_the_machine_went_down_while_a_server_ran() -> None:
    files = ForgettingDisk()
    disk = started(files).disk.disk
    for lineage, boot in enumerate(["second boot", "third boot"], start=1):
        files.crash()
        assert started(files, boot=boot).disk == DataDisk(disk, lineage)


def test_a_clean_mark_counts_for_one_stop() -> None:
    files = ForgettingDisk()
    started(files).close_cleanly()
    started(files)
    files.crash()
    assert started(files, boot="second boot").disk.lineage == 1


@pytest.mark.parametrize(("before", "after"), [("", ""), ("first boot", ""), ("", "first boot")])
def test_a_machine_that_does_not_tell_its_boots_may_have_gone_down(before: str, after: str) -> None:
    files = ForgettingDisk()
    started(files, boot=before)
    assert started(files, boot=after).disk.lineage == 1


def test_a_clean_stop_puts_on_the_disk_what_an_earlier_killed_process_wrote() -> None:
    """Nobody opens that bucket in the second life; a power failure follows the stop."""
    files = ForgettingDisk()
    started(files)
    wrote(files, "buckets/1/log", b"acknowledged")
    files.crash(keep_unsynced=True)
    second = started(files)
    second.close_cleanly()
    files.crash()
    third = started(files, boot="second boot")
    assert third.disk == second.disk
    assert files.read_whole(f"{FOLDER}/buckets/1/log") == b"acknowledged"


def test_a_clean_mark_is_never_there_before_the_rows_are() -> None:
    """Power fails at every write of the stop: either the lineage rises, or everything is there."""
    recording = ForgettingDisk()
    started(recording)
    wrote(recording, "buckets/1/log", b"acknowledged")
    begun = len(recording.trace)
    started(recording).close_cleanly()
    moments, clean = 0, 0
    for count, files in ForgettingDisk.moments(recording.trace):
        if count < begun:
            continue
        moments += 1
        if started(files, boot="second boot").disk.lineage == 0:
            clean += 1
            assert files.read_whole(f"{FOLDER}/buckets/1/log") == b"acknowledged"
    assert moments > clean > 0


def test_a_copied_folder_is_another_disk() -> None:
    files = ForgettingDisk()
    first = started(files).disk
    second = started(files, incarnation="elsewhere").disk
    assert second.disk != first.disk


def test_a_disk_that_the_server_gave_up_comes_back_under_another_name() -> None:
    files = ForgettingDisk()
    first = started(files).disk
    assert started(files, registered=[first.disk, "another"]).disk == first
    second = started(files, registered=["another"]).disk
    assert second.disk != first.disk
    assert started(files, registered=[second.disk]).disk == second


@pytest.mark.parametrize("content", [b"", b"{}", b'{"crc": 1}', b"[1]"])
def test_a_damaged_file_makes_another_disk_of_it(content: bytes) -> None:
    files = ForgettingDisk()
    first = started(files).disk
    files.write_whole(f"{FOLDER}/{DISK_FILE}", content)
    assert started(files).disk.disk != first.disk
