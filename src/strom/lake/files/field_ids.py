"""The ids of columns in lake files: a pure function of the table's column ids, so that every writer agrees.

    column, field of a ROW        its Strom id + 1
    element, key, value           10,000,000 + 1,000 · (Strom id of the column or field around it) + n, in order
    __bucket __offset __timestamp 2,000,001 and up

Strom never reuses ids within a table, so neither are these reused. A table has at most 10,000 of them.
"""

from __future__ import annotations

from strom.errors import LakeUnsupported

BUCKET_ID = 2_000_001
OFFSET_ID = 2_000_002
TIMESTAMP_ID = 2_000_003

_ELEMENTS_FROM = 10_000_000
_ELEMENTS_MAX = 1_000


def field_id(strom_id: int) -> int:
    """The id of a column or of a row's field."""
    assert 0 <= strom_id < BUCKET_ID - 1
    return strom_id + 1


class ElementIds:
    """Assigns ids to the elements, keys and values inside one column or row field, in order."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._given = 0

    def next(self) -> int:
        """The next id."""
        if self._given == _ELEMENTS_MAX:
            raise LakeUnsupported(
                f"A column of arrays and maps may hold {_ELEMENTS_MAX} of them in the lake",
                column_id=self._owner,
            )
        self._given += 1
        return _ELEMENTS_FROM + _ELEMENTS_MAX * self._owner + self._given - 1
