"""Offsets of dead rows in lake files: those that died since the snapshot, and those named by position deletes.

Found on the driver and sent to all tasks, so the cost follows the changes, not the table: a delete file is read once
for all data files it names, and the file's sidecar maps a row to its offset without reading a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strom.errors import LakeCorrupt
from strom.lake.files import sidecar
from strom.lake.files.file_reader import LakeFile, read_offsets, rows_by_file
from strom.lake.files.storage import Storage
from strom.spark.connect.tasks import LakePart

Longs = npt.NDArray[np.int64]


def dead_offsets(storage: Storage, parts: Sequence[LakePart]) -> dict[str, Longs]:
    """Dead offsets by path of the file; duplicates are possible."""
    named = named_rows(storage, parts)
    found = {}
    for part in parts:
        died = np.frombuffer(part.dead, "<i8").astype(np.int64)
        rows = named.get(part.file.path)
        found[part.file.path] = (
            died if rows is None else np.concatenate([died, _offsets_of(storage, part.file, rows)])
        )
    return found


def named_rows(storage: Storage, parts: Sequence[LakePart]) -> Mapping[str, Longs]:
    """The rows of these files that delete files name."""
    wanted = {part.file.path for part in parts}
    found: dict[str, list[Longs]] = {}
    for path in sorted({one for part in parts for one in part.file.deletes}):
        for name, rows in rows_by_file(storage, path).items():
            if name in wanted:
                found.setdefault(name, []).append(rows)
    return {name: np.concatenate(rows) for name, rows in found.items()}


def _offsets_of(storage: Storage, file: LakeFile, rows: Longs) -> Longs:
    if len(rows) and not 0 <= rows.min() <= rows.max() < file.rows:
        raise LakeCorrupt(f"{file.path} has {file.rows} rows, and deletes name others", uri=file.path)
    if file.last_offset - file.first_offset + 1 == file.rows:
        return rows + file.first_offset
    offsets = _offsets_in(storage, file)
    if len(offsets) != file.rows:
        raise LakeCorrupt(f"{file.path} has not the {file.rows} rows that its table says", uri=file.path)
    return offsets[rows]


def _offsets_in(storage: Storage, file: LakeFile) -> Longs:
    uri = file.path + sidecar.SUFFIX
    try:
        content = storage.read(uri)
    except LakeCorrupt:  # without a sidecar the offset column says the same
        return read_offsets(storage, file.path)
    return sidecar.decode(content, uri).all()
