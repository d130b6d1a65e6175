"""The cluster's secret comes from a private file, or the server does not start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strom.errors import InvalidSetting
from strom.server.links.secret_file import read_secret

SECRET = "0123456789abcdef" * 4


def secret_file(folder: Path, content: bytes = SECRET.encode() + b"\n", mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_file_has_the_secret(tmp_path: Path, mode: int) -> None:
    assert read_secret(secret_file(tmp_path, mode=mode)) == SECRET


def test_a_link_to_a_private_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(secret_file(tmp_path))
    assert read_secret(str(tmp_path / "link")) == SECRET


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidSetting, match=rf"mode {mode:o}\); chmod 600"):
        read_secret(secret_file(tmp_path, mode=mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = secret_file(tmp_path)
    os.chown(path, 12345, -1)
    with pytest.raises(InvalidSetting, match="belongs to user 12345"):
        read_secret(path)


@pytest.mark.parametrize("content", [b"", b"short", b" " * 40, b"\xff" * 40])
def test_a_secret_that_is_none_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidSetting, match="at least 32 characters") as found:
        read_secret(secret_file(tmp_path, content))
    assert "short" not in str(found.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, message in [
        (str(tmp_path / "nowhere"), "cannot be read"),
        (str(tmp_path), "not a file"),
        (str(tmp_path / "pipe"), "not a file"),
        ("", "is not set"),
    ]:
        with pytest.raises(InvalidSetting, match=message):
            read_secret(path)
