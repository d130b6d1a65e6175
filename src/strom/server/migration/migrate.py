"""Moving the metadata of a stopped installation: the steps, in an order that survives a crash after each.

To ZooKeeper: fill a root that nobody can use yet; write down in the folder that a move is under way, after which no
server starts on it; put the files of the metadata aside and nest the buckets; publish the root. Until then, repeating
takes everything back in the folder and begins anew.

To embedded: write down the move; take the buckets out; build the files of the metadata; retire the root. Repeating does
the same again: each step is fine if it happened already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from strom.coordinator.catalog import Catalog
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.new_copies import FIRST_PLACEMENT
from strom.errors import FolderInUse, ForeignMetadata, InvalidSetting
from strom.log.epochs import LEAP, decode_epochs
from strom.log.layout import EPOCHS_NAME
from strom.metadata import layout
from strom.metadata.changes import ANNOUNCED
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.opening import build
from strom.metadata.second_copy import SecondCopy
from strom.metadata.store import Snapshot
from strom.metadata.zookeeper.moving import MovingRoot, open_moving_root
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.model.bucket import BucketId
from strom.runtime.units import counted
from strom.runtime.world import World
from strom.server.folder.disk_identity import DISK_FILE, DiskRecord, FolderDisk
from strom.server.folder.folder import FORMAT_FILE, DataFolder, bucket_path, buckets_path, open_folder
from strom.server.folder.metadata_place import MetadataMove, MetadataPlace, read_place, write_place
from strom.server.migration.bucket_nesting import nest, unnest
from strom.server.migration.moved_entries import (
    at_version,
    cluster_entries,
    embedded_entries,
    kinds,
    placements_on,
)

MOVED_PREFIX = "metadata.moved"
_FILES = {
    layout.COPY_FILE: f"{MOVED_PREFIX}.copy",
    **{f"{layout.DATABASE_FILE}{end}": f"{MOVED_PREFIX}.db{end}" for end in ("-wal", "-shm", "")},
}
"""Of every file of the metadata the name under which it is kept. The database goes last."""

Progress = Callable[[str], None]
"""Called after each step with a word for it."""


@dataclass(frozen=True)
class MigrationReport:
    """What was moved."""

    entries: int
    what: str
    buckets: int
    kept: str
    """Where the old metadata are."""


@dataclass(frozen=True)
class MetadataMigration:
    """A data folder, the root of a ZooKeeper, and what decides in both."""

    world: World
    path: str
    options: ZooKeeperOptions
    limits: DecisionLimits
    progress: Progress = lambda _step: None

    # --- to ZooKeeper ----------------------------------------------------------------------------------------

    def to_zookeeper(self, server_id: int) -> MigrationReport:
        """Make the folder that of a tablet server, the only one of a new cluster."""
        with self._folder() as folder, open_moving_root(self.options, self.world.clock) as root:
            place = self._place(MetadataMove.TO_ZOOKEEPER)
            if place is not None and place.finished:
                raise InvalidSetting(
                    f"the metadata of {self.path} were moved to ZooKeeper already ({place.addresses}{place.root})",
                    folder=self.path,
                )
            if place is not None and self._is_published(root, folder):
                write_place(
                    self.world.files, self.path, self._moving(MetadataMove.TO_ZOOKEEPER, finished=True)
                )
                return MigrationReport(0, "what was left to do", 0, f"{self.path}/{MOVED_PREFIX}.db")
            if place is not None:
                self._take_back()
            return self._to_zookeeper(folder, root, server_id)

    def _to_zookeeper(self, folder: DataFolder, root: MovingRoot, server_id: int) -> MigrationReport:
        if not folder.stopped_cleanly:
            raise InvalidSetting(
                f"the last server on {self.path} was killed: start it once more with `strom up` and stop it, so that "
                "every log is closed",
                folder=self.path,
            )
        if root.identity() is not None:
            raise ForeignMetadata(
                f"{self.options.root} in ZooKeeper holds a cluster already: name another zookeeper.root",
                root=self.options.root,
            )
        snapshot = self._embedded_snapshot()
        disk = self._disk(folder)
        entries = cluster_entries(
            snapshot, self.limits, server_id=server_id, disk=disk.disk, next_epoch=self._next_epoch
        )
        root.fill(entries)
        self.progress("filled the root")
        write_place(self.world.files, self.path, self._moving(MetadataMove.TO_ZOOKEEPER, finished=False))
        self.progress("wrote down the move")
        self._put_aside()
        self.progress("put the files of the metadata aside")
        self._each_bucket(lambda bucket: nest(self.world.files, self.path, bucket, FIRST_PLACEMENT))
        disk.close_cleanly()
        self.progress("moved the buckets")
        root.publish(folder.cluster_id)
        self.progress("published the root")
        write_place(self.world.files, self.path, self._moving(MetadataMove.TO_ZOOKEEPER, finished=True))
        buckets = sum(key.startswith("replicas/") for key in entries)
        return MigrationReport(len(entries), _what(entries), buckets, f"{self.path}/{MOVED_PREFIX}.db")

    def _embedded_snapshot(self) -> Snapshot:
        store = EmbeddedStore.open(self.world.files, self.path, owner=True, create=False)
        try:
            return store.read()
        finally:
            store.close()

    def _disk(self, folder: DataFolder) -> FolderDisk:
        return FolderDisk.open(
            self.world.files,
            self.path,
            incarnation=folder.incarnation,
            boot=self.world.clock.uptime().boot,
            randomness=self.world.randomness,
            registered=None,
        )

    def _next_epoch(self, bucket: BucketId) -> int:
        """An epoch that the log of a bucket has not used, with some to spare."""
        name = f"{bucket_path(self.path, bucket)}/{EPOCHS_NAME}"
        if not self.world.files.exists(name):
            return LEAP
        return max(0, decode_epochs(self.world.files.read_whole(name)).latest) + LEAP

    def _is_published(self, root: MovingRoot, folder: DataFolder) -> bool:
        identity = root.identity()
        return identity is not None and (identity.cluster_id, identity.moved) == (folder.cluster_id, None)

    def _put_aside(self) -> None:
        files = self.world.files
        for name, kept in _FILES.items():
            if files.exists(f"{self.path}/{name}"):
                files.rename(f"{self.path}/{name}", f"{self.path}/{kept}")
        files.sync_folder(self.path)

    def _take_back(self) -> None:
        """Undo in the folder what a move to ZooKeeper did that was cut short."""
        files = self.world.files
        self._each_bucket(lambda bucket: unnest(files, self.path, bucket, FIRST_PLACEMENT))
        for name, kept in _FILES.items():
            if files.exists(f"{self.path}/{kept}") and not files.exists(f"{self.path}/{name}"):
                files.rename(f"{self.path}/{kept}", f"{self.path}/{name}")
        files.sync_folder(self.path)
        write_place(files, self.path, None)
        self.progress("took back what was begun before")

    # --- to embedded -----------------------------------------------------------------------------------------

    def to_embedded(self) -> MigrationReport:
        """Make the folder of a tablet server that has every bucket that of one machine."""
        with self._folder() as folder, open_moving_root(self.options, self.world.clock) as root:
            place = self._place(MetadataMove.TO_EMBEDDED)
            kept = f"{self.options.addresses}{self.options.root}"
            if self._has_left(root, folder, place):
                write_place(self.world.files, self.path, None)
                return MigrationReport(0, "what was left to do", 0, kept)
            snapshot = self._cluster_snapshot(folder)
            disk = self._clean_disk()
            placements = placements_on(Catalog.of(snapshot, self.limits), disk)
            entries = embedded_entries(snapshot, self.limits, disk)
            write_place(self.world.files, self.path, self._moving(MetadataMove.TO_EMBEDDED, finished=False))
            self.progress("wrote down the move")
            for bucket, placement in placements.items():
                unnest(self.world.files, self.path, bucket, placement)
            self.progress("moved the buckets")
            self._build(entries, snapshot.version)
            self.progress("built the files of the metadata")
            root.retire(folder.cluster_id, moved=self.path)
            self.progress("retired the root")
            write_place(self.world.files, self.path, None)
            return MigrationReport(len(entries), _what(entries), len(placements), kept)

    def _has_left(self, root: MovingRoot, folder: DataFolder, place: MetadataPlace | None) -> bool:
        """Whether all that is left of a move to embedded is to forget about it. Refuses a root that is not ours."""
        identity = root.identity()
        if identity is None or identity.cluster_id != folder.cluster_id:
            raise ForeignMetadata(
                f"{self.options.root} in ZooKeeper is not the cluster of {self.path}: check zookeeper.root",
                root=self.options.root,
            )
        if identity.moved is None:
            return False
        if place is None or place.finished or identity.moved != self.path:
            raise ForeignMetadata(
                f"the metadata at {self.options.root} in ZooKeeper were moved to {identity.moved} already",
                root=self.options.root,
            )
        return True

    def _cluster_snapshot(self, folder: DataFolder) -> Snapshot:
        store = ZooKeeperStore.open(
            self.options, create=False, clock=self.world.clock, randomness=self.world.randomness
        )
        try:
            snapshot = store.read()
        finally:
            store.close()
        running = [key.removeprefix(ANNOUNCED) for key in snapshot.entries if key.startswith(ANNOUNCED)]
        if running:
            raise FolderInUse(
                f"servers of the cluster are running ({', '.join(sorted(running))}): stop all of them, and wait for "
                "zookeeper.session-timeout if one was killed",
                folder=folder.path,
            )
        return snapshot

    def _clean_disk(self) -> str:
        name = f"{self.path}/{DISK_FILE}"
        files = self.world.files
        record = DiskRecord.decode(files.read_whole(name)) if files.exists(name) else None
        if record is None or not record.clean:
            raise InvalidSetting(
                f"the tablet server on {self.path} did not stop cleanly: start it once more and stop it, so that every "
                "log is closed and in sync",
                folder=self.path,
            )
        return record.disk

    def _build(self, entries: dict[str, bytes], version: int) -> None:
        files = self.world.files
        for name in _FILES:
            files.remove(f"{self.path}/{name}")
        held = at_version(entries, version)
        SecondCopy(files, self.path).rewrite(version, held)
        build(files, self.path, version, held)

    # --- both ------------------------------------------------------------------------------------------------

    @contextmanager
    def _folder(self) -> Iterator[DataFolder]:
        """The folder, which no server uses meanwhile."""
        if not self.world.files.exists(f"{self.path}/{FORMAT_FILE}"):
            raise InvalidSetting(
                f"{self.path} is not a data folder of Strom (it has no {FORMAT_FILE}): check --data",
                folder=self.path,
            )
        folder = open_folder(self.world.files, self.path, self.world.randomness)
        try:
            yield folder
        finally:
            folder.lock.release()

    def _place(self, move: MetadataMove) -> MetadataPlace | None:
        """What the folder says about moves; refuses to begin one while another is not finished."""
        place = read_place(self.world.files, self.path)
        if place is None or place.finished:
            return place
        if (place.move, place.root) != (move, self.options.root):
            raise InvalidSetting(
                f"a move of the metadata of {self.path} was interrupted: repeat `strom migrate-metadata --to "
                f"{place.move.value}` with zookeeper.root = {place.root} first",
                folder=self.path,
            )
        return place

    def _moving(self, move: MetadataMove, *, finished: bool) -> MetadataPlace:
        return MetadataPlace(move, finished, self.options.addresses, self.options.root)

    def _each_bucket(self, change: Callable[[BucketId], bool]) -> None:
        """Change the folder of each bucket that was ever used."""
        files, root = self.world.files, buckets_path(self.path)
        for table in filter(str.isdecimal, files.list(root)):
            for partition in filter(_is_partition, files.list(f"{root}/{table}")):
                partition_id = None if partition == "-" else int(partition)
                names = {name.partition(".")[0] for name in files.list(f"{root}/{table}/{partition}")}
                for name in sorted(filter(str.isdecimal, names), key=int):
                    change(BucketId(int(table), partition_id, int(name)))


def _is_partition(name: str) -> bool:
    return name == "-" or name.isdecimal()


def _what(entries: dict[str, bytes]) -> str:
    return ", ".join(counted(count, title) for title, count in kinds(entries))
