"""What happened to a row, as people read it: +I inserted, -U before and +U after an update, -D deleted, +A appended."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.record import layout

KINDS = ("+A", "+I", "-U", "+U", "-D")
"""By the number that stands in a batch."""
assert KINDS[layout.CHANGE_INSERT] == "+I"
assert KINDS[layout.CHANGE_DELETE] == "-D"


@lru_cache(maxsize=1)
def _words() -> pa.Array:
    """Made when first needed: pyarrow looks for pandas when it makes its first array."""
    return pa.array(KINDS, pa.string())


def kinds_of(changes: npt.NDArray[np.uint8] | None, rows: int) -> pa.Array:
    """A word for every row; None stands for rows that were all appended."""
    numbers = np.zeros(rows, np.int8) if changes is None else changes.astype(np.int8)
    return pa.DictionaryArray.from_arrays(pa.array(numbers), _words()).cast(pa.string())
