"""Names and bytes of a log's files: one list of fields per structure, compared with the documents by a test.

Formats: docs/formats/{segment,sidecar,indexes,epochs,groups,damage}.md. All integers are little-endian. A structure
that starts with ``checksum`` is covered by it from the next field to its end. The first eight bytes of a file name its
format and version; segments themselves have no header: a ``.log`` file is record batches, one after the other.
"""

from __future__ import annotations

from typing import Final

from strom.record.struct_fields import StructField, StructFields, structure

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

CHECKSUM: Final = structure((StructField("checksum", "I"),))
CHECKSUM_LENGTH: Final = CHECKSUM.size

# --- sidecar: header, then one entry per batch, each followed by buffer_count checksums ---
SIDECAR_HEADER_FIELDS: Final[StructFields] = (StructField("format", "8s"), StructField("base_offset", "q"))
SIDECAR_HEADER: Final = structure(SIDECAR_HEADER_FIELDS)
SIDECAR_HEADER_SIZE: Final = SIDECAR_HEADER.size
ENTRY_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("buffer_count", "I"),
    StructField("base_offset", "q"),
    StructField("last_offset_delta", "i"),
    StructField("batch_size", "I"),
    StructField("position", "q"),
    StructField("timestamp_ms", "q"),
    StructField("epoch", "i"),
    StructField("synced_end", "q"),
    StructField("writer_id", "q"),
    StructField("batch_sequence", "i"),
    StructField("batch_crc", "I"),
    StructField("head_size", "I"),
    StructField("head_crc", "I"),
    StructField("schema_id", "h"),
    StructField("magic", "B"),
    StructField("flags", "B"),
)
ENTRY: Final = structure(ENTRY_FIELDS)
ENTRY_SIZE: Final = ENTRY.size
BUFFER_CRC_LENGTH: Final = CHECKSUM_LENGTH
#: The batch holds no records; it still takes one offset.
FLAG_EMPTY: Final = 1 << 0
#: A batch up to this size has no checksums per buffer: it is always read whole, which is cheaper than two reads.
WHOLE_BATCH_BYTES_MAX: Final = 32 * 1024

# --- index: header, then four columns of anchor_count integers: offset, timestamp, position, sidecar position ---
INDEX_HEADER_FIELDS: Final[StructFields] = (
    StructField("format", "8s"),
    StructField("checksum", "I"),
    StructField("anchor_count", "I"),
    StructField("base_offset", "q"),
    StructField("end_offset", "q"),
    StructField("log_size", "q"),
    StructField("sidecar_size", "q"),
    StructField("last_epoch", "q"),
    StructField("first_timestamp_ms", "q"),
    StructField("last_timestamp_ms", "q"),
)
INDEX_HEADER: Final = structure(INDEX_HEADER_FIELDS)
ANCHOR_FIELDS: Final[StructFields] = (
    StructField("offset", "q"),
    StructField("timestamp_ms", "q"),
    StructField("position", "q"),
    StructField("sidecar_position", "q"),
)
#: An index that grows past this keeps every second anchor, so that its size is bounded.
ANCHORS_MAX: Final = 8192

# --- epochs: format, then one entry per epoch ---
EPOCH_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("epoch", "i"),
    StructField("start_offset", "q"),
)
EPOCH: Final = structure(EPOCH_FIELDS)

# --- checkpoint: header, then writers, each followed by its remembered batches ---
CHECKPOINT_HEADER_FIELDS: Final[StructFields] = (
    StructField("format", "8s"),
    StructField("checksum", "I"),
    StructField("writer_count", "I"),
    StructField("segment_base_offset", "q"),
    StructField("log_size", "q"),
    StructField("sidecar_size", "q"),
    StructField("end_offset", "q"),
    StructField("last_timestamp_ms", "q"),
)
CHECKPOINT_HEADER: Final = structure(CHECKPOINT_HEADER_FIELDS)
WRITER_FIELDS: Final[StructFields] = (
    StructField("writer_id", "q"),
    StructField("last_timestamp_ms", "q"),
    StructField("batch_count", "I"),
)
WRITER: Final = structure(WRITER_FIELDS)
WRITER_BATCH_FIELDS: Final[StructFields] = (
    StructField("batch_sequence", "i"),
    StructField("base_offset", "q"),
    StructField("next_offset", "q"),
)
WRITER_BATCH: Final = structure(WRITER_BATCH_FIELDS)

# --- groups: format, then records, each written GROUP_COPIES times ---
GROUP_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("state", "B"),
    StructField("flags", "B"),
    StructField("sink_length", "H"),
    StructField("number", "q"),
    StructField("sink_epoch", "q"),
    StructField("start_offset", "q"),
    StructField("end_offset", "q"),
    StructField("sink", "64s"),
)
GROUP: Final = structure(GROUP_FIELDS)
#: A record is written twice, so that one flipped byte costs nothing.
GROUP_COPIES: Final = 2
#: States of a group: its first record may follow; its last one was written.
GROUP_OPEN: Final = 1
GROUP_CLOSED: Final = 2
#: What was in the log before the group is no longer part of it.
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
DAMAGE_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("schema_id", "i"),
    StructField("start_offset", "q"),
    StructField("end_offset", "q"),
    StructField("marked_ms", "q"),
)
DAMAGE: Final = structure(DAMAGE_FIELDS)
