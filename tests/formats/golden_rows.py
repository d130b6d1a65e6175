"""The rows that the golden batches hold: every type, its edges, NULL on every level."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("number", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("fixed", pa.binary(4)),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("clock", pa.time32("ms")),
        ("moment", pa.timestamp("ms")),
        ("instant", pa.timestamp("us", "UTC")),
        ("exact", pa.timestamp("ns")),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("row", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)

FULL = {
    "flag": True,
    "tiny": -128,
    "small": 32767,
    "number": -(2**31),
    "big": 2**63 - 1,
    "single": 1.5,
    "double": -2.25,
    "text": "größer als sieben",
    "blob": b"\x00\xff\x80",
    "fixed": b"abcd",
    "price": Decimal("-12345678.90"),
    "wide": Decimal("1234567890123456789012345678.0123456789"),
    "day": dt.date(1969, 12, 31),
    "clock": dt.time(23, 59, 59, 999_000),
    "moment": dt.datetime(2024, 2, 29, 12, 0, 0, 1000),
    "instant": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    "exact": dt.datetime(2001, 9, 9, 1, 46, 40),
    "list": ["a", None, ""],
    "map": [("k", 1), ("l", None)],
    "row": {"x": 7, "y": None},
}
SMALL = FULL | {
    "flag": False,
    "tiny": 1,
    "text": "short",
    "single": -0.5,
    "price": Decimal("0.01"),
    "wide": Decimal("-0.0000000001"),
    "list": [],
    "map": [],
    "row": {"x": None, "y": "y"},
}
EMPTY = dict.fromkeys(FULL)

ROWS = pa.RecordBatch.from_pylist([FULL, EMPTY, SMALL, FULL], schema=SCHEMA)
