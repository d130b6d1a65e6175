"""Which rows of lake files do not count, by their places: named by position deletes, or dead since the snapshot.

Found on the driver and sent to all tasks, so the cost follows the changes, not the table: a delete file is read once
however many data files it names, and an offset becomes a row by the file's sidecar, without a column of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from strom.lake import sidecar
from strom.lake.reading import POSITION_PATH, POSITION_ROW, LakeFile
from strom.lake.storage import Storage
from strom.spark.tasks import LakePart

Rows = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)


def dead_rows(storage: Storage, parts: Sequence[LakePart]) -> dict[str, Rows]:
    """By the path of each file: the rows that are left out, sorted, each once."""
    named = _named(storage, parts)
    found = {}
    for part in parts:
        died = np.frombuffer(part.dead, "<i8").astype(np.int64)
        gone = _rows_of(storage, part.file, died) if len(died) else _NONE
        found[part.file.path] = np.unique(np.concatenate([named.get(part.file.path, _NONE), gone]))
    return found


def _named(storage: Storage, parts: Sequence[LakePart]) -> Mapping[str, Rows]:
    """What delete files say of these files."""
    wanted = {part.file.path for part in parts}
    found: dict[str, list[Rows]] = {}
    for path in sorted({one for part in parts for one in part.file.deletes}):
        with storage.open_input(path) as source:
            table = pq.read_table(source, columns=[POSITION_PATH, POSITION_ROW]).combine_chunks()
        if not table.num_rows:
            continue
        paths = table.column(POSITION_PATH).chunk(0).dictionary_encode()
        numbers, rows = paths.indices.to_numpy(), table.column(POSITION_ROW).to_numpy()
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(paths.dictionary) + 1))
        for number, name in enumerate(paths.dictionary.to_pylist()):
            if name in wanted:
                found.setdefault(name, []).append(rows[order[edges[number] : edges[number + 1]]])
    return {name: np.concatenate(rows).astype(np.int64) for name, rows in found.items()}


def _rows_of(storage: Storage, file: LakeFile, offsets: Rows) -> Rows:
    """The rows of offsets; those that the file does not hold have none."""
    if file.last_offset - file.first_offset + 1 == file.rows:
        held = sidecar.HeldOffsets(file.first_offset, file.last_offset, file.rows)
    else:
        uri = file.path + sidecar.SUFFIX
        held = sidecar.decode(storage.read(uri), uri)
    rows = held.positions(offsets)
    return rows[rows >= 0]
