"""The object store of a server: where it is, and how much of the machine it may take."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from strom.model.lake.lake_owner import LakeOwner
from strom.runtime.objects.folder_objects import FolderObjects
from strom.runtime.objects.object_place import ObjectPlace, SettingNames
from strom.runtime.objects.object_store import Objects
from strom.runtime.objects.obstore_objects import ObstoreObjects
from strom.runtime.objects.patient_objects import PatientObjects, StorePatience
from strom.runtime.settings import Settings
from strom.runtime.tasks import Offload
from strom.runtime.world import World

PREFIX = "remote."
PLACE_SETTINGS = (
    "s3.endpoint",
    "s3.region",
    "s3.path-style",
    "s3.access-key-id",
    "s3.secret-access-key",
    "gcs.service-account-file",
    "azure.account",
    "azure.access-key",
)
PATIENCE = StorePatience(deadline_s=20.0)
"""Who asks again after this knows what waits for it, and says so."""


@dataclass(frozen=True)
class RemoteAccess:
    """What a server needs to use its object store."""

    place: ObjectPlace
    owner: LakeOwner
    """Who uploads: this cluster, from this folder."""
    upload_bytes: int
    upload_age_s: float
    delete_grace_ms: int
    read_gap: int
    read_part: int
    read_parallel: int
    read_memory: int
    cache_bytes: int

    @classmethod
    def of(cls, settings: Settings, owner: LakeOwner | None) -> RemoteAccess | None:
        """From the server's settings; None while ``remote.data.dir`` is not set. InvalidSetting says what is wrong."""
        address = settings["remote.data.dir"].strip()
        if not address or owner is None:
            return None
        if address.startswith("/"):
            address = "file://" + quote(address)
        given = {name: settings[PREFIX + name] for name in PLACE_SETTINGS if settings[PREFIX + name]}
        place = ObjectPlace.of(address, given, SettingNames("remote.data.dir", PREFIX))
        return cls(
            place,
            owner,
            upload_bytes=settings["remote.upload.size"],
            upload_age_s=settings["remote.upload.max-age"] / 1000,
            delete_grace_ms=settings["remote.delete.grace"],
            read_gap=settings["remote.read.gap"],
            read_part=settings["remote.read.part"],
            read_parallel=settings["remote.read.parallel"],
            read_memory=settings["remote.read.memory"],
            cache_bytes=settings["remote.cache.size"],
        )

    def open(self, world: World, threads: Offload) -> Objects:
        """The store; ``threads`` do the work of one that is a folder."""
        if world.objects is not None:
            inner = world.objects(self.place)
        elif self.place.kind == "file":
            inner = FolderObjects(self.place.prefix, world.files, threads)
        else:
            inner = ObstoreObjects(self.place)
        return PatientObjects(inner, clock=world.clock, randomness=world.randomness, patience=PATIENCE)
