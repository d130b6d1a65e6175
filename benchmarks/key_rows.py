"""Rows of primary-key tables: 10 columns of about 90 bytes, by an int64 key or by two strings, plain or encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.kv.peer_rows.row_encoder import RowEncoder
from strom.model.schema import Schema

Numbers = npt.NDArray[np.int64]

LOAD_SHARES = ((100, 0.1), (1_000, 0.2), (10_000, 0.7))
"""Rows a batch, and the share of the keys that is loaded so."""
UPDATE_ROWS = 10_000

_REST = [
    ("amount", pa.float64()),
    ("price", pa.float64()),
    ("quantity", pa.int32()),
    ("day", pa.date32()),
    ("at", pa.timestamp("us")),
    ("page", pa.string()),
    ("country", pa.string()),
    ("flag", pa.bool_()),
]
_PAGES = pa.array([f"/catalogue/section-{i % 40}/item-{i:06d}" for i in range(1000)])
_COUNTRIES = pa.array(["DE", "FR", "IN", "JP", "US", "BR"])


class Encoded(NamedTuple):
    """The same rows for a store of bytes."""

    keys: list[bytes]
    values: list[bytes]


@dataclass(frozen=True)
class Form:
    """One table: what its key is, and its rows by number."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    @property
    def model(self) -> Schema:
        """As the catalog has it."""
        return Schema.from_arrow(self.schema, primary_key=list(self.key))

    def rows(self, numbers: Numbers, version: int = 0) -> pa.RecordBatch:
        """The rows of these keys; another version has other values."""
        mixed = ((numbers + version * 7919) * 2_654_435_761) % 1_000_003
        rest = [
            pa.array(mixed / 7.0),
            pa.array(mixed / 100.0),
            pa.array((mixed % 100).astype(np.int32)),
            pa.array((20_000 + mixed % 365).astype(np.int32)).cast(pa.date32()),
            pa.array(mixed * 1000).cast(pa.timestamp("us")),
            _PAGES.take(pa.array(mixed % 1000)),
            _COUNTRIES.take(pa.array(mixed % 6)),
            pa.array(mixed % 2 == 0),
        ]
        return pa.RecordBatch.from_arrays([*self._key_arrays(numbers, mixed), *rest], schema=self.schema)

    def keys(self, numbers: Numbers) -> pa.RecordBatch:
        """The key columns alone."""
        arrays = self._key_arrays(numbers, numbers)[: len(self.key)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([self.schema.field(n) for n in self.key]))

    def _key_arrays(self, numbers: Numbers, mixed: Numbers) -> list[pa.Array]:
        if len(self.key) == 1:
            return [pa.array(numbers), pa.array(mixed)]
        return [_text(b"tenant-", numbers % 5000, 5), _text(b"order-", numbers, 9)]

    def key_bytes(self, numbers: Numbers) -> list[bytes]:
        """Keys for a store of bytes, in an order that suits it."""
        if len(self.key) == 1:
            return _cut(numbers.astype(">i8").tobytes(), 8)
        first, second = _digits(b"tenant-", numbers % 5000, 5), _digits(b"order-", numbers, 9)
        both = np.concatenate([first, second], axis=1)
        return _cut(both.tobytes(), both.shape[1])

    def encoded(self, numbers: Numbers, rows: pa.RecordBatch) -> Encoded:
        """Rows made by ``rows``, as bytes."""
        data, starts = RowEncoder(self.schema).encode(rows)
        blob, places = data.tobytes(), starts.tolist()
        values = [blob[a:b] for a, b in pairwise(places)]
        return Encoded(self.key_bytes(numbers), values)


def _cut(blob: bytes, width: int) -> list[bytes]:
    return [blob[i : i + width] for i in range(0, len(blob), width)]


def _digits(head: bytes, numbers: Numbers, width: int) -> npt.NDArray[np.uint8]:
    out = np.empty((len(numbers), len(head) + width), np.uint8)
    out[:, : len(head)] = np.frombuffer(head, np.uint8)
    left = numbers.copy()
    for place in range(len(head) + width - 1, len(head) - 1, -1):
        out[:, place] = left % 10 + 48
        left //= 10
    return out


def _text(head: bytes, numbers: Numbers, width: int) -> pa.Array:
    letters = _digits(head, numbers, width)
    offsets = np.arange(0, letters.size + 1, letters.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(letters))


def _schema(*key: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(*key[0], nullable=False), *key[1:], *_REST])


INT_KEY = Form("int64 key", _schema(("id", pa.int64()), ("user_id", pa.int64())), ("id",))
TEXT_KEY = Form(
    "two-string key",
    _schema(("tenant", pa.string())).insert(1, pa.field("order", pa.string(), nullable=False)),
    ("tenant", "order"),
)


def history(keys: int, updates: int, seed: int = 1) -> Iterator[tuple[Numbers, int]]:
    """(numbers, version) of every batch: a load in random order in batches of three sizes, then random updates."""
    random = np.random.default_rng(seed)
    order = random.permutation(keys)
    begin = 0
    for rows, share in LOAD_SHARES:
        end = keys if rows == LOAD_SHARES[-1][0] else begin + int(keys * share)
        for start in range(begin, end, rows):
            yield order[start : min(start + rows, end)], 0
        begin = end
    for number in range(keys * updates // UPDATE_ROWS):
        yield random.integers(0, keys, UPDATE_ROWS), 1 + number
