"""Words the tests of log/ share: a log with rows that can be told apart, on any disk.

Row values are numbers that count up, so that what a log holds is compared with a plain list. ``Workbench`` keeps that
list (``batches``), appends, reads everything back, crashes and opens again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strom.errors import StromError
from strom.log.layout import WHOLE_BATCH_BYTES_MAX
from strom.log.log import Appended, Log, LogSettings, LogSlice
from strom.record.batch import DEFAULT_LIMITS, check_and_sum, split
from strom.record.columns import ColumnLayout
from strom.record.decode import decode
from strom.record.encode import encode
from strom.record.project import Projection
from strom.runtime.files import Files
from strom.testing.disk import ForgettingDisk

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("half", pa.float64())])
LAYOUT = ColumnLayout.of(SCHEMA)
NUMBERS = Projection(LAYOUT, [0])
HALVES = Projection(LAYOUT, [0, 2])
SMALL = LogSettings(
    segment_bytes=4000,
    roll_ms=1_000_000,
    index_interval_bytes=500,
    checkpoint_bytes=10**9,
    writer_expiry_ms=10_000,
)
FOLDER = "data/buckets/1/-/0"
START_MS = 1_000_000


def rows_from(first: int, count: int) -> pa.RecordBatch:
    """Rows that name themselves."""
    numbers = list(range(first, first + count))
    columns = [
        pa.array(numbers),
        pa.array([f"row {n:06}" for n in numbers]),
        pa.array([n / 2 for n in numbers]),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def batch_bytes(
    first: int,
    count: int,
    *,
    writer_id: int = -1,
    sequence: int = -1,
    compression: str = "NONE",
    statistics: bool = False,
) -> bytearray:
    """A batch as a client sends it."""
    return encode(
        rows_from(first, count),
        schema_id=1,
        compression=compression,
        statistics=[0] if statistics else None,
        writer_id=writer_id,
        batch_sequence=sequence,
    )


def append_bytes(log: Log, batch: bytearray, *, now_ms: int = START_MS) -> Appended:
    """Check and append, as a tablet does."""
    view = memoryview(batch)
    checked = check_and_sum(view, layout=LAYOUT, limits=DEFAULT_LIMITS, sum_from=WHOLE_BATCH_BYTES_MAX)
    return log.append(view, checked, now_ms=now_ms)


def numbers_of(found: LogSlice, schema: pa.Schema | None = None) -> list[tuple[int, int]]:
    """(offset, number) of every row in a slice, decoded with all checks."""
    rows = []
    for header, view in split(b"".join(found.buffers)):
        if not header.record_count:
            continue
        batch = decode(view, schema or SCHEMA, header=header, full_validation=True)
        numbers = batch.column("number").to_pylist()
        rows.extend((header.base_offset + i, number) for i, number in enumerate(numbers))
        if "half" in batch.schema.names:
            assert batch.column("half").to_pylist() == [number / 2 for number in numbers]
        if "text" in batch.schema.names:
            assert batch.column("text").to_pylist() == [f"row {number:06}" for number in numbers]
    return rows


def timestamps_of(found: LogSlice) -> list[tuple[int, int]]:
    """(base offset, timestamp) of every batch in a slice."""
    return [(header.base_offset, header.timestamp_ms) for header, _ in split(b"".join(found.buffers))]


def read_everything(
    log: Log, *, projection: Projection | None = None, max_bytes: int = 1500
) -> list[tuple[int, int]]:
    """All rows of a log, read slice by slice."""
    schema = SCHEMA if projection is None else projection.schema
    offset, rows = log.start_offset, []
    while offset < log.end_offset:
        found = log.read(offset, until=log.end_offset, max_bytes=max_bytes, projection=projection)
        assert found.next_offset > offset
        rows.extend(numbers_of(found, schema))
        offset = found.next_offset
    return rows


@dataclass(frozen=True)
class Kept:
    """A batch that was acknowledged."""

    base_offset: int
    count: int
    first: int

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Its rows as ``read_everything`` gives them."""
        return [(self.base_offset + i, self.first + i) for i in range(self.count)]


class Workbench:
    """A log, and the plain list it must equal."""

    def __init__(self, disk: Files | None = None, *, folder: str = FOLDER, **changed: object) -> None:
        self.disk = ForgettingDisk() if disk is None else disk
        self.folder = folder
        self.settings = replace(SMALL, **changed)  # type: ignore[arg-type]
        self.now_ms = START_MS
        self.next_number = 0
        self.batches: list[Kept] = []
        self.log = self._open()

    def _open(self) -> Log:
        return Log.open(self.disk, self.folder, self.settings, self.now_ms)

    # --- acts

    def append(
        self, count: int = 3, *, writer_id: int = -1, sequence: int = -1, **options: object
    ) -> Appended:
        batch = batch_bytes(
            self.next_number,
            count,
            writer_id=writer_id,
            sequence=sequence,
            **options,  # type: ignore[arg-type]
        )
        appended = append_bytes(self.log, batch, now_ms=self.now_ms)
        if not appended.duplicate:
            self.batches.append(Kept(appended.base_offset, count, self.next_number))
            self.next_number += count
        return appended

    def append_many(self, batches: int, count: int = 3) -> None:
        for _ in range(batches):
            self.append(count)

    def sync(self) -> None:
        point = self.log.pending_sync()
        if point is not None:
            point.sync()
            self.log.synced(point)

    def reopen(self) -> Log:
        """A clean stop and start."""
        self.log.close()
        self.log = self._open()
        return self.log

    def crash(self, keep_unsynced: object = True) -> Log:
        """kill -9, or power loss with ``False``; then a start."""
        assert isinstance(self.disk, ForgettingDisk)
        self.disk.crash(keep_unsynced)  # type: ignore[arg-type]
        self.log = self._open()
        return self.log

    # --- what is there

    @property
    def rows(self) -> list[tuple[int, int]]:
        """What the log must hold."""
        return [
            row for batch in self.batches if batch.base_offset >= self.log.start_offset for row in batch.rows
        ]

    def read(self, **options: object) -> list[tuple[int, int]]:
        return read_everything(self.log, **options)  # type: ignore[arg-type]

    def check(self) -> None:
        """The log equals the list, whole and by columns."""
        assert self.read() == self.rows
        assert self.read(projection=NUMBERS) == self.rows
        assert self.read(projection=HALVES, max_bytes=1) == self.rows

    def check_all_indexes(self) -> None:
        """Have every index looked at."""
        for segment in self.log._chain.segments:
            self.log._chain.files_of(segment)

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list(self.folder) if name.endswith(suffix)]

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def outcome(read: object) -> object:
    """A result or the error's class, to compare two ways."""
    try:
        return read()  # type: ignore[operator]
    except StromError as error:
        return type(error)


def numbers(batches: Sequence[Kept]) -> list[tuple[int, int]]:
    return [row for batch in batches for row in batch.rows]
