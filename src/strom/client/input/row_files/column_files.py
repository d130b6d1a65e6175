"""Files that hold columns already: Parquet, and Arrow's stream format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from strom.client.input.row_files.file_rows import FileRows
from strom.errors import SchemaMismatch


@contextmanager
def _told(problem: str) -> Iterator[None]:
    """Say so when Arrow cannot read the bytes. Errors of the disk have a number, Arrow's own have none."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SchemaMismatch(f"{problem}: {error}") from error


class ParquetRows(FileRows):
    """Parquet, row group by row group."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        import pyarrow.parquet as parquet

        piped = self.bytes_total is None
        source = pa.BufferReader(self.stream.read()) if piped else pa.OSFile(self.stream.name)
        with self.stream, source, _told("this is not a Parquet file, or it is damaged"):
            file = parquet.ParquetFile(source)
            rows_total = max(file.metadata.num_rows, 1)
            rows = 0
            for batch in file.iter_batches(batch_size=self.batch_rows):
                rows += batch.num_rows
                yield batch, (self.bytes_total or 0) * rows // rows_total


class ArrowRows(FileRows):
    """An Arrow IPC stream. It is read in the caller's thread, so a Python file is safe here."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        with (
            self.stream,
            _told("this is not an Arrow stream, or it is damaged"),
            pa.ipc.open_stream(self.stream) as reader,
        ):
            for batch in reader:
                for start in range(0, batch.num_rows, self.batch_rows):
                    yield batch.slice(start, self.batch_rows), self._done()

    def _done(self) -> int:
        try:
            return self.stream.tell()
        except OSError:  # a pipe
            return 0
