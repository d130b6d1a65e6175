"""The rows that a bucket's position delete files name, by data file.

Each delete file is read once for all data files in question. The number of rows it names is remembered by path, because
such a file never changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strom.lake.files.file_reader import rows_by_file
from strom.lake.files.storage import Storage
from strom.lake.iceberg.held_files import HeldDeletes, HeldFile, HeldFiles
from strom.model.lake.lake import Place

Positions = npt.NDArray[np.int64]


def rows_deleted(storage: Storage, held: HeldFiles, files: Sequence[HeldFile]) -> dict[str, Positions]:
    """The dead rows of data files, by path, sorted; files without any are left out."""
    wanted = {file.path for file in files}
    return union(
        {path: rows for path, rows in rows_by_file(storage, item.path).items() if path in wanted}
        for item in naming(held, files)
    )


def naming(held: HeldFiles, files: Collection[HeldFile]) -> list[HeldDeletes]:
    """The delete files that may name rows of these data files."""
    by_place: dict[Place, list[HeldFile]] = defaultdict(list)
    for file in files:
        by_place[file.place].append(file)
    return [
        item
        for place, here in by_place.items()
        for item in held.deletes_by_place.get(place, ())
        if any(item.may_name(file) for file in here)
    ]


def union(parts: Iterable[Mapping[str, Positions]]) -> dict[str, Positions]:
    """Rows by path, of several delete files."""
    found: dict[str, list[Positions]] = defaultdict(list)
    for part in parts:
        for path, rows in part.items():
            found[path].append(rows)
    return {path: np.unique(np.concatenate(rows)) for path, rows in found.items()}


class DeadCounts:
    """Counts the dead rows of each data file; remembers what delete files named."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}

    def of(self, storage: Storage, held: HeldFiles) -> Mapping[str, int]:
        """The counts by path of the data file."""
        now = {item.path for item in held.deletes}
        self._known = {path: counts for path, counts in self._known.items() if path in now}
        found: dict[str, int] = defaultdict(int)
        for item in held.deletes:
            if item.path not in self._known:
                rows = rows_by_file(storage, item.path)
                self._known[item.path] = {path: len(one) for path, one in rows.items()}
            for path, count in self._known[item.path].items():
                found[path] += count
        return found
