"""One link per server, wherever it listens."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from strom.coordinator.catalog import ListenerAddress
from strom.runtime.world import World
from strom.server.links.inner_link import INNER_LISTENER
from strom.server.links.server_links import ServerLinks


class View:
    """What the metadata says of servers."""

    def __init__(self) -> None:
        self.catalog = SimpleNamespace(servers={})
        self._watchers: list[Callable[[Any], None]] = []

    def watch(self, watcher: Callable[[Any], None]) -> None:
        self._watchers.append(watcher)

    def say(self, **ports: int) -> None:
        servers = {
            int(name[1:]): SimpleNamespace(listeners={INNER_LISTENER: ListenerAddress("h", port)})
            for name, port in ports.items()
        }
        self.catalog = SimpleNamespace(servers=servers)
        change = SimpleNamespace(catalog=self.catalog, touched=SimpleNamespace(servers=set(servers)))
        for watcher in self._watchers:
            watcher(change)


def test_a_server_is_asked_on_one_link_which_follows_it_to_a_new_address() -> None:
    view = View()
    links = ServerLinks(World.system(), "secret", cast(Any, view))
    early = links.to(1)
    assert early.address is None, "nobody knows where it is"
    view.say(s1=10, s2=20)
    first, second = links.to(1), links.to(2)
    assert first is early
    assert [first.address, second.address] == [ListenerAddress("h", 10), ListenerAddress("h", 20)]
    view.say(s1=11, s2=20)
    assert [links.to(1), links.to(2)] == [first, second]
    assert [first.address, second.address] == [ListenerAddress("h", 11), ListenerAddress("h", 20)]
