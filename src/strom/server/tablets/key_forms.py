"""How the rows and keys of one primary-key table travel: schemas of keys, and the peer's row encoding both ways.

Built once per version of a table. The compiled kernels are prepared before the first primary-key bucket is opened
(``kernels.py``), so a server of log tables never loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import IndexNotFound, InvalidProjection, InvalidTargets
from strom.kv.definition import PREFIX_INDEX, KeyDefinition
from strom.model.schema import Schema
from strom.model.table import TableEntry
from strom.record.batch import BatchHeader, check_crc, read_columns
from strom.record.decode import decode
from strom.record.layout import ATTRIBUTE_APPEND_ONLY, MAGIC_PLAIN
from strom.record.message import CODEC_NONE
from strom.runtime.files import Bytes
from strom.tablet.tablet import Tablet

SHAPES_MAX = 1024

if TYPE_CHECKING:
    from strom.kv.gather.column_source import ColumnSource
    from strom.kv.peer_rows.row_decoder import RowDecoder
    from strom.kv.peer_rows.row_encoder import EncodedRows, RowEncoder
    from strom.tablet.key_tablet import KeyTablet


def key_tablet(tablet: Tablet) -> KeyTablet:
    """The tablet of a table that is known to have a primary key."""
    return cast("KeyTablet", tablet)


class KeyForms:
    """One version of one table."""

    def __init__(self, table: TableEntry, check_peer_rows: Callable[[], None] = lambda: None) -> None:
        self.table = table
        self.check_peer_rows = check_peer_rows
        """Raises KernelsCompiling while the peer's rows and keys can be neither read nor written."""
        self.definition = KeyDefinition.of(table)
        self.arrow = self.definition.arrow
        self.key_schema = self._fields(self.definition.key)
        prefix = self._bucket_key()
        self.prefix_index = PREFIX_INDEX if self.definition.prefix else None
        """None: the bucket key is the whole key, so a lookup by it is a lookup by key."""
        self.prefix_schema = self._fields(prefix)
        self.all_columns = tuple(range(len(self.arrow)))
        self.key_batches = KeyBatchReader(self.key_schema)
        self._nested = frozenset(
            position for position, column in enumerate(table.schema.columns) if column.type.nested
        )
        auto = table.schema.auto_increment
        self.auto_increment = table.schema.position(auto[0]) if auto else None

    # --- what is asked ---------------------------------------------------------------------------------

    def keys(self, keys: Sequence[Bytes]) -> pa.RecordBatch:
        """Encoded keys as columns."""
        self.check_peer_rows()
        return self._keys.decode(*_joined(keys))

    def prefixes(self, prefixes: Sequence[Bytes]) -> pa.RecordBatch:
        """Encoded bucket keys as columns."""
        self.check_peer_rows()
        return self._prefixes.decode(*_joined(prefixes))

    def tuples(self, index: str | None) -> pa.Schema:
        """The columns of a lookup by an index, by ``$prefix`` or (None) by key."""
        if index is None:
            return self.key_schema
        if index == PREFIX_INDEX:
            return self.prefix_schema
        columns = self.definition.indexes.get(index)
        if columns is None:
            known = ", ".join(sorted(self.definition.indexes)) or "none"
            raise IndexNotFound(f"{self.table.path} has no index {index!r}; it has: {known}", index=index)
        return self._fields(columns)

    def columns(self, schema_id: int, wanted: Sequence[int]) -> tuple[int, ...]:
        """Positions to answer with: the wanted ones, or all of the schema the caller knows."""
        schema = self.table.schema_by_id(schema_id)
        if not wanted:
            return self.all_columns[: len(schema.columns)]
        if len(set(wanted)) < len(wanted) or min(wanted) < 0 or max(wanted) >= len(schema.columns):
            raise InvalidProjection(
                f"columns are different positions below {len(schema.columns)}", columns=list(wanted[:100])
            )
        return tuple(wanted)

    def flat(self, columns: Sequence[int]) -> bool:
        """Whether none of the columns is nested."""
        return not self._nested or self._nested.isdisjoint(columns)

    # --- what is written -------------------------------------------------------------------------------

    def targets(self, schema: Schema, columns: Sequence[int]) -> tuple[int, ...] | None:
        """The columns of a write, ascending; None for whole rows."""
        count = len(schema.columns)
        if not columns:
            found: tuple[int, ...] | None = None
        else:
            found = tuple(sorted(set(columns)))
            if len(found) < len(columns) or found[0] < 0 or found[-1] >= count:
                raise InvalidTargets(
                    f"target columns are different positions below {count}", columns=list(columns[:100])
                )
            missing = [name for name in schema.primary_key if schema.position(name) not in found]
            if missing:
                raise InvalidTargets(f"target columns lack the key column {missing[0]!r}", columns=missing)
        if self.auto_increment is not None and (found is None or self.auto_increment in found):
            name = self.arrow.field(self.auto_increment).name
            raise InvalidTargets(
                f"the server fills column {name!r} (auto-increment): name the columns to write, without it",
                column=name,
            )
        return None if found is not None and len(found) == count else found

    def written(self, schema: Schema, targets: tuple[int, ...] | None) -> pa.Schema:
        """The Arrow schema of a batch with these columns."""
        return schema.to_arrow() if targets is None else _fields(schema.to_arrow(), targets)

    # --- what is answered ------------------------------------------------------------------------------

    def rows(self, rows: pa.RecordBatch) -> EncodedRows:
        """Whole rows of the newest schema as the peer reads them, each after its schema id."""
        self.check_peer_rows()
        return self._rows.encode(rows, schema_id=self.table.schema.schema_id)

    @cached_property
    def _keys(self) -> RowDecoder:
        from strom.kv.peer_rows.row_decoder import RowDecoder

        return RowDecoder(self.key_schema, null_bits=False)

    @cached_property
    def _prefixes(self) -> RowDecoder:
        from strom.kv.peer_rows.row_decoder import RowDecoder

        return RowDecoder(self.prefix_schema, null_bits=False)

    @cached_property
    def _rows(self) -> RowEncoder:
        from strom.kv.peer_rows.row_encoder import RowEncoder

        return RowEncoder(self.arrow)

    def _bucket_key(self) -> tuple[int, ...]:
        return tuple(self.table.schema.position(name) for name in self.table.description.bucket_key)

    def _fields(self, positions: Sequence[int]) -> pa.Schema:
        return _fields(self.arrow, positions)


