"""Recreates the store of a primary-key bucket from the lake's rows: all that is live at an offset A.

    base file   the rows, by the offsets they have
    index       every key's newest record is its row: rows that died before A are no longer known
    manifest    L = C = R = S = A; the log begins at A, in an epoch that no record ever had

It is built beside the bucket's own files. One rename marks it as complete (``kv.restored``); from then on, opening the
bucket first puts it in its place (``install``), and does so again after a crash in between.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import InvalidRequest, LakeCorrupt
from strom.kv.definition import KeyDefinition
from strom.kv.gather.column_source import source_of
from strom.kv.gather.directory import Directory
from strom.kv.index.index import KeyIndex
from strom.kv.index.series import Series
from strom.kv.rows.base_writer import BaseFileWriter
from strom.kv.rows.carrying import append_rows
from strom.kv.rows.rows import Rows
from strom.kv.snapshot.manifest import (
    BASE_PREFIX,
    INDEX_PREFIX,
    MANIFEST_NAME,
    EpochRef,
    Manifest,
    ShardRef,
    read_manifest,
)
from strom.kv.snapshot.stored_shards import ShardFileWriter, write_shard
from strom.kv.store import KeyStore
from strom.kv.versions import versions_of
from strom.log.resuming import resume_at
from strom.model.lake.lake import Tiered
from strom.record.batch import BatchLimits, split
from strom.record.decode import decode, offsets
from strom.runtime.files import Bytes, Files
from strom.runtime.locks import new_lock

KV_FOLDER = "kv"
RESTORING, RESTORED = "kv.restoring", "kv.restored"
NUMBER = 1
"""Of the first manifest."""

Ints = npt.NDArray[np.int64]


class KeyRestore:
    """Builds a store. ``add`` rows by rising offsets, then ``finish``."""

    def __init__(
        self, files: Files, folder: str, definition: KeyDefinition, place: Tiered, limits: BatchLimits
    ) -> None:
        self.place = place
        self.rows = 0
        self.parts = 0
        """How many pieces of rows were added."""
        self._files, self._folder = files, folder
        self._definition, self._limits = definition, limits
        self._reached = 0
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._kv = f"{folder}/{RESTORING}"
        files.make_folder(folder)
        for name in (RESTORING, RESTORED):
            files.remove_tree(f"{folder}/{name}")
        files.make_folder(self._kv)
        self._index = KeyIndex()
        self._store = KeyStore(
            definition,
            new_lock(),
            rows=Rows(files, definition.schema),
            index=self._index,
            series=Series(),
            published=0,
        )
        schema = definition.schema
        self._base = f"{BASE_PREFIX}{0:020d}-{place.offset:020d}-{NUMBER}-0"
        self._writer = BaseFileWriter(
            files,
            f"{self._kv}/{self._base}",
            schema=definition.arrow,
            schema_id=schema.schema_id,
            column_ids=[column.id for column in schema.columns],
            start=0,
            end=place.offset,
        )

    def add(self, records: Bytes) -> None:
        """Add sparse batches of rows in the newest schema."""
        for header, view in split(records):
            if not header.sparse or header.schema_id != self._definition.schema.schema_id:
                raise InvalidRequest("rows to restore are sparse batches in the table's newest schema")
            rows = decode(
                view,
                self._definition.arrow,
                header=header,
                decompressed_bytes_max=self._limits.decompressed_bytes_max,
                full_validation=True,
                aligned=True,
            )
            if rows.num_rows:
                self._take_in(rows, offsets(view, header))
        self.parts += 1

    def _take_in(self, rows: pa.RecordBatch, at: Ints) -> None:
        rising = at[0] >= self._reached and at[-1] < self.place.offset and bool((np.diff(at) > 0).all())
        if not rising:
            raise LakeCorrupt(
                f"rows to restore have offsets {at[0]} to {at[-1]} where those from {self._reached} to "
                f"{self.place.offset - 1} belong",
                first=int(at[0]),
                last=int(at[-1]),
            )
        if any(rows.column(position).null_count for position in self._definition.key):
            raise LakeCorrupt("a row to restore has NULL in its key")
        hashes = self._store.hasher.hash(self._store.key_source(rows))
        row_ids = self._index.insert(hashes)
        self._index.set_newest(row_ids, versions_of(at, np.ones(len(at), np.bool_)), hashes)
        self._hashes.append(hashes)
        source = source_of(rows, self._store.kinds)
        append_rows(self._writer, Directory(self._definition.arrow, (source,)), at)
        self._reached = int(at[-1]) + 1
        self.rows += rows.num_rows

    def finish(self) -> None:
        """Complete the store: from now on the bucket opens with it."""
        hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
        if len(np.unique(hashes)) != len(hashes):
            raise LakeCorrupt("two rows to restore have the same key: the lake is not what was written")
        self._writer.finish()
        offset, epoch = self.place
        manifest = Manifest(
            number=NUMBER,
            offset=offset,
            carried=offset,
            horizon=offset,
            series_start=offset,
            base=(self._base,),
            shards=self._write_shards(),
            series=(),
            epochs=(EpochRef(epoch, 0),),
        )
        self._files.sync_folder(self._kv)
        self._files.write_whole(f"{self._kv}/{MANIFEST_NAME}", manifest.encode())
        self._files.rename(self._kv, f"{self._folder}/{RESTORED}")
        self._files.sync_folder(self._folder)

    def _write_shards(self) -> tuple[ShardRef, ...]:
        name = f"{INDEX_PREFIX}{self.place.offset:020d}-{NUMBER}"
        writer = ShardFileWriter(self._files, f"{self._kv}/{name}")
        shards = tuple(
            write_shard(writer, name, self._index.export_shard(shard)) for shard in range(self._index.shards)
        )
        writer.close()
        return tuple(sorted(shards, key=lambda one: one.prefix << (64 - one.depth)))

    def abandon(self) -> None:
        """Discard it."""
        self._files.remove_tree(self._kv)


def install(files: Files, folder: str) -> None:
    """Replace a closed bucket's store by the restored one, if there is one, and let its log begin there."""
    restored = f"{folder}/{RESTORED}"
    if not files.is_folder(restored):
        return
    manifest = read_manifest(files, restored)
    assert manifest is not None, "it was renamed with one"
    resume_at(files, folder, end=0, offset=manifest.offset, epoch=manifest.epochs[-1].epoch)
    files.remove_tree(f"{folder}/{KV_FOLDER}")
    files.rename(restored, f"{folder}/{KV_FOLDER}")
    files.sync_folder(folder)
