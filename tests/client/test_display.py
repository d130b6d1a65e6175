"""How a table shows itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from client.play import description_of
from strom.client.cluster.metadata import TableInfo
from strom.client.show.display import headline, table_html, table_text
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("region", pa.string())])


def shown(keys: tuple[str, ...] = (), buckets: int = 1, **more: Any) -> TableInfo:
    description = TableDescription(Schema.from_arrow(COLUMNS, keys), bucket_count=buckets, **more)
    return TableInfo(7, TablePath("shop", "t"), description, 0, 0)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (shown(), "log table, 1 bucket"),
        (shown(buckets=3, bucket_key=("id",)), "log table, 3 buckets by id"),
        (shown(("id",), buckets=2, bucket_key=("id",)), "primary-key table, 2 buckets by id"),
        (
            shown(("id", "day", "region"), 4, bucket_key=("id",), partition_keys=("day", "region")),
            "primary-key table, partitioned by day, region, 4 buckets by id",
        ),
        (shown(("id", "day"), 2, bucket_key=("id", "day")), "primary-key table, 2 buckets by id, day"),
    ],
)
def test_its_first_line_says_what_kind_it_is_and_how_it_is_spread(table: TableInfo, expected: str) -> None:
    assert headline(table) == expected
    assert table_text(table).startswith(f"Table shop.t ({expected})\n")
    assert f"<small>{expected}</small>" in table_html(table, None)


def test_columns_come_with_type_and_comment_and_long_lists_end_with_their_number() -> None:
    wide = description_of(*((f"c{number}", pa.int32()) for number in range(100)))
    table = TableInfo(7, TablePath("shop", "t"), wide, 0, 0)
    lines = table_text(table).splitlines()
    assert lines[1].split() == ["c0", "INT"]
    shown_columns = len(lines) - 2
    assert lines[-1] == f"  … and {100 - shown_columns} more columns"
    assert f"… and {100 - shown_columns} more columns" in table_html(table, None)


def test_names_are_escaped_in_notebooks() -> None:
    odd = description_of(("<b>", pa.int32()))
    assert "&lt;b&gt;" in table_html(TableInfo(7, TablePath("shop", "t"), odd, 0, 0), None)
