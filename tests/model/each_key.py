"""Encoded keys, one by one."""

from __future__ import annotations

from itertools import pairwise

from strom.model.keys import EncodedKeys


def each_key(keys: EncodedKeys) -> list[bytes]:
    """Each key by itself."""
    whole = keys.data.tobytes()
    return [whole[low:high] for low, high in pairwise(keys.starts)]
