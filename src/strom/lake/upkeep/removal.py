"""Removal of files that no snapshot names: those of expired snapshots, and those of rounds that died or lost.

Of expired snapshots there are lists (``expiry.py``): their files go once the commit that named the list is old enough
that no scan can hold them. A list that no commit named is thrown away when it is old. What a killed round or a lost
commit leaves behind is in no list; it is found by looking at the whole folder, and goes when it has lain there for
``ORPHAN_MS``, longer than any round, compaction or expiry takes. Only names that Strom gives are touched. Whatever a
snapshot, a branch or a tag names at this moment stays, whatever a list says.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from strom.errors import LakeCorrupt
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.expiry import committed, name_of
from strom.lake.upkeep.reachable import reachable
from strom.model.document import Document
from strom.runtime.clock import Clock

ORPHAN_MS = 24 * 3_600_000

_OURS = re.compile(
    r"data/strom-[^/]+\.parquet(\.offsets)?"
    r"|metadata/(snap-\d+\.avro|\d+-m\d+\.avro|strom-offsets-\d+\.json|\d+-[0-9a-f-]{36}\.metadata\.json)"
)

logger = logging.getLogger(__name__)


def remove_expired(table: LakeTable, removal_ms: int, clock: Clock) -> int:
    """Remove what the lists name whose snapshots went long enough ago; how many files it were."""
    lists = list(_lists(table))
    if not lists:
        return 0
    table.check_owner()
    before_ms = clock.now_ms() - removal_ms
    since = committed(table.refresh().iceberg.properties)
    due = [
        one for one, _ in lists if (went_ms := since.get(name_of(one))) is not None and went_ms <= before_ms
    ]
    if not due:
        return 0
    named = table.storage.paths(reachable(table))
    removed = 0
    for listed in due:
        for uri in _files(table, listed):
            if table.storage.path(uri) not in named:
                table.storage.delete(uri)
                removed += 1
        table.storage.delete(listed)
    return removed


def remove_orphans(table: LakeTable, clock: Clock, *, orphan_ms: int = ORPHAN_MS) -> int:
    """Remove files of ours that no snapshot names, no list either, and that are old; how many it were."""
    table.check_owner()
    before_ms = clock.now_ms() - orphan_ms
    unfinished = table.storage.remove_unfinished(f"{table.location}/metadata", before_ms)
    lists = [listed for listed, since_ms in _lists(table) if since_ms <= before_ms]
    old = [
        f"{table.location}/{name}"
        for name, modified_ms in _names(table, table.location)
        if 0 < modified_ms <= before_ms and _OURS.fullmatch(name)  # 0: the storage does not say
    ]
    if not old and not lists:
        return unfinished
    storage = table.storage
    named = storage.paths(
        reachable(table.refresh())
    )  # after the listing: what a commit named meanwhile is seen
    counting = committed(table.iceberg.properties)
    for listed in lists:
        if name_of(listed) not in counting:
            table.storage.delete(listed)
    # After that: a snapshot that was gone by then had its list before.
    waiting = storage.paths(uri for listed, _ in _lists(table) for uri in _files(table, listed))
    kept = named | waiting
    orphans = [uri for uri in old if storage.path(uri) not in kept]
    for uri in orphans:
        table.storage.delete(uri)
    return unfinished + len(orphans)


def _lists(table: LakeTable) -> Iterator[tuple[str, int]]:
    """The lists, and when each was written."""
    for name, _ in _names(table, f"{table.location}/metadata"):
        known = name_of(name)
        if known and name == f"metadata/{name.rpartition('/')[2]}":
            yield f"{table.location}/{name}", int(known.partition("-")[0])


def _names(table: LakeTable, folder: str) -> Iterator[tuple[str, int]]:
    """What lies in a folder, by name from the table's own, and when it was written: as its metadata would name it."""
    storage = table.storage
    above = storage.path(table.location) + "/"
    for one in storage.list(folder):
        path = one.uri.partition("://")[2]
        if path.startswith(above):
            yield path.removeprefix(above), one.modified_ms


def _files(table: LakeTable, uri: str) -> list[str]:
    """What a list names of this table's folder; the rest is left alone.

    None, when it is gone or no list: another service was faster with it, or a power failure cut it short, and then its
    snapshots never went.
    """
    try:
        files = Document.parse(table.storage.read(uri), uri, LakeCorrupt).raw("files")
    except LakeCorrupt as problem:
        logger.info("%s: a list of files to be removed is passed over: %s", table.path, problem)
        return []
    found = files if isinstance(files, list) else []
    return [one for one in found if isinstance(one, str) and table.storage.inside(table.location, one)]
