"""Where the ZooKeeper of a cluster is, and how to log in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strom.errors import InvalidSetting

SESSION_TIMEOUT_S = 6.0
REQUEST_TIMEOUT_S = 10.0

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:/,\s]+):(\d{1,5})")
_ROOT = re.compile(r"(/[A-Za-z0-9_.-]+)+")


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """Certificates for the connection."""

    ca: str | None = None
    """The file with the authorities that are trusted; None: those of the system."""
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    """Whether the server's certificate is checked, and its name."""


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Everything a store needs to know."""

    addresses: str
    """``host:port,host:port``."""
    root: str = "/strom"
    """The node below which everything lies. Several clusters may share a ZooKeeper, each with its own root."""
    session_timeout_s: float = SESSION_TIMEOUT_S
    """How long after the last sign of life announcements stand. ZooKeeper may grant a different time."""
    request_timeout_s: float = REQUEST_TIMEOUT_S
    """How long a call waits, reconnecting included."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ZooKeeperTls | None = None

    def __post_init__(self) -> None:
        for address in self.addresses.split(","):
            found = _ADDRESS.fullmatch(address.strip())
            if found is None or not 0 < int(found[2]) < 1 << 16:
                raise InvalidSetting(
                    f"{address.strip()!r} is not an address of ZooKeeper: write host:port,host:port,host:port",
                    setting="zookeeper.addresses",
                )
        if _ROOT.fullmatch(self.root) is None or {".", "..", "zookeeper"} & set(self.root.split("/")):
            raise InvalidSetting(
                f"{self.root!r} cannot be the root of a cluster in ZooKeeper: write a path such as /strom",
                setting="zookeeper.root",
            )
        if (self.user is None) != (self.password is None):
            raise InvalidSetting(
                "a user of ZooKeeper needs a password, and a password a user: set both zookeeper.user and "
                "zookeeper.password, or neither",
                setting="zookeeper.user",
            )
        if self.user is not None and (":" in self.user or not self.user):
            raise InvalidSetting(
                f"{self.user!r} cannot be a user of ZooKeeper: it has no colon and is not empty",
                setting="zookeeper.user",
            )


def options_of(settings: Mapping[str, Any]) -> ZooKeeperOptions:
    """The options in a server's settings; raises InvalidSetting."""
    if not settings["zookeeper.addresses"]:
        raise InvalidSetting(
            "metadata.store = zookeeper needs zookeeper.addresses: host:port,host:port,host:port",
            setting="zookeeper.addresses",
        )
    return ZooKeeperOptions(
        addresses=settings["zookeeper.addresses"],
        root=settings["zookeeper.root"],
        session_timeout_s=settings["zookeeper.session-timeout"] / 1000,
        request_timeout_s=settings["zookeeper.request-timeout"] / 1000,
        user=settings["zookeeper.user"] or None,
        password=settings["zookeeper.password"] or None,
        tls=_tls_of(settings) if settings["zookeeper.tls"] else None,
    )


def _tls_of(settings: Mapping[str, Any]) -> ZooKeeperTls:
    files = {name: settings[f"zookeeper.tls.{name}"] or None for name in ("ca", "certificate", "key")}
    for name, path in files.items():
        # kazoo would try to connect again and again, and never say why that fails.
        if path is not None and not os.access(path, os.R_OK):
            raise InvalidSetting(
                f"zookeeper.tls.{name}: {path} cannot be read", setting=f"zookeeper.tls.{name}", path=path
            )
    if (files["certificate"] is None) != (files["key"] is None):
        raise InvalidSetting(
            "a certificate needs its key: set both zookeeper.tls.certificate and zookeeper.tls.key, or neither",
            setting="zookeeper.tls.key",
        )
    return ZooKeeperTls(
        **files,
        key_password=settings["zookeeper.tls.key-password"] or None,
        verify=settings["zookeeper.tls.verify"],
    )