class KeyBatchReader:
    """Reads batches of keys. For fixed-width keys it remembers the shapes it has fully checked.

    The metadata of an Arrow message says where every buffer lies; a message that begins with the same bytes and is as
    long has the same buffers, and numbers have nothing else that could be wrong.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._numbers = all(_is_number(field.type) for field in schema)
        self._known: dict[tuple[int, int, bytes], npt.NDArray[np.int64]] = {}
        """By shape: where its values begin, as the addresses of a source (``kv.columns``) counted from the batch."""

    def read(self, records: memoryview, header: BatchHeader, decompressed_bytes_max: int) -> pa.RecordBatch:
        """The keys of one batch."""
        shape = self._shape(records, header)
        if shape is not None and shape in self._known:
            return pa.ipc.read_record_batch(pa.py_buffer(records[header.message_position :]), self._schema)
        return self._read(records, header, shape, decompressed_bytes_max)

    def places(
        self, records: memoryview, header: BatchHeader, decompressed_bytes_max: int
    ) -> ColumnSource | pa.RecordBatch:
        """The same without a copy, if their shape is known. For kernels."""
        shape = self._shape(records, header)
        known = None if shape is None else self._known.get(shape)
        if known is None:
            return self._read(records, header, shape, decompressed_bytes_max)
        addresses = known.copy()
        addresses[:, 1] += pa.py_buffer(records).address
        return self._source(header.record_count, addresses, records)

    @cached_property
    def _source(self) -> type[ColumnSource]:
        from strom.kv.gather.column_source import ColumnSource

        return ColumnSource

    def _shape(self, records: memoryview, header: BatchHeader) -> tuple[int, int, bytes] | None:
        """The values of a batch of numbers whose checksum was checked."""
        start = header.message_position
        if not self._numbers or header.size != len(records) or header.size < start + 8:
            return None
        check_crc(records, header)
        end = start + 8 + int.from_bytes(records[start + 4 : start + 8], "little")
        return header.record_count, header.size, bytes(records[start:end])

    def _read(
        self,
        records: memoryview,
        header: BatchHeader,
        shape: tuple[int, int, bytes] | None,
        decompressed_bytes_max: int,
    ) -> pa.RecordBatch:
        batch = decode(
            records,
            self._schema,
            header=header,
            check_crc=shape is None,
            decompressed_bytes_max=decompressed_bytes_max,
            full_validation=True,
        )
        if shape is not None and _is_plain(records, header):
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            values = [start for start, _ in read_columns(records, header).buffers[1::2]]
            self._known[shape] = np.array([(0, start, 0) for start in values], np.int64)
        return batch


def _is_plain(records: memoryview, header: BatchHeader) -> bool:
    """Whether there is only the message, without compression and without NULLs."""
    columns = read_columns(records, header)
    plain = columns.codec == CODEC_NONE and not any(columns.nodes[1::2])
    return plain and header.attributes == ATTRIBUTE_APPEND_ONLY and header.magic == MAGIC_PLAIN


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_date32(kind) or types.is_timestamp(kind)
    )


def _fields(schema: pa.Schema, positions: Sequence[int]) -> pa.Schema:
    return pa.schema([schema.field(position) for position in positions])


def _joined(
    parts: Sequence[Bytes],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    data = np.frombuffer(b"".join(parts), np.uint8)
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(parts) else ends
    return data, starts, ends
