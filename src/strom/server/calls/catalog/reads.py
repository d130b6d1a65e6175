"""The calls about the catalog that every server of a cluster answers, from what it knows of the metadata."""

from __future__ import annotations

from strom.server.calls.catalog.databases import DatabaseReads
from strom.server.calls.catalog.metadata import MetadataCalls
from strom.server.calls.catalog.partitions import PartitionReads
from strom.server.calls.catalog.second_look import SecondLook
from strom.server.calls.catalog.tables import TableReads
from strom.server.calls.dispatch import CallGroup
from strom.server.tablets.catalog_view import CatalogView


def catalog_reads(view: CatalogView, *more: CallGroup) -> tuple[CallGroup, ...]:
    """Databases, tables, partitions, and where everything is; and ``more`` that answer by name."""
    reads: tuple[CallGroup, ...] = (DatabaseReads(view), TableReads(view), PartitionReads(view))
    groups: tuple[CallGroup, ...] = (*reads, MetadataCalls(view), *more)
    return tuple(SecondLook(view, group) for group in groups)
