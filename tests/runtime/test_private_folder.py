"""What another user may have put in our way is neither run nor believed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from strom.client.write.decision import Sink
from strom.errors import InvalidSetting
from strom.runtime.java import java_home
from strom.runtime.private_folder import private_folder
from strom.spark.sink import publishing


def _environment(tmp_path: Path, *, home: bool = True) -> dict[str, str]:
    (tmp_path / "shared").mkdir(exist_ok=True)
    (tmp_path / "shared").chmod(0o1777)
    return {"TMPDIR": str(tmp_path / "shared"), **({"HOME": str(tmp_path / "home")} if home else {})}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_lies_in_the_cache_of_the_user_and_is_found_again(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder("marks", _environment(tmp_path))
    finally:
        os.umask(before)
    assert folder == tmp_path / "home" / ".cache" / "strom" / "marks"
    assert (_mode(folder), _mode(folder.parent)) == (0o700, 0o700)
    assert private_folder("marks", _environment(tmp_path)) == folder


def test_without_a_home_it_is_a_private_one_among_the_temporary_ones(tmp_path: Path) -> None:
    folder = private_folder("marks", _environment(tmp_path, home=False))
    assert folder == tmp_path / "shared" / f"strom-{os.getuid()}" / "marks"
    assert (_mode(folder), _mode(folder.parent)) == (0o700, 0o700)


def test_a_cache_is_named_from_the_root_or_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = private_folder("marks", {**_environment(tmp_path), "XDG_CACHE_HOME": "here"})
    assert folder == tmp_path / "shared" / f"strom-{os.getuid()}" / "marks"
    assert not (tmp_path / "here").exists()
    folder = private_folder("marks", {**_environment(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "there")})
    assert folder == tmp_path / "there" / "strom" / "marks"


@pytest.mark.parametrize("planted", ["link", "file", "wide", "of a group", "of others", "foreign"])
def test_what_somebody_else_planted_is_refused(
    tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _environment(tmp_path, home=False)
    place = tmp_path / "shared" / f"strom-{os.getuid()}"
    if planted == "link":
        (tmp_path / "theirs").mkdir()
        place.symlink_to(tmp_path / "theirs")
    elif planted == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod({"wide": 0o777, "of a group": 0o770, "of others": 0o702}.get(planted, 0o700))
    if planted == "foreign":
        uid = os.getuid()
        place.rename(tmp_path / "shared" / f"strom-{uid + 1}")
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(InvalidSetting, match=r"TMPDIR"):
        private_folder("marks", environment)
    assert not (tmp_path / "theirs" / "marks").exists()


def test_a_folder_of_ours_that_others_may_look_into_is_closed(tmp_path: Path) -> None:
    environment = _environment(tmp_path, home=False)
    place = tmp_path / "shared" / f"strom-{os.getuid()}"
    place.mkdir()
    place.chmod(0o755)
    assert private_folder("marks", environment).parent == place
    assert _mode(place) == 0o700


def test_the_java_that_spark_runs_and_the_marks_of_commits_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _environment(tmp_path, home=False).items():
        monkeypatch.setenv(name, value)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
    real = tmp_path / "jdk" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\n")
    theirs = tmp_path / "shared" / f"strom-java-{os.getuid()}-{(tmp_path / 'jdk').stat().st_ino}"
    (theirs / "bin").mkdir(parents=True)
    home = java_home.wrapped(tmp_path / "jdk")
    mark = publishing._mark(Sink("s", "q"), 3)
    mark.touch()
    for one in (home, mark):
        private = tmp_path / "shared" / f"strom-{os.getuid()}"
        assert private in one.parents
        assert _mode(private) == 0o700
    assert str(real) in (home / "bin" / "java").read_text()
