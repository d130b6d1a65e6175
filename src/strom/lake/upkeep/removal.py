"""Removes files that no snapshot names: those of expired snapshots, and those of rounds that crashed or lost.

Files of expired snapshots are in lists (``expiry.py``): they go once the commit that named the list is so old that no
scan can read them. A list that no commit named is deleted when it is old. What a killed round or a lost commit leaves
behind is in no list; it is found by listing the whole folder, and goes when it is older than ``ORPHAN_MS``, longer than
any round, compaction or expiry takes. Only files with Strom's names are touched. Whatever a snapshot, branch or tag
names now stays, whatever a list says.
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
    """Remove the files of lists whose snapshots expired long enough ago; the number of files."""
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
    """Remove old files of ours that neither a snapshot nor a list names; the number of files."""
    table.check_owner()
    before_ms = clock.now_ms() - orphan_ms
    unfinished = table.storage.remove_unfinished(f"{table.location}/metadata", before_ms)
    lists = [listed for listed, since_ms in _lists(table) if since_ms <= before_ms]
    old = [
        f"{table.location}/{name}"
        for name, modified_ms in _names(table, table.location)
        if 0 < modified_ms <= before_ms and _OURS.fullmatch(name)  # 0: the storage does not know
    ]
    if not old and not lists:
        return unfinished
    storage = table.storage
    named = storage.paths(
        reachable(table.refresh())
    )  # after the listing, so that commits made meanwhile are seen
    counting = committed(table.iceberg.properties)
    for listed in lists:
        if name_of(listed) not in counting:
            table.storage.delete(listed)
    # After that: a snapshot that had expired by then had its list before.
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
    """The files of a folder as the table's metadata would name them, and when each was written."""
    storage = table.storage
    above = storage.path(table.location) + "/"
    for one in storage.list(folder):
        path = one.uri.partition("://")[2]
        if path.startswith(above):
            yield path.removeprefix(above), one.modified_ms


def _files(table: LakeTable, uri: str) -> list[str]:
    """The files of this table's folder in a list; others are ignored.

    None when the list is gone (another service was faster) or damaged (a power failure cut it short; then its snapshots
    never expired).
    """
    try:
        files = Document.parse(table.storage.read(uri), uri, LakeCorrupt).raw("files")
    except LakeCorrupt as problem:
        logger.info("%s: a list of files to remove is skipped: %s", table.path, problem)
        return []
    found = files if isinstance(files, list) else []
    return [one for one in found if isinstance(one, str) and table.storage.inside(table.location, one)]
