"""What power loss leaves of a disk, and that every moment of its history can be had again."""

from __future__ import annotations

import threading

import pytest

from strom.errors import StorageFull
from strom.runtime.files import TEMPORARY_SUFFIX
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk


@pytest.fixture
def disk() -> ForgettingDisk:
    disk = ForgettingDisk()
    disk.make_folder("/data")
    return disk


def with_synced_file(disk: ForgettingDisk, content: bytes) -> None:
    """``/data/a`` with ``content``, all of it safe."""
    file = disk.open("/data/a", create=True)
    file.append([content])
    file.sync()
    disk.sync_folder("/data")


# --- Power loss


def test_synced_content_in_a_synced_folder_survives(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    disk.crash()
    assert disk.read_whole("/data/a") == b"safe"


def test_content_that_was_not_synced_is_lost(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    disk.open("/data/a").append([b" and lost"])
    disk.crash()
    assert disk.read_whole("/data/a") == b"safe"


def test_a_sync_covers_all_that_was_written_before_it(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"1")
    file = disk.open("/data/a")
    file.append([b"2"])
    file.append([b"3"])
    file.sync()
    file.append([b"4"])
    disk.crash()
    assert disk.read_whole("/data/a") == b"123"


def test_a_cut_that_was_not_synced_comes_back(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"abcdef")
    file = disk.open("/data/a")
    file.truncate(2)
    file.append([b"X"])
    disk.crash()
    assert disk.read_whole("/data/a") == b"abcdef"


def test_a_synced_file_is_lost_with_its_name_unless_the_folder_was_synced(disk: ForgettingDisk) -> None:
    file = disk.open("/data/a", create=True)
    file.append([b"x"])
    file.sync()
    disk.crash()
    assert disk.list("/data") == []


def test_a_synced_name_of_an_unsynced_file_is_an_empty_file(disk: ForgettingDisk) -> None:
    disk.open("/data/a", create=True).append([b"x"])
    disk.sync_folder("/data")
    disk.crash()
    assert disk.read_whole("/data/a") == b""


def test_a_removal_that_was_not_synced_comes_back(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"back")
    disk.remove("/data/a")
    disk.crash()
    assert disk.read_whole("/data/a") == b"back"
    disk.remove("/data/a")
    disk.sync_folder("/data")
    disk.crash()
    assert disk.list("/data") == []


def test_a_rename_that_was_not_synced_never_happened(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"x")
    disk.rename("/data/a", "/data/b")
    disk.crash()
    assert disk.list("/data") == ["a"]
    disk.rename("/data/a", "/data/b")
    disk.sync_folder("/data")
    disk.crash()
    assert disk.list("/data") == ["b"]


def test_a_folder_is_safe_when_it_is_made(disk: ForgettingDisk) -> None:
    disk.make_folder("/data/x/y")
    disk.crash()
    assert disk.is_folder("/data/x/y")


def test_a_tree_whose_removal_was_not_synced_comes_back_with_what_is_left_of_it(disk: ForgettingDisk) -> None:
    disk.make_folder("/data/x")
    disk.write_whole("/data/x/1", b"1")
    disk.remove_tree("/data/x")
    assert disk.list("/data") == []
    disk.crash()
    assert disk.read_whole("/data/x/1") == b"1"


def test_a_whole_file_is_durable_when_the_write_returns(disk: ForgettingDisk) -> None:
    disk.write_whole("/data/a", b"first")
    assert disk.write_whole_if_absent("/data/b", b"other")
    disk.crash()
    assert (disk.read_whole("/data/a"), disk.read_whole("/data/b")) == (b"first", b"other")


def test_a_whole_file_is_the_old_or_the_new_at_every_moment(disk: ForgettingDisk) -> None:
    disk.write_whole("/data/a", b"old")
    before = len(disk.trace)
    disk.write_whole("/data/a", b"new")
    for keep_unsynced in (False, True, FirstBytes(1), Drawn(1), Drawn(2)):
        seen = [
            crashed.read_whole("/data/a")
            for _, crashed in ForgettingDisk.moments(disk.trace, keep_unsynced, first=before)
        ]
        assert set(seen) == {b"old", b"new"}
        assert seen == sorted(seen, reverse=True)


def test_kill_9_loses_nothing_but_makes_nothing_safe(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    disk.open("/data/a").append([b" so far"])
    disk.crash(keep_unsynced=True)
    assert disk.read_whole("/data/a") == b"safe so far"
    disk.crash()
    assert disk.read_whole("/data/a") == b"safe"


def test_the_crash_ends_open_files_and_locks(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"x")
    file = disk.open("/data/a")
    assert disk.lock("/data/lock") is not None
    disk.crash()
    for use in (file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.append([b"y"])):
        with pytest.raises(ValueError, match="before the crash"):
            use()
    assert disk.lock("/data/lock") is not None


# --- Torn writes


def test_the_first_bytes_of_what_was_not_synced_may_survive(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    file = disk.open("/data/a")
    file.append([b"123"])
    file.append([b"456"])
    left = [
        ForgettingDisk.at(disk.trace, len(disk.trace), FirstBytes(count)).read_whole("/data/a")
        for count in range(8)
    ]
    assert left == [b"safe" + b"123456"[:count] for count in range(8)]


def test_drawn_losses_tear_drop_and_leave_holes(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    file = disk.open("/data/a")
    for digit in range(1, 9):
        file.append([b"%d" % digit * 100])
    whole = disk.read_whole("/data/a")
    left = [
        ForgettingDisk.at(disk.trace, len(disk.trace), Drawn(seed)).read_whole("/data/a")
        for seed in range(200)
    ]
    assert all(content.startswith(b"safe") for content in left)
    assert any(content == whole for content in left)
    assert any(content == b"safe" for content in left)
    assert any(whole.startswith(content) and len(content) % 100 != 4 for content in left)
    assert any(b"\0" in content and not content.endswith(b"\0") for content in left)


def test_a_drawn_loss_is_the_same_for_the_same_seed(disk: ForgettingDisk) -> None:
    for name in "abcdef":
        disk.open(f"/data/{name}", create=True).append([name.encode() * 1000])

    def left(seed: int) -> dict[str, bytes]:
        crashed = ForgettingDisk.at(disk.trace, len(disk.trace), Drawn(seed))
        return {name: crashed.read_whole(f"/data/{name}") for name in crashed.list("/data")}

    assert left(3) == left(3)
    assert len({repr(left(seed)) for seed in range(10)}) > 1


# --- History


def test_every_moment_can_be_had_again(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"1")
    file = disk.open("/data/a")
    sizes = {len(disk.trace): 1}
    for size in range(2, 10):
        file.append([b"x"])
        file.sync()
        sizes[len(disk.trace)] = size
    moments = dict(ForgettingDisk.moments(disk.trace))
    assert sorted(moments) == list(range(len(disk.trace) + 1))
    assert {count: moments[count].size("/data/a") for count in sizes} == sizes
    for count in sizes:
        assert ForgettingDisk.at(disk.trace, count).size("/data/a") == sizes[count]


def test_what_was_refused_is_no_moment(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"1")
    before = len(disk.trace)
    for name in ("/none/a", "/data/none/a", "/data/a/b"):
        with pytest.raises(OSError):
            disk.open(name, create=True)
    with pytest.raises(FileNotFoundError):
        disk.open("/data/none")
    assert len(disk.trace) == before
    assert disk.list("/data") == ["a"]


def test_moments_are_disks_of_their_own_with_a_history_of_their_own(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"1")
    crashed = ForgettingDisk.at(disk.trace, len(disk.trace))
    crashed.open("/data/a").append([b"2"])
    assert disk.read_whole("/data/a") == b"1"
    again = [later.read_whole("/data/a") for _, later in ForgettingDisk.moments(crashed.trace, True)]
    assert again == [b"1", b"12"]


def test_history_goes_on_over_a_crash(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"1")
    disk.open("/data/a").append([b"lost"])
    disk.crash()
    disk.open("/data/a").append([b"2"])
    assert ForgettingDisk.at(disk.trace, len(disk.trace), True).read_whole("/data/a") == b"12"


def test_a_disk_that_does_not_record_keeps_no_history() -> None:
    disk = ForgettingDisk(record=False)
    disk.make_folder("/data")
    disk.write_whole("/data/a", b"x" * 100)
    assert disk.trace == []
    assert disk.read_whole("/data/a") == b"x" * 100


# --- Faults


def test_a_full_disk_refuses_and_leaves_nothing_until_there_is_room(disk: ForgettingDisk) -> None:
    file = disk.open("/data/a", create=True)
    file.append([b"x" * 100])
    disk.fill(10)
    assert disk.free_bytes("/data") == 10
    with pytest.raises(StorageFull) as caught:
        file.append([b"y" * 11])
    assert caught.value.facts == {"path": "/data/a", "bytes": 11}
    assert file.size() == 100
    assert file.append([b"y" * 10]) == 100
    assert disk.free_bytes("/data") == 0
    file.truncate(60)
    assert disk.free_bytes("/data") == 50
    disk.fill(None)
    assert file.append([b"z" * 10_000]) == 60


def test_a_whole_file_that_does_not_fit_leaves_the_old_one(disk: ForgettingDisk) -> None:
    disk.write_whole("/data/a", b"old")
    disk.fill(3)
    with pytest.raises(StorageFull):
        disk.write_whole("/data/a", b"newer")
    assert disk.read_whole("/data/a") == b"old"
    assert not disk.exists(f"/data/a{TEMPORARY_SUFFIX}")


def test_a_failed_sync_loses_its_bytes_for_good_even_if_a_later_one_succeeds(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"safe")
    file = disk.open("/data/a")
    file.append([b"gone"])
    disk.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    other = disk.open("/data/a")
    other.append([b"after"])
    other.sync()
    assert disk.read_whole("/data/a") == b"safegoneafter"
    disk.crash()
    assert disk.read_whole("/data/a") == b"safe\0\0\0\0after"


def test_after_a_failed_sync_the_handle_never_says_again_that_all_is_well(disk: ForgettingDisk) -> None:
    file = disk.open("/data/a", create=True)
    disk.fail_next_sync()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()


def test_a_flipped_bit_is_on_the_medium(disk: ForgettingDisk) -> None:
    with_synced_file(disk, b"abc")
    reader = disk.open("/data/a")
    disk.flip("/data/a", 1, bit=2)
    assert reader.read_at(0, 3) == b"afc"
    disk.crash()
    assert disk.read_whole("/data/a") == b"afc"


def test_appending_is_safe_from_many_threads(disk: ForgettingDisk) -> None:
    def write(name: str) -> None:
        file = disk.open(f"/data/{name}", create=True)
        for _ in range(200):
            file.append([name.encode()])
            file.sync()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.sync_folder("/data")
    again = ForgettingDisk.at(disk.trace, len(disk.trace))
    assert {name: again.read_whole(f"/data/{name}") for name in "abcd"} == {
        name: name.encode() * 200 for name in "abcd"
    }
