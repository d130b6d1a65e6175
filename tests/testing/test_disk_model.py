"""After any sequence of calls the forgetting disk holds what a real disk holds, and its history rebuilds it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from strom.runtime.files import Files, LocalFiles
from strom.testing.disk import Drawn, FirstBytes, ForgettingDisk

names = st.sampled_from(["a", "b", "c", "x", "x/a", "x/b", "x/y", "x/y/a"])
contents = st.binary(max_size=40)


def tree(files: Files, folder: str) -> dict[str, bytes | None]:
    """Everything below a folder: content by path, None for folders."""
    found: dict[str, bytes | None] = {}
    for name in files.list(folder):
        path = f"{folder}/{name}"
        if files.is_folder(path):
            found[name] = None
            found.update({f"{name}/{inner}": content for inner, content in tree(files, path).items()})
        else:
            found[name] = files.read_whole(path)
    return found


class DiskMatchesTheMachines(RuleBasedStateMachine):
    """Performs each call on both disks; what one refuses the other refuses too."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.real = LocalFiles()
        self.root = tempfile.mkdtemp(prefix="strom-disk-model-")
        self.fake = ForgettingDisk()
        self.fake.make_folder("/root")

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def both(self, call: Callable[[Files, str], object]) -> tuple[object, object] | None:
        results: list[object] = []
        for files, root in ((self.real, self.root), (self.fake, "/root")):
            try:
                results.append(call(files, root))
            except OSError as error:
                results.append(type(error))
        real, fake = results
        if isinstance(real, type) or isinstance(fake, type):
            assert real == fake
            return None
        return real, fake

    @rule(target=handles, name=names, create=st.booleans())
    def open(self, name: str, create: bool) -> object:
        opened = self.both(lambda files, root: files.open(f"{root}/{name}", create=create))
        return multiple() if opened is None else opened

    @rule(pair=handles, buffers=st.lists(contents, max_size=3))
    def append(self, pair: tuple[object, object], buffers: list[bytes]) -> None:
        real, fake = pair
        assert real.append(buffers) == fake.append(buffers)  # type: ignore[attr-defined]

    @rule(pair=handles, share=st.floats(0, 1))
    def truncate(self, pair: tuple[object, object], share: float) -> None:
        for file in pair:
            file.truncate(int(file.size() * share))  # type: ignore[attr-defined]

    @rule(pair=handles, position=st.integers(0, 80), length=st.integers(0, 80))
    def read(self, pair: tuple[object, object], position: int, length: int) -> None:
        real, fake = pair
        assert real.read_at(position, length) == fake.read_at(position, length)  # type: ignore[attr-defined]

    @rule(pair=handles)
    def sync(self, pair: tuple[object, object]) -> None:
        for file in pair:
            file.sync()  # type: ignore[attr-defined]

    @rule(pair=consumes(handles))
    def close(self, pair: tuple[object, object]) -> None:
        for file in pair:
            file.close()  # type: ignore[attr-defined]

    @rule(name=names)
    def make_folder(self, name: str) -> None:
        self.both(lambda files, root: files.make_folder(f"{root}/{name}"))

    @rule(name=names)
    def remove_tree(self, name: str) -> None:
        if not self.fake.exists(f"/root/{name}") or self.fake.is_folder(f"/root/{name}"):
            self.both(lambda files, root: files.remove_tree(f"{root}/{name}"))

    @rule(name=names)
    def remove(self, name: str) -> None:
        if not self.fake.is_folder(f"/root/{name}"):  # what the error is differs between systems
            self.both(lambda files, root: files.remove(f"{root}/{name}"))

    @rule(old=st.sampled_from("abcx"), new=st.sampled_from("abcx"))
    def rename(self, old: str, new: str) -> None:
        if old != new and not self.fake.is_folder(f"/root/{new}"):
            self.both(lambda files, root: files.rename(f"{root}/{old}", f"{root}/{new}"))

    @rule(name=names, content=contents)
    def write_whole(self, name: str, content: bytes) -> None:
        if not self.fake.is_folder(f"/root/{name}"):
            self.both(lambda files, root: files.write_whole(f"{root}/{name}", content))

    @rule(name=names, content=contents)
    def write_whole_if_absent(self, name: str, content: bytes) -> None:
        self.both(lambda files, root: files.write_whole_if_absent(f"{root}/{name}", content))

    @rule(keep=st.sampled_from([False, True, FirstBytes(3), Drawn(1), Drawn(2)]))
    def look_at_a_crash(self, keep: bool) -> None:
        """Whatever survives, it is made of what was there, and looking changes nothing."""
        crashed = ForgettingDisk.at(self.fake.trace, len(self.fake.trace), keep)
        if keep is True:
            assert tree(crashed, "/root") == tree(self.fake, "/root")
        again = ForgettingDisk.at(self.fake.trace, len(self.fake.trace), keep)
        assert tree(crashed, "") == tree(again, "")

    @invariant()
    def the_disks_are_equal(self) -> None:
        assert tree(self.fake, "/root") == tree(self.real, self.root)


DiskMatchesTheMachines.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestDiskMatchesTheMachines = DiskMatchesTheMachines.TestCase
