"""What a tail delivers: the rows of one batch, with their bucket, offsets and time."""

from __future__ import annotations

import datetime as dt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.read.change_kinds import kinds_of
from strom.client.read.row_reader import Fetched
from strom.model.bucket import BucketId
from strom.runtime.units import counted


class TailBatch:
    """The rows of one batch of one bucket."""

    __slots__ = ("_fetched", "bucket", "partition")

    def __init__(self, fetched: Fetched, bucket: BucketId, partition: str | None) -> None:
        self._fetched = fetched
        self.bucket = bucket
        self.partition = partition
        """The partition's name; None when the table has no partitions."""

    @property
    def data(self) -> pa.RecordBatch:
        """The rows."""
        return self._fetched.data

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        rows: int = self._fetched.data.num_rows
        return rows

    @property
    def base_offset(self) -> int:
        """The offset of the first row."""
        return self._fetched.base_offset

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of every row."""
        return self._fetched.offsets

    @property
    def changes(self) -> npt.NDArray[np.uint8] | None:
        """The change of every row, as its number in the format; None when all were appended."""
        return self._fetched.changes

    @property
    def kinds(self) -> pa.Array:
        """What happened to every row: ``+A``, or in a changelog ``+I``, ``-U``, ``+U``, ``-D``."""
        return kinds_of(self._fetched.changes, self.num_rows)

    @property
    def next_offset(self) -> int:
        """The offset after the last row."""
        return int(self._fetched.offsets[-1]) + 1

    @property
    def timestamp_ms(self) -> int:
        """When the server accepted the batch, in milliseconds since 1970."""
        return self._fetched.timestamp_ms

    @property
    def timestamp(self) -> dt.datetime:
        """When the server accepted the batch (UTC)."""
        return dt.datetime.fromtimestamp(self._fetched.timestamp_ms / 1000, dt.UTC)

    def __repr__(self) -> str:
        where = f"bucket {self.bucket.bucket}" + (f" of {self.partition}" if self.partition else "")
        rows = counted(self.num_rows, "row")
        return f"TailBatch({rows} from offset {self.base_offset} of {where}, {self.timestamp:%H:%M:%S})"
