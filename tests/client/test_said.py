"""What people say to a client: addresses, options, keys, descriptions; and how it shows them values."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from strom.client.admin.describing import describe, property_text, type_of
from strom.client.cluster.address import Address, parse_addresses
from strom.client.cluster.options import KB, WriterOptions, compression_of
from strom.client.input.key_input import KeyInput
from strom.client.show.row_text import PREVIEW_ROWS, Preview, cell, plain, table_lines
from strom.errors import InvalidSetting, InvalidTable, SchemaMismatch
from strom.model.schema import Schema
from strom.model.types import BigInt

KEYS = Schema.from_arrow(pa.schema([("id", pa.int64()), ("day", pa.string()), ("x", pa.int32())]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost", [("localhost", 9123)]),
        ("a:1, b:65535 ,", [("a", 1), ("b", 65535)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9123)]),
        ("::1", [("::1", 9123)]),
    ],
)
def test_addresses_are_a_host_and_perhaps_a_port(text: str, found: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == tuple(Address(*one) for one in found)
    again = ",".join(map(str, parse_addresses(text)))
    assert parse_addresses(again) == parse_addresses(text)


@pytest.mark.parametrize("text", ["", " , ", ":9", "a:0", "a:65536", "a:x", "a:-1", "a:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_addresses(text)


def test_options_that_cannot_be_are_refused() -> None:
    for wrong in (
        {"acks": 2},
        {"in_flight_max": 0},
        {"in_flight_max": 6},
        {"batch_bytes_max": KB - 1},
        {"memory_bytes_max": 2 * 1024 * KB - 1},
    ):
        with pytest.raises(InvalidSetting):
            WriterOptions(**wrong)  # type: ignore[arg-type]
    assert WriterOptions(in_flight_max=5, batch_bytes_max=KB, memory_bytes_max=KB).alone_bytes_min == KB // 4
    assert [compression_of(word) for word in (None, "none", "LZ4", "zstd")] == [
        None,
        "NONE",
        "LZ4_FRAME",
        "ZSTD",
    ]
    with pytest.raises(InvalidSetting):
        compression_of("gzip")


def keys(data: object, *names: str) -> list[dict[str, Any]]:
    batch = KeyInput(KEYS, names or ("id",), table="t", verb="lookup").batch(data)
    assert batch.schema.names == list(names or ("id",))
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    "data",
    [
        [1, 2],
        (1, 2),
        range(1, 3),
        np.array([1, 2]),
        pd.Series([1, 2]).to_numpy(),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        pa.table({"id": [1, 2]}),
        pd.DataFrame({"id": [1, 2]}),
        [{"id": 1}, {"id": 2}],
        {"id": [1, 2]},
        [pa.record_batch({"id": [1]}), pa.record_batch({"id": [2]})],
    ],
    ids=lambda data: type(data).__name__,
)
def test_keys_of_one_column_are_given_in_any_way(data: object) -> None:
    assert keys(data) == [{"id": 1}, {"id": 2}]


def test_a_key_may_be_a_bare_value_where_it_is_one_column_and_only_there() -> None:
    assert keys(7) == keys({"id": 7}) == [{"id": 7}]
    assert keys("2026", "day") == [{"day": "2026"}]
    assert keys([], "day") == keys((), "day") == []
    assert keys({"day": "a", "id": 1}, "id", "day") == [{"id": 1, "day": "a"}]
    for bare in (7, [7, 8], np.array([7])):
        with pytest.raises(SchemaMismatch, match="The key has the columns id, day"):
            keys(bare, "id", "day")


def test_a_table_is_described_with_statistics_unless_it_has_a_key() -> None:
    log = describe({"id": "BIGINT", "v": "INT"}, properties={"owner": 7, "table.log.ttl": "1 d"})
    assert log.properties == {"table.statistics.columns": "*", "table.log.ttl": "1 d"}
    assert log.custom_properties == {"owner": "7"}
    said = describe({"id": "BIGINT"}, properties={"table.statistics.columns": "id"})
    assert said.properties == {"table.statistics.columns": "id"}
    keyed = describe(
        {"id": "BIGINT", "v": "INT"}, primary_key="id", indexes={"by_v": "v"}, merge_engine="first_row"
    )
    assert keyed.schema.primary_key == ("id",)
    assert not keyed.schema.column("id").type.nullable
    assert keyed.schema.column("v").type.nullable
    assert keyed.properties["table.merge-engine"] == "first_row"
    assert "table.statistics.columns" not in keyed.properties
    assert [value for name, value in keyed.properties.items() if name.endswith("by_v")] == ["v"]
    assert [property_text(value) for value in (True, False, 1, "True")] == ["true", "false", "1", "True"]
    assert type_of("bigint not null") == BigInt(nullable=False)
    assert type_of(pa.int64(), nullable=False) == BigInt(nullable=False)
    with pytest.raises(InvalidTable):
        type_of(7)  # type: ignore[arg-type]


def test_values_are_shown_without_losing_anything() -> None:
    value = {
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
        "day": dt.date(2026, 1, 2),
        "exact": decimal.Decimal("1.20"),
        "bytes": b"\x00\xff",
        "map": [("a", 1), ("b", None)],
        "pairs": [(1, 2)],
        "list": [dt.time(1, 2), None],
        "none": [],
    }
    assert plain(value) == {
        "at": "2026-01-02T03:04:05.000006",
        "day": "2026-01-02",
        "exact": "1.20",
        "bytes": "AP8=",
        "map": {"a": 1, "b": None},
        "pairs": [[1, 2]],
        "list": ["01:02:00", None],
        "none": [],
    }
    assert [cell(one) for one in (None, "NULL", {"ä": 1}, 5, [None])] == [
        "NULL",
        "NULL",
        '{"ä": 1}',
        "5",
        "[null]",
    ]
    assert table_lines(["a", "long"], [["x\ny", "1"], ["\x1b[0m", ""]]) == [
        "a        long",
        "───────  ────",
        "x\\ny     1",
        "\\x1b[0m",
    ]


@pytest.mark.parametrize(("rows", "more"), [(0, False), (PREVIEW_ROWS, False), (PREVIEW_ROWS + 1, True)])
def test_a_preview_shows_the_first_rows_and_says_when_there_are_more(rows: int, more: bool) -> None:
    data = pa.table({"<id>": [f"<{number}>" + "x" * 100 for number in range(rows)]})
    taken: list[int] = []

    def batches() -> Any:
        for batch in data.to_batches(max_chunksize=4):
            taken.append(batch.num_rows)
            yield batch
        taken.append(-1)

    preview = Preview(data.schema, batches())
    assert len(preview.text().splitlines()) == 2 + min(rows, PREVIEW_ROWS) + more
    assert ("the first 10 rows" in preview.text()) is more
    assert all(len(line) <= 60 for line in preview.text().splitlines())
    assert preview.html().count("<tr>") == 1 + min(rows, PREVIEW_ROWS)
    assert "&lt;id&gt;" in preview.html()
    assert "<id>" not in preview.html()
    assert (taken[-1] == -1) is (rows <= PREVIEW_ROWS)
