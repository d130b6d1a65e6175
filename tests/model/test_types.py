"""Types: three spellings of one thing, and every spelling reads back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from strategies import data_types
from strom.errors import InvalidTable
from strom.model import types as t

PAGE = Path(__file__).parents[2] / "docs" / "types.md"


@settings(max_examples=100, deadline=None)
@given(data_types(max_leaves=8))
def test_json_and_sql_read_back_to_the_same_type(data_type: t.DataType) -> None:
    assert t.from_json(data_type.to_json()) == data_type
    assert t.parse(data_type.sql()) == data_type


@pytest.mark.parametrize(
    "other", [str.lower, str.capitalize, str.swapcase], ids=lambda change: change.__name__
)
@pytest.mark.parametrize(
    "text",
    [
        *(kind.word for kind in t.SCALARS),
        *("INTEGER", "BOOL", "DEC(7, 2)", "NUMERIC(7, 2)"),
        *("DECIMAL(10, 2) NOT NULL", "ARRAY<INT>", "MAP<STRING, BIGINT>", "ROW<`a` INT>"),
    ],
)
def test_case_does_not_matter(text: str, other: Callable[[str], str]) -> None:
    assert t.parse(other(text).replace("`A`", "`a`")) == t.parse(text)


@settings(max_examples=100, deadline=None)
@given(data_types(max_leaves=8))
def test_arrow_reads_back_to_a_type_with_the_same_arrow_type(data_type: t.DataType) -> None:
    back = t.from_arrow(data_type.to_arrow(), data_type.nullable)
    assert back.to_arrow() == data_type.to_arrow()
    assert back.nullable == data_type.nullable


def test_nullable_is_only_written_when_it_is_false() -> None:
    assert t.Int().to_json() == {"type": "INTEGER"}
    assert t.Int(nullable=False).to_json() == {"type": "INTEGER", "nullable": False}


@pytest.mark.parametrize(
    ("precision", "time", "timestamp"),
    [
        (0, pa.time32("s"), pa.timestamp("s")),
        (1, pa.time32("ms"), pa.timestamp("ms")),
        (3, pa.time32("ms"), pa.timestamp("ms")),
        (4, pa.time64("us"), pa.timestamp("us")),
        (6, pa.time64("us"), pa.timestamp("us")),
        (7, pa.time64("ns"), pa.timestamp("ns")),
        (9, pa.time64("ns"), pa.timestamp("ns")),
    ],
)
def test_precision_chooses_the_unit(precision: int, time: pa.DataType, timestamp: pa.DataType) -> None:
    assert t.Time(precision).to_arrow() == time
    assert t.Timestamp(precision).to_arrow() == timestamp
    assert t.TimestampLtz(precision).to_arrow() == pa.timestamp(timestamp.unit, tz="UTC")


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.large_string(), t.String()),
        (pa.string_view(), t.String()),
        (pa.large_binary(), t.Bytes()),
        (pa.dictionary(pa.int8(), pa.large_string()), t.String()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), t.BigInt()),
        (pa.list_(pa.float32(), 3), t.Array(t.Float())),
        (pa.large_list(pa.field("x", pa.int8(), nullable=False)), t.Array(t.TinyInt(nullable=False))),
        (pa.timestamp("us", tz="Europe/Berlin"), t.TimestampLtz(6)),
        (pa.uint8(), t.SmallInt()),
        (pa.uint32(), t.BigInt()),
        (pa.float16(), t.Float()),
        (pa.date64(), t.Date()),
        (pa.decimal256(20, 3), t.Decimal(20, 3)),
        (pa.uuid(), t.Binary(16)),
        (pa.map_(pa.string(), pa.int8()), t.Map(t.String(nullable=False), t.TinyInt())),
    ],
)
def test_other_layouts_of_arrow_become_the_plain_type(arrow: pa.DataType, expected: t.DataType) -> None:
    assert t.from_arrow(arrow) == expected


@pytest.mark.parametrize(
    "arrow",
    [pa.null(), pa.uint64(), pa.duration("s"), pa.decimal256(40, 2), pa.decimal128(5, -2), pa.struct([])],
)
def test_what_no_column_can_hold_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidTable):
        t.from_arrow(arrow)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("varchar(10)", "did you mean STRING"),
        ("BIGINTT", "did you mean BIGINT"),
        ("int not", "expected NULL at position 7"),
        ("array<int", "expected '>'"),
        ("decimal(39, 2)", "precision of DECIMAL"),
        ("decimal(5, 6)", "scale of DECIMAL"),
        ("char(0)", "length of CHAR"),
        ("timestamp(10)", "precision of TIMESTAMP"),
        ("row<>", "the name of a field"),
        ("row<a int, a int>", "distinct names"),
        ("int;", "expected the end"),
        ("", "the name of a type"),
        ("array<" * 40 + "int" + ">" * 40, "levels"),
    ],
)
def test_text_that_is_no_type_is_refused_with_what_to_change(text: str, complaint: str) -> None:
    with pytest.raises(InvalidTable, match=re.escape(complaint)):
        t.parse(text)


@pytest.mark.parametrize(
    "json",
    [
        None,
        [],
        {},
        {"type": 5},
        {"type": "TEXT"},
        {"type": "INTEGER", "nullable": "no"},
        {"type": "DECIMAL", "precision": True},
        {"type": "DECIMAL", "precision": 10, "scale": 11},
        {"type": "CHAR", "length": 2**31},
        {"type": "ARRAY"},
        {"type": "MAP", "key_type": {"type": "STRING"}},
        {"type": "ROW", "fields": []},
        {"type": "ROW", "fields": [{"name": "a"}]},
        {"type": "ROW", "fields": {"a": 1}},
        {"type": "ROW", "fields": [{"name": "\ud800", "field_type": {"type": "DATE"}}]},
    ],
)
def test_json_that_is_no_type_is_refused(json: object) -> None:
    with pytest.raises(InvalidTable):
        t.from_json(json)


def test_json_nested_without_end_is_refused() -> None:
    json: dict[str, object] = {"type": "INTEGER"}
    for _ in range(40):
        json = {"type": "ARRAY", "element_type": json}
    with pytest.raises(InvalidTable, match="deep"):
        t.from_json(json)


def test_a_map_never_has_null_keys() -> None:
    assert t.Map(t.String(), t.Int()).key == t.String(nullable=False)


def test_the_page_about_types_says_what_the_code_does() -> None:
    rows = re.findall(r"^\| `([^`|]+)` \| `([^`|]+)` \| `([^`|]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    for sql, json, arrow in rows:
        data_type = t.parse(sql)
        assert data_type.sql() == sql
        assert data_type.root == json
        assert str(data_type.to_arrow()) == arrow
    assert {t.parse(sql).root for sql, _, _ in rows} == {
        *(kind.root for kind in t.SCALARS),
        "ARRAY",
        "MAP",
        "ROW",
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DECIMAL", t.Decimal(10, 0)),
        ("CHAR", t.Char(1)),
        ("BINARY", t.Binary(1)),
        ("TIME_WITHOUT_TIME_ZONE", t.Time(0)),
        ("TIMESTAMP_WITHOUT_TIME_ZONE", t.Timestamp(6)),
        ("TIMESTAMP_WITH_LOCAL_TIME_ZONE", t.TimestampLtz(6)),
    ],
)
def test_a_type_whose_document_says_no_more_is_what_the_standard_says(name: str, meant: t.DataType) -> None:
    assert t.from_json({"type": name}) == meant
