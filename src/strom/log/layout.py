"""Names and bytes of a log's files: one list of fields per structure, compared with the documents by a test.

Formats: docs/formats/{segment,sidecar,indexes,epochs,groups,damage}.md. All integers are little-endian. A structure
that starts with ``checksum`` is covered by it from the next field to its end. The first eight bytes of a file name its
format and version; segments themselves have no header: a ``.log`` file is record batches, one after the other.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

# --- names ---
LOG_SUFFIX: Final = ".log"
SIDECAR_SUFFIX: Final = ".sidecar"
INDEX_SUFFIX: Final = ".index"
EPOCHS_NAME: Final = "epochs"
CHECKPOINT_NAME: Final = "checkpoint"
GROUPS_NAME: Final = "groups"
DAMAGE_NAME: Final = "damage"
#: Enough for every offset, so that names sort as offsets do.
BASE_OFFSET_DIGITS: Final = 20

FORMAT_LENGTH: Final = 8
SIDECAR_FORMAT: Final = b"STROMSC1"
INDEX_FORMAT: Final = b"STROMIX1"
EPOCHS_FORMAT: Final = b"STROMEP1"
CHECKPOINT_FORMAT: Final = b"STROMCP1"
GROUPS_FORMAT: Final = b"STROMGR1"
DAMAGE_FORMAT: Final = b"STROMDM1"


class Field(NamedTuple):
    """One integer of a structure: its name and its code in ``struct``."""

    name: str
    code: str

    @property
    def length(self) -> int:
        """Bytes it takes."""
        return struct.calcsize("<" + self.code)


Fields = tuple[Field, ...]


def structure(fields: Fields) -> struct.Struct:
    """The packer of a list of fields."""
    return struct.Struct("<" + "".join(field.code for field in fields))


def positions(fields: Fields) -> dict[str, int]:
    """Where each field starts."""
    found, position = {}, 0
    for field in fields:
        found[field.name] = position
        position += field.length
    return found


CHECKSUM: Final = structure((Field("checksum", "I"),))
CHECKSUM_LENGTH: Final = CHECKSUM.size

# --- sidecar: header, then one entry per batch, each followed by buffer_count checksums ---
SIDECAR_HEADER_FIELDS: Final[Fields] = (Field("format", "8s"), Field("base_offset", "q"))
SIDECAR_HEADER: Final = structure(SIDECAR_HEADER_FIELDS)
SIDECAR_HEADER_SIZE: Final = SIDECAR_HEADER.size
ENTRY_FIELDS: Final[Fields] = (
    Field("checksum", "I"),
    Field("buffer_count", "I"),
    Field("base_offset", "q"),
    Field("last_offset_delta", "i"),
    Field("batch_size", "I"),
    Field("position", "q"),
    Field("timestamp_ms", "q"),
    Field("epoch", "i"),
    Field("synced_end", "q"),
    Field("writer_id", "q"),
    Field("batch_sequence", "i"),
    Field("batch_crc", "I"),
    Field("head_size", "I"),
    Field("head_crc", "I"),
    Field("schema_id", "h"),
    Field("magic", "B"),
    Field("flags", "B"),
)
ENTRY: Final = structure(ENTRY_FIELDS)
ENTRY_SIZE: Final = ENTRY.size
BUFFER_CRC_LENGTH: Final = CHECKSUM_LENGTH
#: The batch holds no records; it takes one offset all the same.
FLAG_EMPTY: Final = 1 << 0
#: A batch up to this size has no checksums per buffer: it is always read whole, which is cheaper than two reads.
WHOLE_BATCH_BYTES_MAX: Final = 32 * 1024

# --- index: header, then four columns of anchor_count integers: offset, timestamp, position, sidecar position ---
INDEX_HEADER_FIELDS: Final[Fields] = (
    Field("format", "8s"),
    Field("checksum", "I"),
    Field("anchor_count", "I"),
    Field("base_offset", "q"),
    Field("end_offset", "q"),
    Field("log_size", "q"),
    Field("sidecar_size", "q"),
    Field("last_epoch", "q"),
    Field("first_timestamp_ms", "q"),
    Field("last_timestamp_ms", "q"),
)
INDEX_HEADER: Final = structure(INDEX_HEADER_FIELDS)
ANCHOR_FIELDS: Final[Fields] = (
    Field("offset", "q"),
    Field("timestamp_ms", "q"),
    Field("position", "q"),
    Field("sidecar_position", "q"),
)
#: An index that grows past this keeps every second anchor, so that its size is bounded.
ANCHORS_MAX: Final = 8192

# --- epochs: format, then one entry per epoch ---
EPOCH_FIELDS: Final[Fields] = (Field("checksum", "I"), Field("epoch", "i"), Field("start_offset", "q"))
EPOCH: Final = structure(EPOCH_FIELDS)

# --- checkpoint: header, then writers, each followed by its remembered batches ---
CHECKPOINT_HEADER_FIELDS: Final[Fields] = (
    Field("format", "8s"),
    Field("checksum", "I"),
    Field("writer_count", "I"),
    Field("segment_base_offset", "q"),
    Field("log_size", "q"),
    Field("sidecar_size", "q"),
    Field("end_offset", "q"),
    Field("last_timestamp_ms", "q"),
)
CHECKPOINT_HEADER: Final = structure(CHECKPOINT_HEADER_FIELDS)
WRITER_FIELDS: Final[Fields] = (
    Field("writer_id", "q"),
    Field("last_timestamp_ms", "q"),
    Field("batch_count", "I"),
)
WRITER: Final = structure(WRITER_FIELDS)
WRITER_BATCH_FIELDS: Final[Fields] = (
    Field("batch_sequence", "i"),
    Field("base_offset", "q"),
    Field("next_offset", "q"),
)
WRITER_BATCH: Final = structure(WRITER_BATCH_FIELDS)

# --- groups: format, then records, each written GROUP_COPIES times ---
GROUP_FIELDS: Final[Fields] = (
    Field("checksum", "I"),
    Field("state", "B"),
    Field("flags", "B"),
    Field("sink_length", "H"),
    Field("number", "q"),
    Field("sink_epoch", "q"),
    Field("start_offset", "q"),
    Field("end_offset", "q"),
    Field("sink", "64s"),
)
GROUP: Final = structure(GROUP_FIELDS)
#: A record is written twice, so that one flipped byte costs nothing.
GROUP_COPIES: Final = 2
#: States of a group: its first record may follow; its last one was written.
GROUP_OPEN: Final = 1
GROUP_CLOSED: Final = 2
#: What was in the log before the group is not part of it any more.
FLAG_OVERWRITE: Final = 1 << 0
#: The group holds no rows: its one offset is that of an empty batch.
FLAG_NO_ROWS: Final = 1 << 1
#: The longest part of a sink's name that a group keeps, in bytes.
SINK_LENGTH_MAX: Final = 64

NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1


def segment_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The name of a segment's file."""
    return f"{base_offset:0{BASE_OFFSET_DIGITS}d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The base offset in the name of a segment's data file, or None for any other file."""
    stem = name[: -len(LOG_SUFFIX)]
    if (
        not name.endswith(LOG_SUFFIX)
        or len(stem) != BASE_OFFSET_DIGITS
        or not stem.isascii()
        or not stem.isdigit()
    ):
        return None
    return int(stem)


# --- damage: entries one after the other ---
DAMAGE_FIELDS: Final[Fields] = (
    Field("checksum", "I"),
    Field("schema_id", "i"),
    Field("start_offset", "q"),
    Field("end_offset", "q"),
    Field("marked_ms", "q"),
)
DAMAGE: Final = structure(DAMAGE_FIELDS)
