"""One stage on the disk: what a task has written for one bucket, checksummed piece by piece.

A stage is written under a temporary name; its final name says that it is sealed and whole. So an unsound file under a
final name is damaged, and never mistaken for a stage that was not finished.

Format: docs/formats/stages.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from strom.errors import ChecksumMismatch
from strom.log.layout import CHECKSUM, CHECKSUM_LENGTH
from strom.record.checksum import crc32c, crc32c_many
from strom.record.struct_fields import StructField, StructFields, structure
from strom.runtime.files import TEMPORARY_SUFFIX, Bytes, File, Files

STAGE_FORMAT: Final = b"STROMST1"
STAGE_ID_LENGTH: Final = 16
SINK_BYTES_MAX: Final = 1024
"""Bytes of a sink's name."""
COLUMNS_MAX: Final = 1 << 16
SEAL_COPIES: Final = 2

HEAD_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("sink_length", "I"),
    StructField("stage_id", "16s"),
    StructField("sink_epoch", "q"),
    StructField("lease_ms", "q"),
    StructField("begun_ms", "q"),
)
HEAD: Final = structure(HEAD_FIELDS)
PIECE_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("content_crc", "I"),
    StructField("sequence", "I"),
    StructField("column_count", "I"),
    StructField("rows", "q"),
    StructField("length", "q"),
)
PIECE: Final = structure(PIECE_FIELDS)
COLUMN: Final = structure((StructField("column", "I"),))
SEAL_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("pieces", "I"),
    StructField("rows", "q"),
    StructField("size", "q"),
    StructField("deadline_ms", "q"),
)
SEAL: Final = structure(SEAL_FIELDS)
SEAL_SIZE: Final = SEAL.size * SEAL_COPIES


class StageHead(NamedTuple):
    """The sink that stages, and for which epoch."""

    stage_id: bytes
    sink: str
    epoch: int
    lease_ms: int
    begun_ms: int


class StagedBatches(NamedTuple):
    """Rows as they came: the batches, and which columns they hold (none: all)."""

    sequence: int
    columns: tuple[int, ...]
    records: Bytes
    rows: int


class StageSeal(NamedTuple):
    """What a whole stage holds."""

    pieces: int
    rows: int
    size: int
    """Bytes before the seal."""
    deadline_ms: int


def stage_path(folder: str, stage_id: bytes, *, sealed: bool) -> str:
    """Where a stage lies."""
    return f"{folder}/{stage_id.hex()}{'' if sealed else TEMPORARY_SUFFIX}"


def stage_id_of(name: str) -> bytes | None:
    """The stage id in a sealed stage's file name; None for any other name."""
    if len(name) != 2 * STAGE_ID_LENGTH or name != name.lower():
        return None
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None


def _checked(packed: bytes, *more: Bytes) -> bytes:
    rest = packed[CHECKSUM_LENGTH:]
    return CHECKSUM.pack(crc32c_many([rest, *more])) + rest


def encode_head(head: StageHead) -> bytes:
    """The beginning of a stage's file."""
    sink = head.sink.encode()
    packed = HEAD.pack(0, len(sink), head.stage_id, head.epoch, head.lease_ms, head.begun_ms)
    return STAGE_FORMAT + _checked(packed, sink) + sink


def encode_piece(piece: StagedBatches) -> list[Bytes]:
    """One piece, in buffers that follow one another."""
    columns = b"".join(COLUMN.pack(column) for column in piece.columns)
    content_crc = crc32c_many([columns, piece.records])
    packed = PIECE.pack(0, content_crc, piece.sequence, len(piece.columns), piece.rows, len(piece.records))
    return [_checked(packed), columns, piece.records]


def encode_seal(seal: StageSeal) -> bytes:
    """The end of a whole stage."""
    return _checked(SEAL.pack(0, *seal)) * SEAL_COPIES


