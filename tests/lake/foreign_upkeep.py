"""What other engines do to look after an Iceberg table, commit by commit: rows stay, all else may change.

The commits are those of Spark's procedures: ``replace`` without a word of ours. Files that nothing names any more are
deleted at once, as Spark's expiry does; removal of orphans takes everything that Iceberg itself does not name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import RemoveSnapshotsUpdate

from strom.lake.files.arrow_types import lake_schema
from strom.lake.files.file_description import ColumnStats, DataFileDescription
from strom.lake.files.file_reader import read_file, rows_by_file
from strom.lake.iceberg import snapshot_change
from strom.lake.iceberg.delete_files import DeadRows, write_deletes
from strom.lake.iceberg.held_files import HeldFile, HeldFiles, held_files
from strom.lake.iceberg.lake_head import LakeHead, totals_of
from strom.lake.iceberg.manifest_writer import data_file, delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.summary import LakeOffsets
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.reachable import reachable
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP

Step = Callable[[LakeTable], None]

_names = itertools.count()


def rewrite_data_files(table: LakeTable) -> None:
    """One file of every bucket, its rows from the last to the first; files of deletes stay, and name nothing more."""
    held = held_files(table.refresh())
    commit_as_others(table, added=_merged(table, held), removed=[file.path for file in held.data])


def rewrite_data_and_deletes(table: LakeTable) -> None:
    """The same, and files of deletes go."""
    held = held_files(table.refresh())
    removed = [*(file.path for file in held.data), *(one.path for one in held.deletes)]
    commit_as_others(table, added=_merged(table, held), removed=removed)


def rewrite_deletes(table: LakeTable) -> None:
    """One file of deletes for every one there is."""
    held = held_files(table.refresh())
    paths = {file.path for file in held.data}
    written = []
    for one in held.deletes:
        rows = {path: found for path, found in rows_by_file(table.storage, one.path).items() if path in paths}
        if rows:
            dead = DeadRows(one.entry.data_file.partition, tuple(sorted(rows.items())))
            uri = f"{table.location}/data/{next(_names):05}-theirs-deletes.parquet"
            written.append(delete_file(write_deletes(table.storage, uri, dead)))
    commit_as_others(table, added_deletes=written, removed=[one.path for one in held.deletes])


def rewrite_manifests(table: LakeTable) -> None:
    """A snapshot with the same files."""
    commit_as_others(table)


def expire_all_but_the_head(table: LakeTable) -> None:
    """Spark's ``expire_snapshots(retain_last => 1)``: metadata first, then the files."""
    before = reachable(table.refresh())
    forget_all_but_the_head(table)
    for uri in before - reachable(table.refresh()):
        if not uri.endswith((".metadata.json", ".offsets", ".json")):
            table.storage.delete(uri)


def forget_all_but_the_head(table: LakeTable) -> None:
    """PyIceberg's expiry, which deletes no file."""
    head = table.refresh().snapshot()
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
    assert head is not None
    if old:
        table.commit(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}), requirements=())


def remove_orphans(table: LakeTable) -> None:
    """Everything that Iceberg does not name, however young: also offsets, lists and claims of ours."""
    named = {uri for uri in reachable(table.refresh()) if not uri.endswith(".offsets")}
    named -= {uri for uri in named if "/strom-offsets-" in uri}
    keep = table.storage.paths(named)
    for one in table.storage.list(table.location):
        if one.uri.partition("://")[2] not in keep:
            table.storage.delete(one.uri)


STEPS: Sequence[Step] = (
    rewrite_data_files,
    rewrite_deletes,
    expire_all_but_the_head,
    remove_orphans,
)


def commit_as_others(
    table: LakeTable,
    *,
    added: Sequence[DataFile] = (),
    added_deletes: Sequence[DataFile] = (),
    removed: Sequence[str] = (),
    rewrite: bool = True,
) -> None:
    """A commit without a word of ours."""
    head = table.refresh().snapshot()
    assert head is not None
    held = LakeOffsets(table.table_id, "theirs")
    base = LakeHead(head.snapshot_id, held, totals_of(table, head), head.timestamp_ms)
    change = SnapshotChange(held, added, added_deletes, removed, rewrite=rewrite)
    with mock.patch.object(snapshot_change, "words_of", return_value=snapshot_change.Words({}, {})):
        commit_change(table, base, change, new_snapshot_id(table))


def their_file(
    table: LakeTable, rows: pa.Table, like: HeldFile, columns: Mapping[int, ColumnStats] | None = None
) -> DataFile:
    """A data file as another engine leaves it: any name, any order of rows, no offsets beside it."""
    path = f"{table.location}/data/{next(_names):05}-7-theirs.parquet"
    pq.write_table(rows, table.storage.path(path))
    offsets = rows[OFFSET].to_numpy()
    partition = like.entry.data_file.partition
    return data_file(
        DataFileDescription(
            path,
            Path(table.storage.path(path)).stat().st_size,
            rows.num_rows,
            like.bucket,
            int(offsets.min()),
            int(offsets.max()),
            partition_values=tuple(partition[place] for place in range(len(partition) - 1)),
            columns=columns or {},
        )
    )


def rows_of(table: LakeTable, held: HeldFiles, file: HeldFile) -> pa.Table:
    """The live rows of a file, with where they are from."""
    names = [*table.schema.names, BUCKET, OFFSET, TIMESTAMP]
    batches = list(read_file(table.storage, held.planned(file), table.schema, names))
    schema = lake_schema(table.schema)
    found = pa.Table.from_batches(batches) if batches else schema.empty_table()
    return found.cast(schema)


def _merged(table: LakeTable, held: HeldFiles) -> list[DataFile]:
    written = []
    for place in sorted({file.place for file in held.data}, key=str):
        files = [file for file in held.data if file.place == place]
        rows = pa.concat_tables([rows_of(table, held, file) for file in files])
        if rows.num_rows:
            order = np.argsort(rows[OFFSET].to_numpy())[::-1]
            written.append(their_file(table, rows.take(pa.array(order)), files[0]))
    return written
