"""The stages of a bucket: rows that are written but invisible until a decision publishes them.

Invariants
    1. A stage is sealed once, and then never changes. Its deadline is set when it is sealed, by this server's clock.
    2. Under ``group`` a seal counts once it is durable, name and all; under ``os`` once it is written.
    3. Opening finds the sealed stages and nothing else: what was not sealed is gone, and its writer gets an error.
    4. Bytes and number of stages are bounded, for the bucket, for a sink and for the server; so are open files.

``add``, ``drop``, ``drop_unsealed``, ``set_aside``, ``pieces`` and ``close`` are called in the bucket's lane;
``pending_sync``, ``synced``, ``fail`` and ``pending`` belong to the server's loop, which makes seals durable by group
commit, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from strom.errors import Busy, ChecksumMismatch, InvalidRequest, StageNotFound, StorageOffline, StromError
from strom.runtime.files import TEMPORARY_SUFFIX, Bytes, File, Files
from strom.tablet.pending import Pending
from strom.tablet.staging.seals import SealPoint, Stage, name_sealed
from strom.tablet.staging.stage_copies import StageCopies
from strom.tablet.staging.stage_file import (
    SEAL_SIZE,
    SINK_BYTES_MAX,
    STAGE_ID_LENGTH,
    StagedBatches,
    StageHead,
    StageSeal,
    encode_head,
    encode_piece,
    encode_seal,
    piece_size,
    read_pieces,
    read_sealed,
    stage_id_of,
    stage_path,
)
from strom.tablet.staging.stage_handles import StageHandles
from strom.tablet.staging.stage_room import StageRoom

STAGES_FOLDER = "stages"
SKIPPED_SUFFIX = ".skipped"
"""For a decided stage that an operator had skipped: kept for people to inspect and remove."""
STAGES_MAX = 10_000
"""Stages of one bucket."""
LEASE_MS_MAX = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class StageLimits:
    """Limits of a bucket's stages."""

    bucket_bytes_max: int = 4 * 1024 * 1024 * 1024
    idle_ms_max: int = 3_600_000
    """An unsealed stage that gets no piece for this long counts as given up, whatever its lease."""


class StagePiece(NamedTuple):
    """What one call brings to a stage."""

    stage_id: bytes
    sink: str
    epoch: int
    lease_ms: int
    sequence: int
    columns: tuple[int, ...]
    records: memoryview
    seal: bool


class StageState(NamedTuple):
    """What a stage holds after a call."""

    rows: int
    deadline_ms: int | None
    """Once it is sealed."""
    seal: int
    """Durable when ``seals_durable`` reaches this; 0 when there is nothing to wait for."""


class LateStage(NamedTuple):
    """A sealed stage whose lease is over."""

    stage_id: bytes
    sink: str
    epoch: int
    deadline_ms: int


