"""Rows given as numpy arrays or a DataFrame are those of that moment, whatever becomes of the memory afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import strom
from api.place import table_on
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

COLUMNS = {"id": "BIGINT", "v": "BIGINT"}


def use_again(rows: Any, number: int, value: int) -> None:
    """Write to the memory of rows that were given before."""
    if isinstance(rows, pd.DataFrame):
        rows.loc[:, "id"], rows.loc[:, "v"] = np.arange(10) + 10 * number, value
    else:
        rows["id"][:], rows["v"][:] = np.arange(10) + 10 * number, value


def give_five(put: Callable[[Any], None], rows: Any) -> None:
    for number in range(5):
        use_again(rows, number, number)
        put(rows)
    use_again(rows, 99, 99)


@pytest.mark.parametrize("keyed", [False, True], ids=["log", "keys"])
@pytest.mark.parametrize("pandas", [False, True], ids=["numpy", "pandas"])
@pytest.mark.parametrize("how", ["writer", "transaction"])
def test_memory_that_is_used_again_changes_no_row_that_was_given(
    server: ServerProcess, how: str, pandas: bool, keyed: bool
) -> None:
    kind: dict[str, Any] = {"primary_key": "id"} if keyed else {}
    rows: Any = {"id": np.arange(10), "v": np.zeros(10, np.int64)}
    if pandas:
        rows = pd.DataFrame(rows)
    with table_on(server, COLUMNS, buckets=1, **kind) as table, strom.connect(server.address) as db:
        if how == "writer":
            with table.writer() as writer:
                give_five(writer.upsert if keyed else writer.append, rows)
        else:
            with db.transaction() as tx:
                put = tx.upsert if keyed else tx.append
                give_five(lambda given: put(table.name, given), rows)
        found = table.scan().to_arrow().sort_by("id").to_pydict()
        assert found == {"id": list(range(50)), "v": [number // 10 for number in range(50)]}
