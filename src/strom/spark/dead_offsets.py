"""Which rows of lake files do not count: dead since the snapshot, or named by position deletes. By their offsets.

Found on the driver and sent to all tasks, so the cost follows the changes, not the table: a delete file is read once
however many data files it names, and a row becomes an offset by the file's sidecar, without a column of the file.
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

Longs = npt.NDArray[np.int64]


def dead_offsets(storage: Storage, parts: Sequence[LakePart]) -> dict[str, Longs]:
    """By the path of each file: the offsets that are left out. One may be named twice."""
    named = _named(storage, parts)
    found = {}
    for part in parts:
        died = np.frombuffer(part.dead, "<i8").astype(np.int64)
        rows = named.get(part.file.path)
        found[part.file.path] = (
            died if rows is None else np.concatenate([died, _offsets_of(storage, part.file, rows)])
        )
    return found


def _named(storage: Storage, parts: Sequence[LakePart]) -> Mapping[str, Longs]:
    """The rows of these files that delete files name."""
    wanted = {part.file.path for part in parts}
    found: dict[str, list[Longs]] = {}
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


def _offsets_of(storage: Storage, file: LakeFile, rows: Longs) -> Longs:
    if file.last_offset - file.first_offset + 1 == file.rows:
        return rows + file.first_offset
    uri = file.path + sidecar.SUFFIX
    return sidecar.decode(storage.read(uri), uri).all()[rows]
