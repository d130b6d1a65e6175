"""The embedded store's bytes: names, numbers and checksums, and nothing else. Format: docs/formats/metadata.md."""

from __future__ import annotations

import struct

from strom.record.checksum import crc32c

FORMAT = 1
"""Raised when an older version could not read what we write."""

DATABASE_FILE = "metadata.db"
COPY_FILE = "metadata.copy"
BUILDING_FILE = "metadata.new.db"
DAMAGED_FILE = "metadata.damaged.db"
DAMAGED_COPY_FILE = "metadata.damaged.copy"

# --- metadata.db ---------------------------------------------------------------------------------------------

TABLES = {
    "format": "CREATE TABLE format (number INTEGER NOT NULL, crc INTEGER NOT NULL)",
    "summary": (
        "CREATE TABLE summary (version INTEGER NOT NULL, deleted_version INTEGER NOT NULL, "
        "entry_count INTEGER NOT NULL, crc_sum INTEGER NOT NULL, crc INTEGER NOT NULL)"
    ),
    "entries": (
        "CREATE TABLE entries (key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, "
        "crc INTEGER NOT NULL) WITHOUT ROWID"
    ),
    "entries_by_version": "CREATE INDEX entries_by_version ON entries (version)",
}
"""Compared word by word when a file is opened, so that a damaged definition is noticed too."""

CRC_SUM_MODULUS = 1 << 62
"""The sum of all entry checksums is kept modulo this: it fits SQLite's signed integers."""

_FORMAT_FACTS = struct.Struct("<q")
_SUMMARY_FACTS = struct.Struct("<4q")
_ENTRY_FACTS = struct.Struct("<Hq")


def format_crc(number: int) -> int:
    """The checksum beside the format number, which no later format may move."""
    return crc32c(_FORMAT_FACTS.pack(number))


def summary_crc(version: int, deleted_version: int, entry_count: int, crc_sum: int) -> int:
    """The checksum of the summary row."""
    return crc32c(_SUMMARY_FACTS.pack(version, deleted_version, entry_count, crc_sum))


def entry_crc(key: bytes, value: bytes, version: int) -> int:
    """The checksum of one entry: over its key too, so that two rows cannot swap their values."""
    return crc32c(_ENTRY_FACTS.pack(len(key), version) + key + value)


# --- metadata.copy -------------------------------------------------------------------------------------------

COPY_MAGIC = b"STROMCPY"
COPY_HEADER = struct.Struct("<8sII")
"""magic, format, crc32c of both."""

RECORD_HEAD = struct.Struct("<IB")
"""body length, kind."""

RECORD_FOOT = struct.Struct("<QII")
"""version, body length again, crc32c of the record up to here: the last record can be found from the end."""

RECORD_CRC_BYTES = 4

CHANGE_HEAD = struct.Struct("<BHIQ")
"""what (0 delete, 1 put), key length, value length, entry version; then the key and the value."""

KIND_SNAPSHOT = 0
KIND_COMMIT = 1
CHANGE_DELETE = 0
CHANGE_PUT = 1

COPY_BYTES_MIN = 1 << 20
COPY_GROWTH_MAX = 4
"""The copy is written anew when it is larger than both: 1 MiB, and this many times its first record."""
