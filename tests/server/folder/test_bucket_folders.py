"""Where a bucket lies when a server has several disks: where it is, else where most room is, in turns."""

from __future__ import annotations

from collections import Counter

from strom.model.bucket import BucketId
from strom.runtime.files import Files
from strom.server.folder.bucket_folders import BucketFolders
from strom.testing.disk import ForgettingDisk

GB = 1 << 30


class Rooms(ForgettingDisk):
    """A disk with as much room in each folder as a test says."""

    def __init__(self, **free_gb: float) -> None:
        super().__init__()
        self.free = {f"/{name}": int(gb * GB) for name, gb in free_gb.items()}

    def free_bytes(self, path: str) -> int:
        return self.free[path]


def folders(files: Files) -> BucketFolders:
    return BucketFolders(files, ["/a", "/b", "/c"])


def bucket(number: int) -> BucketId:
    return BucketId(1, None, number)


def test_a_single_folder_needs_no_choice() -> None:
    one = BucketFolders(Rooms(), ["/a"])
    assert one.path_of(BucketId(7, 8, 9)) == "/a/buckets/7/8/9"


def test_a_new_bucket_goes_where_most_room_is() -> None:
    assert folders(Rooms(a=1, b=5, c=3)).path_of(bucket(0)) == "/b/buckets/1/-/0"


def test_disks_with_about_as_much_room_take_turns() -> None:
    places = folders(Rooms(a=100, b=95, c=20))
    found = Counter(places.root_of(bucket(number)) for number in range(10))
    assert found == {"/a": 5, "/b": 5}


def test_a_bucket_stays_where_it_is_also_after_a_restart() -> None:
    files = Rooms(a=1, b=5, c=3)
    first = folders(files).path_of(bucket(0))
    files.make_folder(first)
    files.free["/b"] = 0
    assert folders(files).path_of(bucket(0)) == first


def test_a_bucket_that_has_no_files_yet_stays_where_it_was_promised() -> None:
    files = Rooms(a=1, b=5, c=3)
    places = folders(files)
    first = places.path_of(bucket(0))
    files.free["/b"] = 0
    assert places.path_of(bucket(0)) == first


def test_a_bucket_that_was_removed_may_come_back_elsewhere() -> None:
    files = Rooms(a=1, b=5, c=3)
    places = folders(files)
    places.path_of(bucket(0))
    files.free["/b"] = 0
    places.forget(bucket(0))
    assert places.root_of(bucket(0)) == "/c"
