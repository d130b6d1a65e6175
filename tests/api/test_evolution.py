"""A table that gains columns while rows of the older schema are in it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import strom
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def grown(either: ServerProcess) -> Iterator[strom.Table]:
    """Three rows before column b, one after."""
    with strom.connect(either.address) as db:
        db.drop_table("grown", if_missing="ignore")
        table = db.create_table("grown", pa.schema([("a", pa.int64())]))
        table.append({"a": [1, 2, 3]})
        table.flush()
        table.add_column("b", pa.string())
        table.append({"a": [4], "b": ["x"]})
        table.flush()
        yield table


def test_rows_older_than_every_wanted_column_are_nulls(grown: strom.Table) -> None:
    found = grown.scan(columns=["b"]).to_arrow()
    assert found.column("b").to_pylist() == [None, None, None, "x"]


def test_what_one_handle_learns_all_of_its_connection_know(either: ServerProcess) -> None:
    with strom.connect(either.address) as db:
        db.drop_table("learned", if_missing="ignore")
        one = db.create_table("learned", pa.schema([("a", pa.int64())]))
        other = db.table("learned")
        assert other.info.schema.names == ("a",)
        one.add_column("b", pa.string())
        assert one.info.schema.names == other.info.schema.names == ("a", "b")


def test_filters_see_the_new_column_of_old_rows_as_null(grown: strom.Table) -> None:
    assert grown.scan(columns=["b"], where="b is null").to_arrow().num_rows == 3
    assert grown.scan(where="b = 'x'").to_arrow().to_pylist() == [{"a": 4, "b": "x"}]
    assert grown.scan(columns=["a"], where="b is null and a > 1").to_arrow().column("a").to_pylist() == [2, 3]


def test_a_tail_reads_both_schemas_as_the_newest(grown: strom.Table) -> None:
    rows: list[dict[str, object]] = []
    for batch in grown.tail(start="earliest"):
        rows += batch.data.to_pylist()
        if len(rows) == 4:
            break
    assert rows == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": None}, {"a": 4, "b": "x"}]
