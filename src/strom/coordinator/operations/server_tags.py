"""Servers that leave the cluster, or rest: what a person wants of them, until that is taken back."""

from __future__ import annotations

from collections.abc import Iterable

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.operation_rows import Tag, encode_tag
from strom.coordinator.plan import UpdatePlan
from strom.errors import TagExists, TagNotFound, UnknownServer
from strom.metadata.changes import Delete, Put


def add_tags(catalog: Catalog, servers: Iterable[int], tag: Tag) -> UpdatePlan[None]:
    """Tag all of these servers, or none if one of them has a tag already."""
    wanted = _known(catalog, servers)
    for server_id in wanted:
        found = catalog.operations.tags.get(server_id)
        if found is not None:
            raise TagExists(f"server {server_id} is {found} already: take that back first", server=server_id)
    return UpdatePlan(
        None,
        [catalog.unchanged(keys.tag(one)) for one in wanted],
        [Put(keys.tag(one), encode_tag(tag)) for one in wanted],
    )


def remove_tags(catalog: Catalog, servers: Iterable[int], tag: Tag) -> UpdatePlan[None]:
    """Take the tag of all of these servers back, or of none if one of them does not have it."""
    wanted = _known(catalog, servers)
    for server_id in wanted:
        if catalog.operations.tags.get(server_id) != tag:
            raise TagNotFound(f"server {server_id} is not {tag}", server=server_id)
    return UpdatePlan(
        None,
        [catalog.unchanged(keys.tag(one)) for one in wanted],
        [Delete(keys.tag(one)) for one in wanted],
    )


def _known(catalog: Catalog, servers: Iterable[int]) -> list[int]:
    wanted = sorted(set(servers))
    for server_id in wanted:
        check_server(catalog, server_id)
    return wanted


def check_server(catalog: Catalog, server_id: int) -> None:
    """Raise UnknownServer unless a tablet server of this number was registered."""
    if server_id not in catalog.registrations:
        known = ", ".join(map(str, sorted(catalog.registrations)))
        raise UnknownServer(
            f"the cluster has no tablet server {server_id}: it has {known or 'none'}", server=server_id
        )
