"""Where every field of a record batch lies: one chain of constants, compared with the document by a test.

Format: docs/formats/record_batch.md. All integers are little-endian. A tuple holds one position per magic (0, 1, 2):
magic 1 adds statistics, magic 2 adds the epoch before the CRC, which moves everything after it.

The CRC covers everything from the schema id to the end of the batch. What lies before it (base offset, length,
magic, timestamp, epoch) is outside, so a server stamps a batch without touching its payload.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC_PLAIN: Final = 0
MAGIC_STATISTICS: Final = 1
MAGIC_EPOCH: Final = 2
MAGIC_MAX: Final = MAGIC_EPOCH

# --- the same for every magic ---
BASE_OFFSET_POSITION: Final = 0
BASE_OFFSET_LENGTH: Final = 8
LENGTH_POSITION: Final = BASE_OFFSET_POSITION + BASE_OFFSET_LENGTH
LENGTH_LENGTH: Final = 4
#: The ``length`` field counts the bytes after itself.
LENGTH_OVERHEAD: Final = LENGTH_POSITION + LENGTH_LENGTH
MAGIC_POSITION: Final = LENGTH_POSITION + LENGTH_LENGTH
MAGIC_LENGTH: Final = 1
TIMESTAMP_POSITION: Final = MAGIC_POSITION + MAGIC_LENGTH
TIMESTAMP_LENGTH: Final = 8

# --- one position per magic ---
EPOCH_POSITION: Final = TIMESTAMP_POSITION + TIMESTAMP_LENGTH  # magic 2 only
EPOCH_LENGTH: Final = 4
CRC_POSITION: Final = (EPOCH_POSITION, EPOCH_POSITION, EPOCH_POSITION + EPOCH_LENGTH)
CRC_LENGTH: Final = 4
SCHEMA_ID_POSITION: Final = tuple(p + CRC_LENGTH for p in CRC_POSITION)
SCHEMA_ID_LENGTH: Final = 2
ATTRIBUTES_POSITION: Final = tuple(p + SCHEMA_ID_LENGTH for p in SCHEMA_ID_POSITION)
ATTRIBUTES_LENGTH: Final = 1
LAST_OFFSET_DELTA_POSITION: Final = tuple(p + ATTRIBUTES_LENGTH for p in ATTRIBUTES_POSITION)
LAST_OFFSET_DELTA_LENGTH: Final = 4
WRITER_ID_POSITION: Final = tuple(p + LAST_OFFSET_DELTA_LENGTH for p in LAST_OFFSET_DELTA_POSITION)
WRITER_ID_LENGTH: Final = 8
BATCH_SEQUENCE_POSITION: Final = tuple(p + WRITER_ID_LENGTH for p in WRITER_ID_POSITION)
BATCH_SEQUENCE_LENGTH: Final = 4
RECORD_COUNT_POSITION: Final = tuple(p + BATCH_SEQUENCE_LENGTH for p in BATCH_SEQUENCE_POSITION)
RECORD_COUNT_LENGTH: Final = 4
STATISTICS_LENGTH_POSITION: Final = tuple(
    p + RECORD_COUNT_LENGTH for p in RECORD_COUNT_POSITION
)  # magic 1, 2
STATISTICS_LENGTH_LENGTH: Final = 4
HEADER_SIZE: Final = (
    STATISTICS_LENGTH_POSITION[MAGIC_PLAIN],
    STATISTICS_LENGTH_POSITION[MAGIC_STATISTICS] + STATISTICS_LENGTH_LENGTH,
    STATISTICS_LENGTH_POSITION[MAGIC_EPOCH] + STATISTICS_LENGTH_LENGTH,
)
#: The smallest header there is: fewer bytes than this are never a batch.
HEADER_SIZE_MIN: Final = HEADER_SIZE[MAGIC_PLAIN]

#: base_offset, length, magic, timestamp, [epoch], crc, schema_id, attributes, last_offset_delta, writer_id,
#: batch_sequence, record_count, [statistics_length]
HEADER: Final = (
    struct.Struct("<qibqIhBiqii"),
    struct.Struct("<qibqIhBiqiii"),
    struct.Struct("<qibqiIhBiqiii"),
)

# --- attributes ---
ATTRIBUTE_APPEND_ONLY: Final = 1 << 0
#: Sparse batches are Strom's own answer to a filtered read: never stored, never sent to Fluss clients.
ATTRIBUTE_SPARSE: Final = 1 << 1
#: The records of these offsets are given up; there are none in the batch. Sent, never stored.
ATTRIBUTE_DAMAGED: Final = 1 << 2

# --- values ---
NO_WRITER_ID: Final = -1
NO_BATCH_SEQUENCE: Final = -1
NO_EPOCH: Final = -1

# --- body: [sparse: record_count × offset delta] [not append-only: record_count × change type] [Arrow message] ---
OFFSET_DELTA_LENGTH: Final = 4
CHANGE_TYPE_LENGTH: Final = 1
CHANGE_APPEND: Final = 0  # +A
CHANGE_INSERT: Final = 1  # +I
CHANGE_UPDATE_BEFORE: Final = 2  # -U
CHANGE_UPDATE_AFTER: Final = 3  # +U
CHANGE_DELETE: Final = 4  # -D
CHANGE_MAX: Final = CHANGE_DELETE

# --- Arrow message ---
CONTINUATION: Final = 0xFFFFFFFF
CONTINUATION_LENGTH: Final = 4
METADATA_SIZE_LENGTH: Final = 4
MESSAGE_PREFIX_SIZE: Final = CONTINUATION_LENGTH + METADATA_SIZE_LENGTH
BUFFER_ALIGNMENT: Final = 8
#: A compressed buffer starts with its size before compression; -1 says that it was left uncompressed.
UNCOMPRESSED_SIZE_LENGTH: Final = 8
NOT_COMPRESSED: Final = -1

# --- statistics ---
STATISTICS_VERSION: Final = 1
#: The version that a server writes over statistics which do not hold: no reader knows it.
STATISTICS_STRUCK: Final = 0
STATISTICS_VERSION_LENGTH: Final = 1
STATISTICS_COUNT_LENGTH: Final = 2
STATISTICS_COLUMN_LENGTH: Final = 2
STATISTICS_NULL_COUNT_LENGTH: Final = 4
STATISTICS_ROW_SIZE_LENGTH: Final = 4
#: The first bits of an aligned row are its header; the null bit of field i is bit i + 8.
ROW_HEADER_BITS: Final = 8
ROW_SLOT_LENGTH: Final = 8
#: Up to this many bytes of text lie in the slot itself.
ROW_INLINE_MAX: Final = 7
ROW_INLINE_MARK: Final = 0x80
DECIMAL_COMPACT_PRECISION_MAX: Final = 18
DECIMAL_AREA_LENGTH: Final = 16
