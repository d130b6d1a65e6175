"""The machine's disk: what the contract cannot ask of a fake."""

from __future__ import annotations

import errno
import gc
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import StorageFull
from strom.runtime.files import BUFFERS_PER_WRITE_MAX, LocalFiles


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles()


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


class Stubborn:
    """Takes the place of the system's writing: a few bytes at a time, then an error."""

    def __init__(self, *, at_most: int, then: int | None = None, after: int = 0) -> None:
        self.at_most = at_most
        self.then = then
        self.left = after
        self.calls = 0

    def pwritev(self, descriptor: int, buffers: Sequence[Any], position: int) -> int:
        return self.pwrite(descriptor, b"".join(buffers), position)

    def pwrite(self, descriptor: int, content: Any, position: int) -> int:
        self.calls += 1
        if self.then is not None:
            if self.left <= 0:
                raise OSError(self.then, os.strerror(self.then))
            self.left -= self.at_most
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, bytes(content[: self.at_most]))

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(os, "pwritev", self.pwritev)
        patch.setattr(os, "pwrite", self.pwrite)


def test_a_system_that_writes_a_little_at_a_time_is_asked_again(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    file.append([b"head"])
    slow = Stubborn(at_most=7)
    slow.install(monkeypatch)
    assert file.append([b"0123456789", b"", b"abcdefghij", b"!"]) == 4
    assert slow.calls == 3
    assert file.read_at(0, 100) == b"head0123456789abcdefghij!"


def test_what_takes_several_calls_stays_in_place_after_one_that_wrote_too_little(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    file.append([b"head"])
    Stubborn(at_most=7).install(monkeypatch)
    pieces = [b"%05d" % number for number in range(2 * BUFFERS_PER_WRITE_MAX + 3)]
    assert file.append(pieces) == 4
    assert file.read_at(0, 5 * len(pieces) + 100) == b"head" + b"".join(pieces)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("after", [0, 20])
def test_a_full_disk_leaves_nothing_of_the_append(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    file.append([b"kept"])
    with monkeypatch.context() as patch:
        Stubborn(at_most=7, then=number, after=after).install(patch)
        with pytest.raises(StorageFull) as caught:
            file.append([b"x" * 60, b"y" * 40])
    assert caught.value.facts == {"path": f"{tmp_path}/a", "bytes": 100}
    assert file.read_at(0, 100) == b"kept"
    assert file.append([b" and more"]) == 4
    assert file.read_at(0, 100) == b"kept and more"


def test_another_trouble_is_the_systems_own_error_and_leaves_nothing_either(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    with monkeypatch.context() as patch:
        Stubborn(at_most=7, then=errno.EIO, after=7).install(patch)
        with pytest.raises(OSError) as caught:
            file.append([b"x" * 100])
    assert caught.value.errno == errno.EIO
    assert file.size() == 0


def test_a_whole_file_that_does_not_fit_leaves_the_old_one(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_whole(f"{tmp_path}/a", b"old")
    with monkeypatch.context() as patch:
        Stubborn(at_most=1, then=errno.ENOSPC, after=2).install(patch)
        with pytest.raises(StorageFull):
            files.write_whole(f"{tmp_path}/a", b"new and longer")
    assert files.read_whole(f"{tmp_path}/a") == b"old"
    assert files.list(str(tmp_path)) == ["a"]


@pytest.mark.parametrize("name", ["write_whole", "write_whole_if_absent"])
def test_a_whole_file_lasts_before_it_has_its_name_and_then_its_name_lasts(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Renamed before its content is on the disk, it may be an empty file after a power failure."""
    told: list[str] = []

    def telling(what: str, original: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            folder = what == "sync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            told.append("sync folder" if folder else what)
            return original(*arguments, **named)

        return call

    for system, what in (("fsync", "sync"), ("fdatasync", "sync"), ("replace", "name"), ("link", "name")):
        monkeypatch.setattr(os, system, telling(what, getattr(os, system)))
    getattr(files, name)(str(tmp_path / "a"), b"whole")
    assert told == ["sync", "name", "sync folder"]


def test_the_systems_own_limit_cuts_no_append_in_half(tmp_path: Path) -> None:
    """With a real limit on file sizes the system writes a part and then refuses."""
    program = """
import resource, signal, sys
from strom.runtime.files import LocalFiles
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
file = LocalFiles().open(sys.argv[1], create=True)
file.append([b"a" * 6_000])
try:
    file.append([b"b" * 3_000, b"c" * 3_000])
except OSError as error:
    print(error.strerror)
file.append([b"d" * 4_000])
print(file.size())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["File too large", "10000", ""]
    assert (tmp_path / "a").read_bytes() == b"a" * 6_000 + b"d" * 4_000


def test_a_dropped_file_gives_its_descriptor_back_without_a_warning(
    files: LocalFiles, tmp_path: Path
) -> None:
    files.open(f"{tmp_path}/a", create=True)
    gc.collect()
    before = open_descriptors()
    for _ in range(50):
        files.open(f"{tmp_path}/a").append([b"x"])  # warnings are errors in these tests
    files.write_whole(f"{tmp_path}/b", b"x")
    files.sync_folder(str(tmp_path))
    lock = files.lock(f"{tmp_path}/lock")
    assert lock is not None
    lock.release()
    gc.collect()
    assert open_descriptors() == before


def test_a_read_under_way_survives_the_close_of_its_file(files: LocalFiles, tmp_path: Path) -> None:
    """Files are closed and opened all the time; a reader must never get another file's bytes."""
    files.write_whole(f"{tmp_path}/a", b"a" * 4096)
    files.write_whole(f"{tmp_path}/b", b"b" * 4096)
    current = files.open(f"{tmp_path}/a")
    wrong: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                found = current.read_at(0, 4096)
            except ValueError:
                continue  # closed: what a reader may expect
            if found != b"a" * 4096:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(500):
        closing, current = current, files.open(f"{tmp_path}/a")
        closing.close()
        files.open(f"{tmp_path}/b").close()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_rooms_are_filled_however_little_the_system_gives_at_a_time(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    content = os.urandom(1000)
    file.append([content])
    preadv = os.preadv
    calls: list[int] = []

    def a_little(descriptor: int, rooms: Sequence[memoryview], position: int) -> int:
        calls.append(position)
        return preadv(descriptor, [rooms[0][:7]], position)

    monkeypatch.setattr(os, "preadv", a_little)
    rooms = [memoryview(bytearray(size)) for size in (10, 7, 3, 100)]
    assert file.read_into(5, rooms) == 120
    assert b"".join(rooms) == content[5:125]
    assert len(calls) > 10


@pytest.mark.parametrize("large", [0, 1 << 40], ids=["of any length", "of a checked length"])
def test_a_read_goes_on_where_the_system_gave_too_little(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    file = files.open(f"{tmp_path}/a", create=True)
    content = os.urandom(1000)
    file.append([content])
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda number, length, position: pread(number, min(length, 7), position))
    assert file.read_at(5, 600) == content[5:605]
    assert file.read_at(990, 600 + large) == content[990:], "to the end"
    assert file.read_at(1000, 5) == b""
    assert files.read_whole(f"{tmp_path}/a") == content


@settings(max_examples=50, deadline=None)
@given(start=st.integers(0, 70_000), sizes=st.lists(st.integers(0, 9_000), max_size=12))
def test_rooms_hold_what_a_single_read_gives(
    tmp_path_factory: pytest.TempPathFactory, start: int, sizes: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "rooms"
    if not path.exists():
        path.write_bytes(bytes(range(251)) * 260)
    file = LocalFiles().open(str(path))
    rooms = [memoryview(bytearray(size)) for size in sizes]
    expected = file.read_at(start, sum(sizes))
    assert file.read_into(start, rooms) == len(expected)
    assert b"".join(rooms)[: len(expected)] == expected


def test_appends_survive_kill_9_and_the_lock_does_not(files: LocalFiles, tmp_path: Path) -> None:
    program = """
import os, signal, sys
from strom.runtime.files import LocalFiles
files = LocalFiles()
lock = files.lock(sys.argv[1] + "/lock")
files.open(sys.argv[1] + "/a", create=True).append([b"acknowledged"])
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert files.lock(f"{tmp_path}/lock") is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert files.read_whole(f"{tmp_path}/a") == b"acknowledged"
    assert files.lock(f"{tmp_path}/lock") is not None


def test_relative_paths_work_too(files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.make_folder("x/y")
    files.write_whole("top", b"1")
    assert files.write_whole_if_absent("other", b"2")
    assert files.list(".") == ["other", "top", "x"]
    assert files.free_bytes("none/below") > 0


def test_after_a_failed_sync_the_handle_never_says_again_that_all_is_well(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(str(tmp_path / "a"), create=True)
    file.append([b"x"])

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("strom.runtime.files._sync", failing)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
    with pytest.raises(OSError, match="an earlier sync") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    files.open(str(tmp_path / "a")).sync()


def test_a_file_that_is_closed_amid_an_append_keeps_its_descriptor_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may close it: the number must not be given to another file before the write is done."""
    file = LocalFiles().open(str(tmp_path / "file"), create=True)
    write = os.pwritev

    def while_somebody_closes(descriptor: int, *rest: object) -> int:
        file.close()
        gc.collect()
        os.fstat(descriptor)
        return write(descriptor, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "pwritev", while_somebody_closes)
    assert file.append([b"whole"]) == 0
    assert (tmp_path / "file").read_bytes() == b"whole"
