"""What every server of a cluster is made of, whatever its role: its settings, the store, its place, its secret."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from strom.coordinator.catalog import ListenerAddress
from strom.errors import FolderInUse, InvalidSetting
from strom.metadata.store import MetadataStore
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_owner import LakeOwner
from strom.runtime.files import Files, FolderLock
from strom.runtime.settings import Settings
from strom.server.folder.lake_config import lake_config
from strom.server.links.inner_link import INNER_LISTENER
from strom.server.process.listeners import Endpoint, check_http, endpoints, reachable

CLUSTER_INCARNATION = "cluster"
"""A cluster is in no folder that could be copied; its metadata are the one place it has."""


class ClusterStore(MetadataStore, Protocol):
    """A metadata store that several machines share."""

    cluster_id: str

    @property
    def silent_s(self) -> float:
        """For how long the store has not answered."""


OpenClusterStore = Callable[[bool], ClusterStore]
"""Opens the store of the settings; the argument says whether an empty one may become a cluster. Not on a loop."""


@dataclass(frozen=True)
class ClusterPlace:
    """Where one server of a cluster listens."""

    endpoints: tuple[Endpoint, ...]
    inner: ListenerAddress
    advertised_inner: ListenerAddress

    @classmethod
    def of(cls, settings: Settings, *, host: str | None = None, port: int | None = None) -> ClusterPlace:
        """From the settings, checked."""
        found = endpoints(settings, host=host, port=port)
        if any(one.name == INNER_LISTENER for one in found):
            raise InvalidSetting(
                f"bind.listeners names a listener {INNER_LISTENER}: that is the one for other servers "
                "(cluster.listener); choose another name",
                setting="bind.listeners",
            )
        check_http(settings)
        inner = _address(settings["cluster.listener"], "cluster.listener")
        shown = settings["cluster.advertised-listener"]
        advertised = (
            _address(shown, "cluster.advertised-listener")
            if shown
            else ListenerAddress(reachable(inner.host), inner.port)
        )
        return cls(found, inner, advertised)

    def inner_at(self, port: int) -> ListenerAddress:
        """The address that other servers use, once the port is known."""
        host, advertised_port = self.advertised_inner
        return ListenerAddress(host, port if advertised_port in (0, self.inner.port) else advertised_port)


def cluster_lake(settings: Settings, cluster_id: str) -> LakeConfig:
    """Where the lake of the cluster is: all servers have to say the same."""
    config = lake_config(
        settings, os.path.abspath(settings["data.dir"]), LakeOwner(cluster_id, CLUSTER_INCARNATION)
    )
    return replace(config, home=False)


def lock_place(files: Files, folder: str, what: str) -> FolderLock:
    """The lock of a folder that one process uses; raises FolderInUse."""
    files.make_folder(folder)
    lock = files.lock(f"{folder}/lock")
    if lock is None:
        raise FolderInUse(
            f"another {what} runs on {folder}; stop it, or choose another data.dir", folder=folder
        )
    return lock


def _address(text: str, setting: str) -> ListenerAddress:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidSetting(f"{setting} is {text!r}; it is written host:port", setting=setting)
    return ListenerAddress(host.removeprefix("[").removesuffix("]"), int(port))
