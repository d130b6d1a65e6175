"""Where a running server is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.coordinator.catalog import ListenerAddress
from strom.server.process.listeners import Endpoint


@dataclass(frozen=True)
class Addresses:
    """Where clients reach a running server."""

    folder: str
    listeners: Mapping[str, str]
    """``host:port`` by listener name, the first listener first."""
    http: str | None
    processes: Sequence[int]

    @property
    def address(self) -> str:
        """The address of the first listener."""
        return next(iter(self.listeners.values()))


def advertised(bound: Sequence[Endpoint]) -> dict[str, ListenerAddress]:
    """The addresses that the metadata has of a server, by listener name."""
    return {one.name: ListenerAddress(one.advertised_host, one.advertised_port) for one in bound}
