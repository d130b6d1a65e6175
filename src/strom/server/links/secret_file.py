"""The cluster's secret, read from a file that only the server's user can read."""

from __future__ import annotations

import os
import stat

from strom.errors import InvalidSetting

SETTING = "cluster.secret-file"
CHARACTERS_MIN = 32
"""This many hexadecimal digits are 128 bits: nobody guesses them."""
BYTES_MAX = 4096
ROOT = 0


def read_secret(path: str) -> str:
    """The secret in a file; raises InvalidSetting if there is none or if others could read it."""
    if not path:
        raise InvalidSetting(
            f"{SETTING} is not set: name a file with the secret that all servers of the cluster share "
            "(openssl rand -hex 32 > secret; chmod 600 secret)",
            setting=SETTING,
        )
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidSetting(
            f"{SETTING}: {path} cannot be read: {error.strerror}", setting=SETTING, path=path
        ) from error
    try:
        # The file that is open, not what has the name a moment later.
        _check_private(os.fstat(descriptor), path)
        content = os.read(descriptor, BYTES_MAX)
    finally:
        os.close(descriptor)
    return _checked(content, path)


def _check_private(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidSetting(f"{SETTING}: {path} is not a file", setting=SETTING, path=path)
    if found.st_uid not in (os.geteuid(), ROOT):
        raise InvalidSetting(
            f"{SETTING}: {path} belongs to user {found.st_uid}, who could read and change it; chown it to the user "
            "that runs the server",
            setting=SETTING,
            path=path,
        )
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSetting(
            f"{SETTING}: others can use {path} (mode {stat.S_IMODE(found.st_mode):o}); chmod 600 it",
            setting=SETTING,
            path=path,
        )


def _checked(content: bytes, path: str) -> str:
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        secret = ""
    if len(secret) < CHARACTERS_MIN:
        raise InvalidSetting(
            f"{SETTING}: {path} holds no text of at least {CHARACTERS_MIN} characters; make one with "
            "openssl rand -hex 32",
            setting=SETTING,
            path=path,
        )
    return secret