def read_sealed(
    files: Files, folder: str, stage_id: bytes, *, named: bool = True
) -> tuple[StageHead, StageSeal]:
    """Head and seal of a sealed stage; ChecksumMismatch when they are not sound. ``named``: it has its final name."""
    file = files.open(stage_path(folder, stage_id, sealed=named))
    try:
        head, _ = _read_head(file, stage_id)
        return head, _read_seal(file)
    finally:
        file.close()


def read_pieces(files: Files, folder: str, stage_id: bytes, *, named: bool = True) -> Iterator[StagedBatches]:
    """The pieces of a sealed stage, one at a time, every byte checked. ``named``: it has its final name."""
    file = files.open(stage_path(folder, stage_id, sealed=named))
    try:
        _, position = _read_head(file, stage_id)
        seal = _read_seal(file)
        for number in range(seal.pieces):
            piece, position = _read_piece(file, position, seal.size)
            if piece.sequence != number:
                raise _damaged(file, f"piece {piece.sequence} is where {number} should be")
            yield piece
        if position != seal.size:
            raise _damaged(file, f"its pieces end at {position}, not at {seal.size}")
    finally:
        file.close()


def _read_head(file: File, stage_id: bytes) -> tuple[StageHead, int]:
    size = len(STAGE_FORMAT) + HEAD.size
    content = file.read_at(0, size + SINK_BYTES_MAX)
    if len(content) < size or content[: len(STAGE_FORMAT)] != STAGE_FORMAT:
        raise _damaged(file, "its first bytes are not those of a stage")
    checksum, length, found, epoch, lease_ms, begun_ms = HEAD.unpack_from(content, len(STAGE_FORMAT))
    covered = content[len(STAGE_FORMAT) + CHECKSUM_LENGTH : size + min(length, SINK_BYTES_MAX)]
    if crc32c(covered) != checksum or found != stage_id:
        raise _damaged(file, "its head does not match its checksum")
    sink = content[size : size + length].decode(errors="replace")
    return StageHead(stage_id, sink, epoch, lease_ms, begun_ms), size + length


def _read_seal(file: File) -> StageSeal:
    size = file.size()
    content = file.read_at(max(0, size - SEAL_SIZE), SEAL_SIZE)
    for start in range(0, len(content) - SEAL.size + 1, SEAL.size):
        copy = content[start : start + SEAL.size]
        checksum, *fields = SEAL.unpack(copy)
        seal = StageSeal(*fields)
        if crc32c(copy[CHECKSUM_LENGTH:]) == checksum and seal.size == size - SEAL_SIZE:
            return seal
    raise _damaged(file, "it has no sound seal")


def _read_piece(file: File, position: int, end: int) -> tuple[StagedBatches, int]:
    packed = file.read_at(position, PIECE.size)
    if len(packed) < PIECE.size or _checked(packed) != packed:
        raise _damaged(file, f"the piece at {position} does not match its checksum")
    _, content_crc, sequence, column_count, rows, length = PIECE.unpack(packed)
    start = position + PIECE.size
    size = column_count * COLUMN.size + length
    if column_count > COLUMNS_MAX or length < 0 or start + size > end:
        raise _damaged(file, f"the piece at {position} reaches past the end of the file")
    view = memoryview(bytearray(size))  # its batches are stamped in place
    if file.read_into(start, [view]) != size or crc32c(view) != content_crc:
        raise _damaged(file, f"the rows at {start} do not match their checksum")
    columns = _columns(view[: column_count * COLUMN.size])
    return StagedBatches(sequence, columns, view[column_count * COLUMN.size :], rows), start + size


def _columns(packed: memoryview) -> tuple[int, ...]:
    return tuple(column for (column,) in COLUMN.iter_unpack(packed))


def _damaged(file: File, what: str) -> ChecksumMismatch:
    return ChecksumMismatch(f"the stage {file.path} is damaged: {what}", path=file.path)


def piece_size(columns: Sequence[int], records: Bytes) -> int:
    """Bytes that a piece takes."""
    return PIECE.size + len(columns) * COLUMN.size + len(records)
