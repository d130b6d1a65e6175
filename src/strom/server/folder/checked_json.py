"""Small files of JSON that show when they are damaged: facts, and a CRC-32 over them (docs/formats/folder.md)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any


def encode_checked(facts: Mapping[str, object]) -> bytes:
    """The file's content. Every version keeps this rule."""
    return json.dumps({**facts, "crc": _crc(facts)}, sort_keys=True).encode() + b"\n"


def decode_checked(content: bytes) -> dict[str, Any] | None:
    """The facts; None when the file is damaged."""
    try:
        facts: dict[str, Any] = json.loads(content)
        return facts if facts.pop("crc") == _crc(facts) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _crc(facts: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
