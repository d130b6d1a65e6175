"""For when both files are damaged and there is no backup: keep what is readable, and never reuse an id.

    python -m strom.metadata.salvage DATA_FOLDER

For an operator who stopped every server and knows what this does. The newest readable version of each entry is kept, so
what was created last may be missing and what was dropped last may be back. Numbers under ``counters/`` are the next
ids: they are raised far beyond anything that lost commits can have used, and so is the version. The damaged files stay
beside the new ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from strom.errors import MetadataCorrupt, StromError
from strom.metadata import layout
from strom.metadata.database import SqliteFile
from strom.metadata.opening import build
from strom.metadata.second_copy import SecondCopy
from strom.metadata.sqlite_errors import translated
from strom.metadata.store import Entry
from strom.runtime.files import Files, LocalFiles

GAP = 1_000_000_000
"""By how much counters and the version are raised."""


def salvage(files: Files, folder: str) -> int:
    """Build a store from what can be read; return the number of entries kept."""
    path, second = f"{folder}/{layout.DATABASE_FILE}", SecondCopy(files, folder)
    with translated(path):
        kept = _newest_of(_readable(files, path), second.load().entries)
        if not kept:
            raise MetadataCorrupt(
                f"nothing in {path} or {second.path} can be read", path=path, reason="unreadable"
            )
        version = max(entry.version for entry in kept.values()) + GAP
        raised = {key: _raised(key, entry, version) for key, entry in kept.items()}
        if files.exists(second.path):
            files.rename(second.path, f"{folder}/{layout.DAMAGED_COPY_FILE}")
        second.rewrite(version, raised)
        build(files, folder, version, raised)
    return len(raised)


def _readable(files: Files, path: str) -> dict[str, Entry]:
    if not files.exists(path):
        return {}
    try:
        database = SqliteFile(path)
    except MetadataCorrupt:
        return {}
    try:
        return database.readable_entries()
    finally:
        database.close()


def _newest_of(first: dict[str, Entry], second: dict[str, Entry]) -> dict[str, Entry]:
    pairs = {key: (first.get(key), second.get(key)) for key in first.keys() | second.keys()}
    return {key: max((entry for entry in pair if entry), key=_version) for key, pair in pairs.items()}


def _version(entry: Entry) -> int:
    return entry.version


def _raised(key: str, entry: Entry, version: int) -> Entry:
    if key.startswith("counters/") and entry.value.isdigit():
        return Entry(b"%d" % (int(entry.value) + GAP), version)
    return entry


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    if len(arguments) != 1:
        print("usage: python -m strom.metadata.salvage DATA_FOLDER", file=sys.stderr)
        return 2
    try:
        count = salvage(LocalFiles(), arguments[0])
    except StromError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    print(
        f"kept {count} entries; look at the tables before you write: what changed last may be missing or be back"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
