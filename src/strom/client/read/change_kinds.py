"""What happened to a row, as text: +I inserted, -U before and +U after an update, -D deleted, +A appended."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.record import layout

KINDS = ("+A", "+I", "-U", "+U", "-D")
"""Indexed by the number in a batch."""
assert KINDS[layout.CHANGE_INSERT] == "+I"
assert KINDS[layout.CHANGE_DELETE] == "-D"


@lru_cache(maxsize=1)
def _words() -> pa.Array:
    """Built on first use: pyarrow imports pandas when it builds its first array."""
    return pa.array(KINDS, pa.string())


def kinds_of(changes: npt.NDArray[np.uint8] | None, rows: int) -> pa.Array:
    """The kind of every row as text; ``changes`` None means all were appended."""
    numbers = np.zeros(rows, np.int8) if changes is None else changes.astype(np.int8)
    return pa.DictionaryArray.from_arrays(pa.array(numbers), _words()).cast(pa.string())
