"""The live offsets of a snapshot's files, by bucket, computed from the rows themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from strom.lake.files.offset_print import OffsetPrint, print_of
from strom.lake.files.storage import Storage
from strom.lake.iceberg.delete_files import offsets_in
from strom.lake.iceberg.deleted_rows import rows_deleted
from strom.lake.iceberg.held_files import HeldFile, HeldFiles, paths
from strom.model.lake.lake import Place

Offsets = npt.NDArray[np.int64]


def live_prints(
    storage: Storage, held: HeldFiles, places: Collection[Place] | None = None
) -> dict[Place, OffsetPrint]:
    """The print of every bucket that has live rows, optionally of some buckets only."""
    found: dict[Place, OffsetPrint] = defaultdict(OffsetPrint)
    files = [file for file in held.data if places is None or file.place in places]
    dead = rows_deleted(storage, held, files)
    for file in files:
        gone = dead.get(file.path)
        found[file.place] = found[file.place].plus(_print(storage, file, gone))
    return {place: one for place, one in found.items() if one.rows}


def changed_places(before: HeldFiles, after: HeldFiles) -> set[Place]:
    """The buckets that have other files than before."""
    return _new_places(before, after) | _new_places(after, before)


def _print(storage: Storage, file: HeldFile, gone: Offsets | None) -> OffsetPrint:
    offsets = offsets_in(storage, file)
    return print_of(offsets if gone is None else np.delete(offsets, gone))


def _new_places(files: HeldFiles, others: HeldFiles) -> set[Place]:
    data, deletes = paths(others.data), paths(others.deletes)
    found = {item.place for item in files.data if item.path not in data}
    return found | {item.place for item in files.deletes if item.path not in deletes}
