"""How the columns of a lake file are written: with a dictionary and compressed, unless that gains nothing.

Of numbers that hardly ever repeat, Parquet's writer would begin a dictionary, fill it up and go on without; what it
wrote until then is slower to read (a value is looked up instead of copied) and no smaller. If compression does not
make them smaller either, as with measured values, they are left as they are: decompressing took more than half of
the CPU of a sum over them in DuckDB (10 M rows: 130 ms against 57, in files that are 4 % larger).

Only numbers of eight bytes. Narrower ones fit into a dictionary, and of text even one that fills up saves much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

CODEC = "zstd"
SAMPLE_ROWS = 1 << 16
DISTINCT_SHARE = 0.75
"""Of the sample. Values drawn at random from so few that a dictionary can hold them (1 MB) repeat more often."""
WORTH_SHARE = 0.9
"""Compressed, the sample has to be as small as this."""


class ColumnForms(NamedTuple):
    """What is decided for one file, by the columns' names."""

    plain: frozenset[str]
    """Without a dictionary."""
    raw: frozenset[str]
    """Not compressed."""

    def codecs(self, paths: Iterable[str]) -> dict[str, str]:
        """The codec of every column."""
        return {path: "none" if path in self.raw else CODEC for path in paths}


def column_forms(rows: pa.Table) -> ColumnForms:
    """For a file that begins with these rows."""
    samples = {
        field.name: rows.column(field.name).slice(0, SAMPLE_ROWS)
        for field in rows.schema
        if _is_wide(field.type)
    }
    plain = frozenset(name for name, sample in samples.items() if _differs(sample))
    return ColumnForms(plain, frozenset(name for name in plain if not _shrinks(samples[name])))


def _is_wide(kind: pa.DataType) -> bool:
    is_moment = pa.types.is_timestamp(kind) or pa.types.is_time64(kind)
    return bool(is_moment or pa.types.is_int64(kind) or pa.types.is_float64(kind))


def _differs(sample: pa.ChunkedArray) -> bool:
    there = len(sample) - sample.null_count
    return there > SAMPLE_ROWS // 2 and bool(pc.count_distinct(sample).as_py() > DISTINCT_SHARE * there)


def _shrinks(sample: pa.ChunkedArray) -> bool:
    values = sample.drop_null().combine_chunks()
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    content = b"".join(chunk.buffers()[1].slice(chunk.offset * 8, len(chunk) * 8) for chunk in chunks)
    return len(pa.compress(content, CODEC, asbytes=True)) <= WORTH_SHARE * len(content)
