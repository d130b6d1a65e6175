"""Code on disk is run, so it is taken only from where nobody else could have put it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strom.runtime.code_cache import VERSIONS_KEPT, CodeCache

NAME = "kernel-1.kernel"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir(mode=0o755)
    return folder


def cache_of(sources: Path, chosen: str | None = None) -> CodeCache:
    home = {"XDG_CACHE_HOME": str(sources.parent / "home"), "TMPDIR": str(sources.parent / "temporary")}
    return CodeCache(sources, home if chosen is None else home | {"NUMBA_CACHE_DIR": chosen})


def not_ours_to_write(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installation of root's is for a user."""
    beside, may = sources / "__pycache__", os.access
    beside.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != beside and may(path, mode))


def test_code_lies_beside_its_source(sources: Path) -> None:
    cache = cache_of(sources)
    cache.write("kernel", NAME, b"code")
    assert (sources / "__pycache__" / NAME).read_bytes() == b"code"
    assert cache.read(NAME) == b"code"
    assert cache.read("kernel-2.kernel") is None


def test_an_installation_of_somebody_else_is_read_and_what_is_new_lies_in_a_folder_of_ones_own(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_of(sources).write("kernel", NAME, b"made at the installation")
    not_ours_to_write(sources, monkeypatch)
    cache = cache_of(sources)
    assert cache.read(NAME) == b"made at the installation"
    cache.write("kernel", "kernel-2.kernel", b"ours")
    own = sources.parent / "home" / "strom" / "kernels"
    assert (own / "kernel-2.kernel").read_bytes() == b"ours" == cache.read("kernel-2.kernel")
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_to_is_neither_read_nor_written(
    sources: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    own = sources.parent / "home" / "strom" / "kernels"
    (own.parent.parent).mkdir()
    for folder in (own.parent, own):
        folder.mkdir()
        folder.chmod(0o700)
    (own / NAME).write_bytes(b"planted")
    own.chmod(mode)
    (sources.parent / "temporary").write_text("no folder either")
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__" / NAME).write_bytes(b"planted")
    (sources / "__pycache__").chmod(mode)
    cache = cache_of(sources)
    assert cache.read(NAME) is None
    assert not cache.keeps
    cache.write("kernel", "kernel-2.kernel", b"code")
    assert cache.read("kernel-2.kernel") is None


def test_a_link_is_not_followed(sources: Path) -> None:
    (sources.parent / "elsewhere").write_bytes(b"planted")
    (sources / "__pycache__").mkdir()
    (sources / "__pycache__" / NAME).symlink_to(sources.parent / "elsewhere")
    assert cache_of(sources).read(NAME) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(sources: Path) -> None:
    cache_of(sources).write("kernel", NAME, b"planted")
    os.chown(sources / "__pycache__" / NAME, 12345, 12345)
    assert cache_of(sources).read(NAME) is None
    os.chown(sources / "__pycache__" / NAME, 0, 0)
    os.chown(sources / "__pycache__", 12345, 12345)
    assert cache_of(sources).read(NAME) is None


def test_a_chosen_folder_is_the_only_place(sources: Path) -> None:
    cache = cache_of(sources, str(sources.parent / "chosen"))
    cache.write("kernel", NAME, b"code")
    assert cache.read(NAME) == b"code"
    assert cache_of(sources).read(NAME) is None


def test_old_versions_go(sources: Path) -> None:
    cache = cache_of(sources)
    for number in range(VERSIONS_KEPT + 3):
        cache.write("kernel", f"kernel-{number}.kernel", b"code")
        os.utime(sources / "__pycache__" / f"kernel-{number}.kernel", (number, number))
    cache.write("others", "others-1.kernel", b"code")
    left = sorted(path.name for path in (sources / "__pycache__").glob("kernel-*"))
    assert len(left) == VERSIONS_KEPT
    assert left[-1] == f"kernel-{VERSIONS_KEPT + 2}.kernel"


def test_one_process_at_a_time_compiles(sources: Path) -> None:
    with cache_of(sources).alone() as first, cache_of(sources).alone() as second:
        assert (first, second) == (True, False)
    with cache_of(sources).alone() as again:
        assert again
