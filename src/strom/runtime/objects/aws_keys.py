"""Credentials for S3 where AWS' own tools look first: environment, then the profile in ``~/.aws/credentials``.

None there: the library asks for the machine's role.
"""

from __future__ import annotations

import configparser
import os

KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def aws_keys() -> dict[str, str]:
    """The credentials by their names in AWS' files; none when there are none."""
    named = {name: os.environ[name.upper()] for name in KEYS if name.upper() in os.environ}
    return named if KEYS[0] in named else _profile()


def _profile() -> dict[str, str]:
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    profile = os.environ.get("AWS_PROFILE", "default")
    if not parser.has_section(profile):
        return {}
    found = {name: parser.get(profile, name, fallback="") for name in KEYS}
    return {name: value for name, value in found.items() if value}
