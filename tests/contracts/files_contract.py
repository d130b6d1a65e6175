"""What every disk does, the machine's and the one that forgets.

A runner gives two fixtures: ``files`` and ``folder``, an empty folder on it. What power loss leaves cannot be tried
on a real disk; it is in tests/testing/test_forgetting_disk.py.
"""

from __future__ import annotations

import threading

import pytest

from strom.runtime.files import TEMPORARY_SUFFIX, Files


class FilesContract:
    """Inherit, and give the fixtures ``files`` and ``folder``."""

    def test_a_renamed_file_is_the_same_one_and_a_copy_is_another(self, files: Files, folder: str) -> None:
        files.write_whole(f"{folder}/a", b"same")
        files.write_whole(f"{folder}/copy", files.read_whole(f"{folder}/a"))
        before = files.identity(f"{folder}/a")
        files.rename(f"{folder}/a", f"{folder}/b")
        assert files.identity(f"{folder}/b") == before != files.identity(f"{folder}/copy")
        assert files.identity(folder)[0] == before[0]

    # --- One file

    def test_a_missing_file_is_not_found_unless_it_shall_be_created(self, files: Files, folder: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.open(f"{folder}/a")
        with pytest.raises(FileNotFoundError):
            files.open(f"{folder}/none/a", create=True)
        assert files.open(f"{folder}/a", create=True).size() == 0
        assert files.open(f"{folder}/a").size() == 0

    def test_creating_a_file_that_exists_opens_it_with_its_content(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True).append([b"kept"])
        assert files.open(f"{folder}/a", create=True).read_at(0, 10) == b"kept"

    def test_a_folder_is_not_a_file(self, files: Files, folder: str) -> None:
        with pytest.raises(IsADirectoryError):
            files.open(folder)

    def test_a_file_knows_the_path_it_was_opened_by(self, files: Files, folder: str) -> None:
        assert files.open(f"{folder}/a", create=True).path == f"{folder}/a"

    def test_an_append_writes_all_buffers_at_the_end_and_says_where(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        assert file.append([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]]) == 0
        assert file.append([b"g"]) == 6
        assert file.size() == 7
        assert file.read_at(0, 7) == b"abcdefg"

    def test_an_append_of_nothing_changes_nothing(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"ab"])
        assert file.append([]) == 2
        assert file.append([b"", b""]) == 2
        assert file.size() == 2

    def test_an_append_takes_more_buffers_than_one_system_call(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        pieces = [f"{number},".encode() for number in range(3000)]
        file.append([b"head"])
        assert file.append(pieces) == 4
        assert file.read_at(4, 1 << 20) == b"".join(pieces)

    def test_a_read_stops_at_the_end_of_the_file(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"abcdef"])
        assert file.read_at(4, 10) == b"ef"
        assert file.read_at(6, 10) == b""
        assert file.read_at(100, 1) == b""
        assert file.read_at(3, 0) == b""
        assert file.read_at(2, 1 << 40) == b"cdef"

    def test_rooms_are_filled_one_after_the_other(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        content = bytes(range(256)) * 256
        file.append([content])
        rooms = [memoryview(bytearray(size)) for size in (10, 0, 5, 1, 40_000)]
        assert file.read_into(100, rooms) == 40_016
        assert b"".join(rooms) == content[100:40_116]
        assert file.read_into(100, []) == 0

    def test_rooms_are_filled_up_to_the_end_of_the_file(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"abcdef"])
        rooms = [memoryview(bytearray(b"....")) for _ in range(3)]
        assert file.read_into(1, rooms) == 5
        assert [bytes(room) for room in rooms] == [b"bcde", b"f...", b"...."]
        assert file.read_into(6, rooms) == file.read_into(100, rooms) == 0

    def test_more_rooms_than_one_call_takes_are_filled(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([bytes(range(256)) * 20])
        rooms = [memoryview(bytearray(2)) for _ in range(2500)]
        assert file.read_into(0, rooms) == 5000
        assert b"".join(rooms) == (bytes(range(256)) * 20)[:5000]

    def test_a_truncated_file_ends_there_and_grows_from_there(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"abcdef"])
        file.truncate(2)
        assert file.size() == 2
        assert file.append([b"X"]) == 2
        assert file.read_at(0, 10) == b"abX"

    def test_truncating_never_makes_a_file_longer(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        with pytest.raises(AssertionError):
            file.truncate(1)
        assert file.size() == 0

    def test_a_second_handle_sees_what_the_first_wrote(self, files: Files, folder: str) -> None:
        writer = files.open(f"{folder}/a", create=True)
        reader = files.open(f"{folder}/a")
        writer.append([b"abc"])
        assert (reader.size(), reader.read_at(0, 9)) == (3, b"abc")
        writer.sync()
        assert reader.read_at(1, 1) == b"b"

    def test_a_mapped_file_is_its_bytes_read_only(self, files: Files, folder: str) -> None:
        content = bytes(range(256)) * 40
        files.open(f"{folder}/a", create=True).append([content])
        mapped = files.map(f"{folder}/a")
        assert mapped.readonly
        assert (mapped.format, len(mapped)) == ("B", len(content))
        assert mapped == content

    def test_a_mapped_file_outlives_its_name(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True).append([b"kept"])
        mapped = files.map(f"{folder}/a")
        files.remove(f"{folder}/a")
        assert bytes(mapped) == b"kept"

    def test_a_file_of_nothing_is_mapped_as_nothing(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True)
        assert bytes(files.map(f"{folder}/a")) == b""

    def test_only_files_that_are_there_are_mapped(self, files: Files, folder: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.map(f"{folder}/a")
        with pytest.raises(IsADirectoryError):
            files.map(folder)

    def test_a_closed_file_refuses_everything_but_another_close(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"abc"])
        file.close()
        file.close()
        for use in (file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.append([b"x"])):
            with pytest.raises(ValueError):
                use()
        assert files.read_whole(f"{folder}/a") == b"abc"

    def test_a_removed_file_can_be_read_by_those_who_hold_it(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        file.append([b"abc"])
        files.remove(f"{folder}/a")
        assert file.read_at(0, 3) == b"abc"
        assert not files.exists(f"{folder}/a")

    def test_a_file_is_read_by_other_threads_while_it_grows(self, files: Files, folder: str) -> None:
        file = files.open(f"{folder}/a", create=True)
        done = threading.Event()
        seen: list[bool] = []

        def read() -> None:
            while not done.is_set() or not seen:
                size = file.size() // 8 * 8
                content = file.read_at(0, size)
                seen.append(content == b"".join(n.to_bytes(8, "big") for n in range(size // 8)))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(500):
            file.append([number.to_bytes(8, "big")])
        done.set()
        for reader in readers:
            reader.join()
        assert all(seen)

    # --- Folders

    def test_a_folder_is_made_with_its_parents_and_making_it_again_is_fine(
        self, files: Files, folder: str
    ) -> None:
        files.make_folder(f"{folder}/x/y/z")
        files.make_folder(f"{folder}/x/y/z")
        assert files.list(f"{folder}/x") == ["y"]
        assert files.exists(f"{folder}/x/y/z")
        assert files.is_folder(f"{folder}/x/y")

    def test_a_folder_is_not_made_where_a_file_is(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True)
        with pytest.raises(FileExistsError):
            files.make_folder(f"{folder}/a")
        with pytest.raises(FileExistsError):
            files.make_folder(f"{folder}/a/b")
        assert not files.is_folder(f"{folder}/a")

    def test_a_listing_is_sorted_and_of_a_missing_folder_empty(self, files: Files, folder: str) -> None:
        for name in ("b", "a", "c"):
            files.open(f"{folder}/{name}", create=True)
        files.make_folder(f"{folder}/aa")
        assert files.list(folder) == ["a", "aa", "b", "c"]
        assert files.list(f"{folder}/none") == []

    def test_removing_what_is_gone_is_fine(self, files: Files, folder: str) -> None:
        files.remove(f"{folder}/none")
        files.remove_tree(f"{folder}/none")
        assert files.list(folder) == []

    def test_a_tree_is_removed_with_all_below(self, files: Files, folder: str) -> None:
        files.make_folder(f"{folder}/x/y")
        files.make_folder(f"{folder}/kept")
        for name in ("x/1", "x/y/2"):
            files.open(f"{folder}/{name}", create=True).append([b"1"])
        files.remove_tree(f"{folder}/x")
        assert files.list(folder) == ["kept"]

    def test_a_rename_replaces_a_file_of_that_name(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True).append([b"new"])
        files.open(f"{folder}/b", create=True).append([b"old"])
        files.rename(f"{folder}/a", f"{folder}/b")
        assert files.list(folder) == ["b"]
        assert files.read_whole(f"{folder}/b") == b"new"

    def test_a_folder_is_renamed_with_its_files(self, files: Files, folder: str) -> None:
        files.make_folder(f"{folder}/x")
        files.open(f"{folder}/x/a", create=True).append([b"1"])
        files.rename(f"{folder}/x", f"{folder}/y")
        assert files.list(folder) == ["y"]
        assert files.read_whole(f"{folder}/y/a") == b"1"

    def test_renaming_what_is_missing_is_an_error(self, files: Files, folder: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.rename(f"{folder}/a", f"{folder}/b")
        assert files.list(folder) == []

    def test_syncing_a_missing_folder_is_an_error(self, files: Files, folder: str) -> None:
        files.sync_folder(folder)
        with pytest.raises(FileNotFoundError):
            files.sync_folder(f"{folder}/none")
        assert files.list(folder) == []

    # --- Whole files

    def test_sizes_are_of_files_that_exist(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a", create=True).append([b"abc"])
        assert files.size(f"{folder}/a") == 3
        with pytest.raises(FileNotFoundError):
            files.size(f"{folder}/b")

    def test_a_whole_file_is_replaced_and_no_other_is_left(self, files: Files, folder: str) -> None:
        files.write_whole(f"{folder}/a", b"first, and longer")
        files.write_whole(f"{folder}/a", memoryview(b"second"))
        assert files.read_whole(f"{folder}/a") == b"second"
        assert files.list(folder) == ["a"]

    def test_a_temporary_file_left_by_a_crash_does_no_harm(self, files: Files, folder: str) -> None:
        files.open(f"{folder}/a{TEMPORARY_SUFFIX}", create=True).append([b"rubbish from a crash"])
        files.write_whole(f"{folder}/a", b"x")
        assert files.read_whole(f"{folder}/a") == b"x"
        assert files.list(folder) == ["a"]

    def test_reading_a_missing_file_whole_is_an_error(self, files: Files, folder: str) -> None:
        with pytest.raises(FileNotFoundError):
            files.read_whole(f"{folder}/a")
        assert files.list(folder) == []

    def test_of_many_who_write_if_absent_one_wins(self, files: Files, folder: str) -> None:
        won: list[int] = []

        def race(number: int) -> None:
            if files.write_whole_if_absent(f"{folder}/a", b"%d" % number):
                won.append(number)

        racers = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(won) == 1
        assert files.read_whole(f"{folder}/a") == b"%d" % won[0]
        assert files.list(folder) == ["a"]

    # --- The disk

    def test_free_room_is_known_also_for_paths_that_do_not_exist_yet(self, files: Files, folder: str) -> None:
        assert files.free_bytes(folder) > 0
        assert files.free_bytes(f"{folder}/not/yet") > 0

    def test_a_lock_has_one_holder_until_it_is_released(self, files: Files, folder: str) -> None:
        held = files.lock(f"{folder}/lock")
        assert held is not None
        assert files.lock(f"{folder}/lock") is None
        assert files.exists(f"{folder}/lock")
        held.release()
        again = files.lock(f"{folder}/lock")
        assert again is not None
