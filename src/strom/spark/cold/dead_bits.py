"""Dead rows of lake files as a condition that Spark compiles: one bit per offset.

Bits come in blocks of 65,536 offsets. One array by bucket and one by block say where the bits of a block begin; all
blocks without a dead row share an empty one. So the cost follows the number of dead rows. The arrays are literals of
the plan and travel with it: nothing has to be broadcast first, and the test costs a few nanoseconds per row. A row
outside the arrays is alive.

Spark takes such literals only through an internal class of the JVM, which differs between versions. If it is missing,
the answer is ``None``, and a join filters the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import functions as F

from strom.model.lake.lake_types import BUCKET, OFFSET
from strom.spark.cold.dead_offsets import Longs
from strom.spark.cold.where_column import named
from strom.spark.connect.tasks import LakePart

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

BYTES_MAX = 8 * 1024 * 1024
"""Bytes of each array: every task reads its copy."""
BLOCK_BITS = 16
BLOCK_BYTES = 1 << (BLOCK_BITS - 3)
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


def alive(spark: SparkSession, parts: Sequence[LakePart], dead: Mapping[str, Longs]) -> Column | None:
    """Whether a row of these files is alive, by ``__bucket`` and ``__offset``; None if a join has to decide.

    No two files of a bucket overlap. ``dead``: dead offsets by path.
    """
    moves, blocks = _moves(parts)
    if blocks * 8 > BYTES_MAX:
        return None
    found = [_within(part, dead[part.file.path]) + (moves[part.file.bucket] << BLOCK_BITS) for part in parts]
    places = np.concatenate(found)
    used = np.unique(places >> BLOCK_BITS)
    if (len(used) + 1) * BLOCK_BYTES > BYTES_MAX:
        return None
    begins = np.zeros(blocks, np.int64)
    begins[used] = np.arange(1, len(used) + 1) * BLOCK_BYTES
    flags = np.zeros((len(used) + 1) * BLOCK_BYTES * 8, np.bool_)
    flags[begins[places >> BLOCK_BITS] * 8 + (places & (BLOCK_BYTES * 8 - 1))] = True
    bits = np.packbits(flags, bitorder="little").view(np.int8)
    literals = [_literal(spark, values) for values in (moves, begins, bits)]
    known = [one for one in literals if one is not None]
    return _unset(*known) if len(known) == len(literals) else None


def _unset(moves: Column, begins: Column, bits: Column) -> Column:
    """Whether a row's bit is not set."""
    offset = named(OFFSET)
    begin = F.get(begins, (F.shiftright(offset, BLOCK_BITS) + F.get(moves, named(BUCKET))).cast("int"))
    place = begin + F.shiftright(offset, 3).bitwiseAND(F.lit(BLOCK_BYTES - 1))
    bit = F.getbit(F.get(bits, place.cast("int")), offset.bitwiseAND(F.lit(7)).cast("int"))
    return F.coalesce(bit, F.lit(0)) == F.lit(0)


def _moves(parts: Sequence[LakePart]) -> tuple[Longs, int]:
    """By bucket: the shift from a block of its offsets to a block among all buckets; and the number of blocks."""
    spans: dict[int, tuple[int, int]] = {}
    for file in (part.file for part in parts):
        first, last = file.first_offset >> BLOCK_BITS, file.last_offset >> BLOCK_BITS
        low, high = spans.get(file.bucket, (first, last))
        spans[file.bucket] = min(low, first), max(high, last)
    moves = np.zeros(max(spans) + 1, np.int64)
    blocks = 0
    for bucket, (first, last) in sorted(spans.items()):
        moves[bucket] = blocks - first
        blocks += last - first + 1
    return moves, blocks


def _within(part: LakePart, offsets: Longs) -> Longs:
    """The offsets within the file: it must not set the bits of another."""
    file = part.file
    return offsets[(offsets >= file.first_offset) & (offsets <= file.last_offset)]


def _literal(spark: SparkSession, values: np.ndarray[Any, np.dtype[Any]]) -> Column | None:
    """Integers as one array literal of the plan."""
    from pyspark.sql.classic.column import Column

    content = values.astype(values.dtype.newbyteorder(">")).tobytes()
    try:
        jvm: Any = spark._jvm
        inner, types = _package(jvm, _EXPRESSIONS), _package(jvm, "org.apache.spark.sql.types").DataTypes
        if values.dtype == np.int8:
            made, kind = inner.UnsafeArrayData.fromPrimitiveArray(content), types.ByteType
        else:
            longs = spark.sparkContext._gateway.new_array(jvm.long, len(values))  # type: ignore[union-attr]
            jvm.java.nio.ByteBuffer.wrap(content).asLongBuffer().get(longs)
            made, kind = inner.UnsafeArrayData.fromPrimitiveArray(longs), types.LongType
        literal = inner.Literal(made, types.createArrayType(kind, False))
        return Column(_package(jvm, "org.apache.spark.sql.classic").ExpressionUtils.column(literal))
    except (Py4JError, TypeError):  # py4j takes an unknown name for a package, which cannot be called
        return None


def _package(jvm: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), jvm)
