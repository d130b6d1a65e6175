"""The data that passes between the steps of one batch of changes: group by key, fold, plan the changelog.

    Changes     what arrived, grouped by key             (the store makes it)
    Folded      what each change does, and the images    (an engine makes it)
    Plan        the records of the changelog batch       (``changelog.plan`` makes it)

Numbering
    arrival     position of a change in the batch as it came, 0 … n-1
    group       position of a key among the distinct keys of the batch, 0 … g-1
    position    place in the changelog batch, 0 … m-1; its offset is the batch's base offset plus this

The changes of group ``j`` are ``order[starts[j]:starts[j + 1]]``, in arrival order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strom.kv.arrays import Bools, Int64s, Octets

NOTHING: Final = 0
INSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3

FROM_OLD: Final = 0
FROM_IMAGES: Final = 1


@dataclass(frozen=True)
class Changes:
    """One batch of changes, grouped by key."""

    rows: pa.RecordBatch
    """n rows of the table's schema in arrival order; columns not sent are NULL. For a delete only the key counts."""
    deletes: Bools
    order: Int64s
    starts: Int64s
    exists: Bools
    """For each group, whether the key has an image before this batch (a tombstone is not one)."""
    targets: tuple[int, ...] | None = None
    """Positions of the columns sent, keys included; None for all of them."""

    @property
    def groups(self) -> int:
        """Distinct keys."""
        return len(self.exists)


@dataclass(frozen=True)
class Folded:
    """What an engine made of a batch."""

    effect: Octets
    """Per change in arrival order: NOTHING, INSERT (no image before), UPDATE or DELETE (one before)."""
    images: pa.RecordBatch
    """Rows of the table's whole schema."""
    image_row: Int64s
    """Per change in arrival order: the row of ``images`` that is its image; -1 without one (NOTHING, DELETE)."""


@dataclass(frozen=True)
class ChangelogPlan:
    """The records of one changelog batch. A batch without records is empty but still takes one offset."""

    kinds: Octets
    """Change types as in a record batch: +I, -U, +U, -D."""
    from_: Octets
    """Where the record's row is: FROM_OLD (the group's image before the batch) or FROM_IMAGES (``Folded.images``)."""
    row: Int64s
    """The row there: the group's number in the old images, or a row of ``Folded.images``."""
    arrival: Int64s
    """The change that caused the record."""
    group: Int64s
    stored: Bools
    """Whether the record is an image or a tombstone, so that it becomes its key's newest record; -U is neither."""
    previous: Int64s
    """For stored records: position of the key's previous stored record in this batch; -1 when it came earlier."""
    newest: Int64s
    """Per group: position of its last stored record; -1 when the batch changed nothing for the key."""

    @property
    def records(self) -> int:
        """Records of the batch; 0 for a batch without effect."""
        return len(self.kinds)
