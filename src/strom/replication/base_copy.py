"""What a leader sends to a follower that copies a base (R18).

A base is files at one offset. The leader holds it as long as somebody copies it; a follower that asks for another one
begins anew, because pieces of two bases do not fit together.
"""

from __future__ import annotations

from strom.replication.pulls import BaseListing, BasePiece, BaseProgress


def next_of_base(asked: BaseProgress | None, held: BaseListing, bytes_max: int) -> BaseListing | BasePiece:
    """The listing of the base that is held for a follower, or the next bytes of it."""
    if asked is None or asked.offset != held.offset or not 0 <= asked.file < len(held.sizes):
        return held
    left = held.sizes[asked.file] - asked.position
    if asked.position < 0 or left <= 0:
        return held
    return BasePiece(held.offset, asked.file, asked.position, min(left, bytes_max))
