"""A store that is made anew from the lake's rows: all of it is on the disk before it counts as the table."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kv.snapshot.test_opening import SCHEMA, opened, rows_of, write
from strom.errors import InvalidRequest, LakeCorrupt
from strom.kv.definition import KeyDefinition
from strom.model.lake.lake import Tiered
from strom.record.batch import BatchLimits
from strom.record.sparse import sparse_batches
from strom.runtime.files import LocalFiles
from strom.tablet.key_restore import RESTORED, KeyRestore, install

DEFINITION = KeyDefinition((SCHEMA,), key=(0,), image="FULL")
END = Tiered(offset=3_000, epoch=4)


def begun(folder: Path) -> KeyRestore:
    return KeyRestore(LocalFiles(), str(folder), DEFINITION, END, BatchLimits())


def some(start: int, offsets: list[int]) -> bytes:
    """Rows whose keys count up from ``start``, with these offsets."""
    keys = list(range(start, start + len(offsets)))
    rows = pa.record_batch([keys, [f"n{key}" for key in keys]], schema=SCHEMA.to_arrow())
    return b"".join(bytes(one) for one in sparse_batches(rows, np.array(offsets, np.int64), schema_id=1))


def test_every_file_is_synced_before_the_store_counts_and_opens_with_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    sync = os.fdatasync

    def noted(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    restore = begun(tmp_path)
    restore.add(some(0, list(range(0, 2_000, 2))))
    restore.add(some(1_000, list(range(2_000, 2_900))))
    assert (restore.rows, restore.parts) == (1_900, 2)
    restore.finish()
    made = {one.name for one in (tmp_path / RESTORED).iterdir()}
    assert len(made) == 3, "rows, index and manifest"
    assert {name for name in made if not any(one.startswith(name) for one in synced)} == set()
    monkeypatch.undo()
    install(LocalFiles(), str(tmp_path))
    install(LocalFiles(), str(tmp_path))  # as after a crash: there is nothing left to do
    tablet = opened(tmp_path)
    assert tablet.high_watermark == END.offset
    assert rows_of(tablet) == {key: f"n{key}" for key in range(1_900)}
    write(tablet, 0, word="newer ")
    assert rows_of(tablet)[7] == "newer 7"
    tablet.close()


def test_rows_that_are_not_those_of_a_table_below_its_end_are_refused(tmp_path: Path) -> None:
    restore = begun(tmp_path)
    restore.add(some(0, [10, 11]))
    for offsets in ([11, 12], [END.offset]):
        with pytest.raises(LakeCorrupt, match="where those from 12 to 2999 belong"):
            restore.add(some(100, offsets))
    rows = pa.record_batch([[1], ["x"]], schema=SCHEMA.to_arrow())
    of_another_schema = b"".join(sparse_batches(rows, np.array([50], np.int64), schema_id=2))
    with pytest.raises(InvalidRequest, match="sparse batches"):
        restore.add(of_another_schema)
    restore.add(some(0, [END.offset - 1]))
    with pytest.raises(LakeCorrupt, match="the same key"):
        restore.finish()
    restore.abandon()
    assert [one for one in tmp_path.iterdir() if one.is_dir()] == []