class StageStore:
    """All stages of one bucket."""

    def __init__(
        self, files: Files, bucket_folder: str, *, durable: bool, limits: StageLimits, room: StageRoom
    ) -> None:
        """Use ``StageStore.open``."""
        self._files = files
        self._folder = f"{bucket_folder}/{STAGES_FOLDER}"
        self._durable = durable
        self._limits = limits
        self._room = room
        self._handles = StageHandles(files, room.handles, durable=durable)
        self._stages: dict[bytes, Stage] = {}
        self._sealing: list[Stage] = []
        self._seals = 0
        self.seals_durable = 0
        self.pending = Pending()
        """Who waits for seals to be durable."""
        self.bytes = 0
        self.error: StromError | None = None
        self.on_failure: Callable[[StorageOffline], None] | None = None
        self.on_change: Callable[[bytes, bool], None] | None = None
        """Called when a stage is sealed as durably as promised (True), on the loop or in the lane, and when it goes."""
        self.copies = StageCopies(self, files, self._folder)
        """How sealed stages get from one copy of a bucket to another."""

    @staticmethod
    def open(
        files: Files, bucket_folder: str, *, durable: bool, limits: StageLimits, room: StageRoom
    ) -> StageStore:
        """Find the sealed stages; remove what was not sealed."""
        store = StageStore(files, bucket_folder, durable=durable, limits=limits, room=room)
        try:
            for name in files.list(store._folder):
                store._find(name)
        except BaseException as error:
            store.close()  # what it found counts when it is found again
            if not isinstance(error, OSError):
                raise
            raise StorageOffline(
                f"the disk failed while {store._folder} was opened: {error}", folder=store._folder
            ) from error
        return store

    def _find(self, name: str) -> None:
        stage_id = stage_id_of(name)
        if stage_id is None:
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(f"{self._folder}/{name}")
            return
        size = self._files.size(f"{self._folder}/{name}")
        try:
            head, seal = read_sealed(self._files, self._folder, stage_id)
        except ChecksumMismatch:
            # It was sealed, or it would not have this name: it stays until an operator has looked at it.
            stage = Stage(StageHead(stage_id, "", 0, 0, 0), state="damaged")
        else:
            stage = Stage(head, state="sealed")
            stage.pieces, stage.rows, stage.deadline_ms = seal.pieces, seal.rows, seal.deadline_ms
        stage.size = size
        self._stages[stage_id] = stage
        self._room.found(stage.head.sink)
        self._count(size)

    # --- facts -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many stages there are."""
        return len(self._stages)

    @property
    def writing(self) -> bool:
        """Whether a stage was begun and not sealed, or its seal is not durable yet."""
        return any(stage.state in ("open", "sealing") for stage in list(self._stages.values()))

    @property
    def damaged(self) -> int:
        """Sealed stages that cannot be read."""
        return sum(stage.state == "damaged" for stage in list(self._stages.values()))

    def has(self, stage_id: bytes) -> bool:
        """Whether a stage is sealed, durably, and can be read."""
        stage = self._stages.get(stage_id)
        return stage is not None and stage.state == "sealed"

    def sealed_ids(self) -> list[bytes]:
        """The stages that are sealed, durably, and can be read."""
        return [one for one, stage in list(self._stages.items()) if stage.state == "sealed"]

    def size_of(self, stage_id: bytes) -> int:
        """The bytes of a sealed stage; StageNotFound when it is not there."""
        stage = self._stages.get(stage_id)
        if stage is None or stage.state != "sealed":
            raise StageNotFound(f"there is no sealed stage {stage_id.hex()} here", stage=stage_id.hex())
        return stage.size

    def seal_of(self, stage_id: bytes) -> int | None:
        """The number of a stage's seal, 0 when it is durable; None when it is not sealed, or cannot be read."""
        stage = self._stages.get(stage_id)
        if stage is None or stage.state not in ("sealing", "sealed"):
            return None
        return stage.seal if stage.state == "sealing" else 0

    def is_damaged(self, stage_id: bytes) -> bool:
        """Whether a stage was sealed and cannot be read."""
        stage = self._stages.get(stage_id)
        return stage is not None and stage.state == "damaged"

    def late(self, now_ms: int) -> list[LateStage]:
        """Sealed stages whose lease is over by this server's clock; only the coordinator knows which may be removed."""
        return [
            LateStage(stage.head.stage_id, stage.head.sink, stage.head.epoch, stage.deadline_ms)
            for stage in list(self._stages.values())
            if stage.state == "sealed" and stage.deadline_ms is not None and stage.deadline_ms <= now_ms
        ]

    def pieces(self, stage_id: bytes) -> Iterator[StagedBatches]:
        """What a sealed stage holds; ChecksumMismatch when a byte of it is wrong, StageNotFound when it is gone."""
        try:
            yield from read_pieces(self._files, self._folder, stage_id)
        except FileNotFoundError as error:  # somebody removed it: the disk is well
            raise StageNotFound(
                f"the file of stage {stage_id.hex()} is gone: {error}", stage=stage_id.hex()
            ) from error

    # --- writing -----------------------------------------------------------------------------------------------------

    def expects(self, piece: StagePiece) -> bool:
        """Whether a piece is the next one; False when it is stored already. Refuses what cannot be staged."""
        self._check_online()
        if len(piece.stage_id) != STAGE_ID_LENGTH:
            raise InvalidRequest(f"a stage's id has {STAGE_ID_LENGTH} bytes, not {len(piece.stage_id)}")
        if len(piece.sink.encode()) > SINK_BYTES_MAX:
            raise InvalidRequest(f"a sink's name has at most {SINK_BYTES_MAX} bytes")
        if not 0 < piece.lease_ms <= LEASE_MS_MAX:
            raise InvalidRequest(
                f"a lease is 1 to {LEASE_MS_MAX} ms long, not {piece.lease_ms}", lease_ms=piece.lease_ms
            )
        stage = self._stages.get(piece.stage_id)
        expected = 0 if stage is None else stage.pieces
        if not 0 <= piece.sequence <= expected:
            raise StageNotFound(
                f"stage {piece.stage_id.hex()} has {expected} pieces here, and piece {piece.sequence} came: the server "
                "was restarted, or the stage's lease is over; stage the rows again",
                stage=piece.stage_id.hex(),
                expected=expected,
            )
        return piece.sequence == expected and (len(piece.records) > 0 or not piece.seal)

    def add(self, piece: StagePiece, rows: int, now_ms: int) -> StageState:
        """Add a checked piece, and seal if it says so. A piece that is stored already is acknowledged again."""
        fresh = self.expects(piece)
        stage = self._stages.get(piece.stage_id)
        if stage is None:
            stage = self._begin(
                StageHead(piece.stage_id, piece.sink, piece.epoch, piece.lease_ms, begun_ms=now_ms)
            )
        stage.touched_ms = now_ms
        if fresh:
            self._write(stage, StagedBatches(piece.sequence, piece.columns, piece.records, rows))
        if piece.seal:
            self._seal(stage, now_ms)
        return StageState(stage.rows, stage.deadline_ms, stage.seal if stage.state == "sealing" else 0)

    def _begin(self, head: StageHead) -> Stage:
        if len(self._stages) >= STAGES_MAX:
            raise Busy(f"the bucket has {STAGES_MAX} stages; try again when some are published")
        stage = Stage(head)
        content = encode_head(head)
        self._room.begin(head.sink)
        try:
            self._take(len(content))
        except BaseException:
            self._room.ended(head.sink)
            raise
        try:
            self._files.make_folder(self._folder)
            self._handles.create(stage, self._path(stage), content)
        except BaseException as error:
            self._handles.close(stage, self._path(stage))
            self._count(-len(content))
            self._room.ended(head.sink)
            raise self._offline(error) if isinstance(error, OSError) else error from None
        stage.size = len(content)
        self._stages[head.stage_id] = stage
        return stage

    def _write(self, stage: Stage, piece: StagedBatches) -> None:
        if stage.state != "open":
            raise InvalidRequest(f"stage {stage.head.stage_id.hex()} is sealed: it takes no more rows")
        size = piece_size(piece.columns, piece.records)
        self._take(size)
        self._append(stage, encode_piece(piece), size)
        stage.pieces += 1
        stage.rows += piece.rows

    def _seal(self, stage: Stage, now_ms: int) -> None:
        if stage.state != "open":
            return
        deadline_ms = now_ms + stage.head.lease_ms
        self._take(SEAL_SIZE)
        seal = StageSeal(stage.pieces, stage.rows, stage.size, deadline_ms)
        self._append(stage, [encode_seal(seal)], SEAL_SIZE)
        self._handles.complete(self._path(stage))
        stage.deadline_ms = deadline_ms
        self._name_when_durable(stage)

    def adopt(self, stage_id: bytes, file: File) -> int:
        """A stage came whole from another copy and lies under its unsealed name: seal it as one that was written here.

        Returns the seal to wait for, 0 when there is none. One that could not be read any more is replaced.
        """
        self._check_online()
        head, seal = read_sealed(self._files, self._folder, stage_id, named=False)
        old = self._stages.pop(stage_id, None)
        if old is not None:
            self._room.ended(old.head.sink)
            self._count(-old.size)
        stage = Stage(head)
        stage.pieces, stage.rows, stage.deadline_ms = seal.pieces, seal.rows, seal.deadline_ms
        stage.size = file.size()
        self._room.found(head.sink)  # its leader had room for it
        self._count(stage.size)
        self._stages[stage_id] = stage
        try:
            self._handles.take(stage, file)
        except OSError as error:
            raise self._offline(error) from error
        self._name_when_durable(stage)
        return stage.seal if stage.state == "sealing" else 0

    def _name_when_durable(self, stage: Stage) -> None:
        if self._durable:
            self._seals += 1
            stage.seal, stage.state = self._seals, "sealing"
            self._sealing.append(stage)
            return
        try:
            name_sealed(self._files, self._folder, stage)
        except OSError as error:
            raise self._offline(error) from error
        self._finish(stage)

    def _append(self, stage: Stage, buffers: list[Bytes], size: int) -> None:
        """Append ``size`` bytes, for which room was taken, to a stage; all of them or none."""
        try:
            self._handles.append(stage, self._path(stage), buffers)
        except BaseException as error:
            self._count(-size)
            raise self._offline(error) if isinstance(error, OSError) else error from None
        stage.size += size

    # --- room --------------------------------------------------------------------------------------------------------

    def _take(self, size: int) -> None:
        if self.bytes + size > self._limits.bucket_bytes_max:
            raise Busy(
                f"the stages of this bucket take {self.bytes} of {self._limits.bucket_bytes_max} bytes "
                "(stage.bucket.bytes-max); try again when some are published or their leases are over",
                bytes=self.bytes,
                bytes_max=self._limits.bucket_bytes_max,
            )
        self._room.take(size)
        self.bytes += size

    def _count(self, size: int) -> None:
        self.bytes += size
        self._room.note(size)

    # --- ending ------------------------------------------------------------------------------------------------------

    def drop(self, stage_ids: Collection[bytes]) -> int:
        """Remove stages that were published, or that nobody will publish; unknown ones are ignored.

        One whose seal is being made durable right now stays until its lease is over.
        """
        wanted = (self._stages.get(stage_id) for stage_id in dict.fromkeys(stage_ids))
        found = [stage for stage in wanted if stage is not None and stage.state != "sealing"]
        for stage in found:
            self._drop(stage)
        return len(found)

    def drop_unsealed(self, now_ms: int) -> int:
        """Remove unsealed stages that began more than a lease ago or were idle too long: no decision can list them."""
        given_up = [
            stage
            for stage in self._stages.values()
            if stage.state == "open"
            and (
                stage.head.begun_ms + stage.head.lease_ms <= now_ms
                or stage.touched_ms + self._limits.idle_ms_max <= now_ms
            )
        ]
        for stage in given_up:
            self._drop(stage)
        return len(given_up)

    def drop_open(self) -> int:
        """Remove all unsealed stages: their writers go to another server, and start over there."""
        self.copies.forget()
        found = [stage for stage in self._stages.values() if stage.state == "open"]
        for stage in found:
            self._drop(stage)
        return len(found)

    def set_aside(self, stage_id: bytes) -> bool:
        """Keep a sealed stage under another name, where it is not published; False when it does not exist."""
        stage = self._stages.get(stage_id)
        if stage is None or stage.state not in ("sealed", "damaged"):
            return False
        path = stage_path(self._folder, stage_id, sealed=True)
        try:
            if self._files.exists(path):
                self._files.rename(path, f"{path}{SKIPPED_SUFFIX}")
                self._files.sync_folder(self._folder)
        except OSError as error:
            raise self._offline(error) from error
        del self._stages[stage_id]
        self._room.ended(stage.head.sink)
        self._count(-stage.size)
        self._tell(stage, there=False)
        return True

    def _drop(self, stage: Stage) -> None:
        del self._stages[stage.head.stage_id]
        self._tell(stage, there=False)
        self._room.ended(stage.head.sink)
        self._handles.close(stage, self._path(stage))
        try:
            self._files.remove(stage_path(self._folder, stage.head.stage_id, sealed=stage.state != "open"))
        except OSError as error:
            raise self._offline(error) from error
        finally:
            self._count(-stage.size)

    def close(self) -> None:
        """Release the files. A stage that is not sealed is lost with this, and its writer has to start over."""
        for stage in self._stages.values():
            if stage.state != "sealing" or self.error is not None:  # otherwise its sync is still to come
                self._handles.close(stage, self._path(stage))
            self._room.ended(stage.head.sink)
        self._stages = {}
        self._room.note(-self.bytes)
        self.bytes = 0

    # --- durability (on the loop) ------------------------------------------------------------------------------------

    def pending_sync(self) -> SealPoint | None:
        """The seals that are not durable yet."""
        if self.error is not None or not self._sealing:
            return None
        return SealPoint(self._files, self._folder, list(self._sealing))

    def synced(self, point: SealPoint) -> None:
        """They are durable."""
        for stage in point.stages:
            self._finish(stage)
        del self._sealing[: len(point.stages)]
        self.seals_durable = max(self.seals_durable, point.number)
        self.pending.advance(self.seals_durable)

    def fail(self, error: StromError) -> None:
        """Refuse everything from now on: the disk failed, or the bucket is gone."""
        if self.error is None:
            self.error = error
            self.pending.fail(error)
            if self.on_failure is not None and isinstance(error, StorageOffline):
                self.on_failure(error)

    def _finish(self, stage: Stage) -> None:
        stage.state = "sealed"
        self._room.handles.give_back(stage)
        self._tell(stage, there=True)

    def _tell(self, stage: Stage, *, there: bool) -> None:
        if self.on_change is not None and stage.state in ("sealed", "damaged"):
            self.on_change(stage.head.stage_id, there)

    def _path(self, stage: Stage) -> str:
        return stage_path(self._folder, stage.head.stage_id, sealed=False)

    def _offline(self, error: OSError) -> StorageOffline:
        """For the lane; the loop then fails the waits."""
        return StorageOffline(f"the disk failed to stage in {self._folder}: {error}", folder=self._folder)

    def _check_online(self) -> None:
        if self.error is not None:
            raise self.error
